"""The experiment file's section about a model of one's own: a function's arguments are its keys."""

from testbed.errors import SpecError
from testbed.experiment.sections.functions import section_of
from testbed.experiment.sections.learning import MODELS, TRANSFORMER, ModelSpec, TransformerSpec
from testbed.plugins.names import find, is_plugin

BUILT_IN = dict.fromkeys((*MODELS, TRANSFORMER))
ENTRY_POINTS = "testbed.models"
"""As ``testbed.learning.models.ENTRY_POINTS``, which imports torch."""


def plugin_model(name: str) -> type[ModelSpec] | None:
    """Return the section of a model with keys of its own; None if the name is of no such model.

    Raises:
        SpecError: its module cannot be imported, or it is no function.
    """
    if name == TRANSFORMER:
        return TransformerSpec
    if not is_plugin(name, BUILT_IN, ENTRY_POINTS):
        return None
    make = find(name, BUILT_IN, ENTRY_POINTS)
    if not callable(make):
        raise SpecError(
            f"'{name}' is no model: it must be a function that returns a torch.nn.Module"
        )
    return section_of(name, make, ModelSpec, 1)

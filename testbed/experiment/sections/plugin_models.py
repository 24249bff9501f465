"""The experiment file's section about a model of one's own: a function's arguments are its keys."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from pydantic import create_model

from testbed.errors import SpecError
from testbed.experiment.sections.learning import MODELS, ModelSpec
from testbed.plugins.names import find, is_plugin

BUILT_IN = dict.fromkeys(MODELS)
ENTRY_POINTS = "testbed.models"
"""As ``testbed.learning.models.ENTRY_POINTS``, which imports torch."""


def plugin_model(name: str) -> type[ModelSpec] | None:
    """Return the section of a plug-in's model; None if the name is none of a plug-in.

    Raises:
        SpecError: its module cannot be imported, or it is no function.
    """
    if not is_plugin(name, BUILT_IN, ENTRY_POINTS):
        return None
    make = find(name, BUILT_IN, ENTRY_POINTS)
    if not callable(make):
        raise SpecError(
            f"'{name}' is no model: it must be a function that returns a torch.nn.Module"
        )
    return _section_of(name, make)


@functools.cache
def _section_of(name: str, make: Callable[..., Any]) -> type[ModelSpec]:
    own: dict[str, Any] = {}
    for parameter in list(inspect.signature(make, eval_str=True).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        given = parameter.annotation is not parameter.empty
        default = ... if parameter.default is parameter.empty else parameter.default
        own[parameter.name] = (parameter.annotation if given else Any, default)
    taken = sorted(own.keys() & ModelSpec.model_fields)
    if taken:
        raise SpecError(
            f"'{name}': the argument {taken[0]} is a key that every model has: give it another name"
        )
    return create_model(ModelSpec.__name__, __base__=ModelSpec, name=(str, ...), **own)

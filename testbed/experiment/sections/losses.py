"""The experiment file's sections about the loss, and about what evaluations measure besides it."""

from typing import Literal

from pydantic import Field, field_validator

from testbed.errors import SpecError
from testbed.experiment.sections.functions import FunctionSection, S, own_section
from testbed.plugins.names import is_plugin

LOSSES = ("classification", "next-token")
"""As ``testbed.learning.losses.BUILT_IN``, which imports torch."""
ENTRY_POINTS = "testbed.losses"
TAKEN = frozenset(
    {"iteration", "time", "accuracy", "loss", "payload_bytes", "message_bytes", "wire_bytes"}
)
"""The columns of evaluations, which no measure may be called by."""
_BUILT_IN = dict.fromkeys(LOSSES)


class LossSpec(FunctionSection):
    """The loss whose gradients devices compute."""

    name: Literal["classification", "next-token"] = Field(
        description="classification: cross-entropy of labels, the default of images; next-token: that "
        "of the next token at each position, the default of tokens; `module:function`: one of one's "
        "own.",
    )


class MeasureSpec(FunctionSection):
    """A function of outputs and targets that evaluations measure, besides loss and accuracy."""

    name: str = Field(
        description="`module:function`; it returns the mean over some examples, and its column is "
        "called by the function.",
        examples=["rules:error"],
    )
    unit: str = Field(default="", description="A word or a sign; default: none.", max_length=16)
    better: Literal["higher", "lower"] = Field(
        default="lower", description="Whether a better model has a higher or a lower value."
    )

    @property
    def column(self) -> str:
        """The name of its column: its function's, in lower case."""
        return self.name.rpartition(":")[2].rpartition(".")[2].lower().replace("-", "_")

    @field_validator("name")
    @classmethod
    def _own(cls, name: str) -> str:
        if not is_plugin(name, _BUILT_IN, ENTRY_POINTS):
            raise ValueError(f"'{name}' is no function of one's own: name it `module:function`")
        return name


def _own(name: str, base: type[S]) -> type[S] | None:
    what = "function of outputs and targets that returns a mean"
    return own_section(name, base, _BUILT_IN, ENTRY_POINTS, given=2, what=what)


def own_loss(name: str) -> type[LossSpec] | None:
    """Return the section of a loss of one's own; None if the name is none of a plug-in.

    Raises:
        SpecError: its module cannot be imported, or it is no function.
    """
    return _own(name, LossSpec)


def own_measure(name: str) -> type[MeasureSpec] | None:
    """Return the section of a measure of one's own; see ``own_loss``."""
    section = _own(name, MeasureSpec)
    if section is not None and (column := section.model_construct(name=name).column) in TAKEN:
        raise SpecError(
            f"'{name}': evaluations have a column {column}: call the function otherwise"
        )
    return section

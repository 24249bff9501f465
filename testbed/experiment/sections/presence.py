"""The experiment file's times at which devices arrive and leave, and their conflicts."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator

from testbed.experiment.alternatives import ChosenByValue, ShortForm
from testbed.experiment.sections.section import Conflict
from testbed.experiment.sections.timing import (
    CvbSpec,
    DrawnSpec,
    GammaSpec,
    ParetoSpec,
    PlainSpec,
    ShiftedExponentialSpec,
)

KEYS = ("arrives", "leaves", "returns")


def _is_usable(law: DrawnSpec) -> DrawnSpec:
    if law.changes:
        raise ValueError("a time of presence does not change during training: take changes out")
    if law.mean == 0:
        raise ValueError("has the mean 0: give it one, or take it out")
    return law


PresenceSpec: TypeAlias = Annotated[
    Annotated[
        PlainSpec | ShiftedExponentialSpec | ParetoSpec | GammaSpec | CvbSpec,
        ChosenByValue("distribution", default="constant"),
    ],
    ShortForm((), open_ended=True, key="mean"),
    AfterValidator(_is_usable),
]
"""The time until a device arrives, leaves or arrives again: a duration, or a law."""


def presence_conflicts(general: Any, classes: Sequence[Any], *, has_file: bool) -> list[Conflict]:
    """Return the conflicts of the times of presence with each other.

    Args:
        general: the section ``devices``; classes: those in it.
        has_file: True if a file says who arrives and leaves.
    """
    places: list[tuple[tuple[Any, ...], Any]] = [(("devices",), general)]
    places += [(("devices", "classes", i), one) for i, one in enumerate(classes)]
    found: list[Conflict] = []
    for path, section in places:
        given = [key for key in KEYS if getattr(section, key) is not None]
        if has_file and given:
            text = "the file of devices.presence says who arrives and leaves: take one of them out"
            found.append(((*path, given[0]), text))
        leaves = section.leaves if section is general else section.of("leaves", general.leaves)
        if "returns" in given and leaves is None:
            text = "nothing returns that does not leave: add leaves, or take this out"
            found.append(((*path, "returns"), text))
    return found

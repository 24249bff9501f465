"""The definition of a metric, and helpers that read its samples from a run's state."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from testbed.metrics.state import RunState

Sample = tuple[Sequence[str], Any]
"""The values of a metric's own labels, and its value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: with its suffix, as exported.
        labels: its own, in addition to ``catalogue.COMMON``.
        meaning: one line, the metric's HELP.
        read: returns its samples; none of an unknown value. A histogram's value is a
            ``state.Staleness``, a summary's its sum and its count.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram", "summary"]
    labels: tuple[str, ...]
    meaning: str
    read: Callable[[RunState], Iterable[Sample]]


def known(value: Any) -> Iterable[Sample]:
    """Return the only sample of a metric without labels of its own; none for None."""
    return () if value is None else (((), value),)


def by_key(values: dict[str, Any]) -> Iterable[Sample]:
    """Return a sample for each key."""
    return (((key,), value) for key, value in values.items())


def by_class(state: RunState, values: Any) -> Iterable[Sample]:
    """Return a sample for each device class; none for None."""
    if values is None:
        return ()
    return (((name,), value) for name, value in zip(state.classes.names, values, strict=True))

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
        name: with its suffix, as exported; counters, and only they, have ``_total``.
        meaning: one line, the metric's HELP.
        read: returns its samples; none of an unknown value. A histogram's value is a
            ``state.Staleness``, a summary's its sum and its count.
        labels: its own, in addition to ``exporter.COMMON``.
        uncounted: its kind, if it is no counter.
    """

    name: str
    meaning: str
    read: Callable[[RunState], Iterable[Sample]]
    labels: tuple[str, ...] = ()
    uncounted: Literal["gauge", "histogram", "summary"] = "gauge"

    @property
    def kind(self) -> Literal["gauge", "counter", "histogram", "summary"]:
        """Its type, as Prometheus calls it."""
        return "counter" if self.name.endswith("_total") else self.uncounted


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

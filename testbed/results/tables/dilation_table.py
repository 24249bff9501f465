"""A run beside the one whose times are longer by a factor: do their curves agree over time ÷ factor?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed import number_text as q
from testbed.errors import RunError
from testbed.results.reading.curves import quality_of
from testbed.results.reading.quality import ACCURACY, Quality
from testbed.results.reading.recorded_run import RecordedRun

HEADINGS = ("update", "time", "dilated ÷ factor", "differ", "ingress", "dilated", "differ")
POINTS = 10
"""The number of points at which curves are compared, evenly spread over the run."""


@dataclass(frozen=True, slots=True)
class DilationPoint:
    """One point of the curves.

    Attributes:
        update: the number of updates.
        time, dilated_time: when each run had made them, in seconds; the second ÷ the factor.
        ingress, dilated_ingress: bytes of messages in each run at ``time``, and at ``time`` · factor.
        value, dilated_value: of the runs' quality at the last evaluation at this update or before;
            None before one.
    """

    update: int
    time: float
    dilated_time: float
    ingress: int
    dilated_ingress: int
    value: float | None
    dilated_value: float | None


@dataclass(frozen=True, slots=True)
class DilationComparison:
    """The curves of two runs, first update to last; ``factor`` is that of the second run's times.

    Attributes:
        quality: of which points have values, such as the accuracy.
    """

    factor: float
    quality: Quality
    points: Sequence[DilationPoint]

    @property
    def headings(self) -> Sequence[str]:
        """The columns' headings."""
        own = self.quality.name if self.quality == ACCURACY else self.quality.heading
        return (*HEADINGS, own, "dilated")

    @property
    def cells(self) -> Sequence[Sequence[str]]:
        """The rows as text."""
        return [
            (
                q.as_count(one.update),
                f"{one.time:.3f} s",
                f"{one.dilated_time:.3f} s",
                _percent(self._late(one)),
                q.as_bytes(one.ingress),
                q.as_bytes(one.dilated_ingress),
                _percent(self._more(one)),
                self.quality.text(one.value),
                self.quality.text(one.dilated_value),
            )
            for one in self.points
        ]

    def _late(self, one: DilationPoint) -> float:
        return (one.dilated_time - one.time) / self.points[-1].time

    def _more(self, one: DilationPoint) -> float:
        return (one.dilated_ingress - one.ingress) / self.points[-1].ingress

    @property
    def greatest(self) -> tuple[float, float]:
        """The greatest difference of times and of ingress, as shares of the first run's at its end."""
        late, more = ([abs(own(one)) for one in self.points] for own in (self._late, self._more))
        return max(late), max(more)

    def agrees(self, tolerance: float) -> bool:
        """Return True if no difference is greater than a tolerance."""
        return max(self.greatest) <= tolerance


def compared(original: RecordedRun, longer: RecordedRun, factor: float) -> DilationComparison:
    """Compare a run with its dilated one, at updates and times that are spread over the first.

    Raises:
        RunError: one of them did not make all updates, or no time passed.
    """
    first, second = _Curve(original), _Curve(longer)
    if first.last != second.last or not first.last:
        raise RunError(
            f"{longer.id} made {second.last:,} updates and {original.id} {first.last:,}: only runs "
            "that made all of their updates, and the same number, are compared"
        )
    if not first.reached(first.last):
        raise RunError(f"no time passed in {original.id}: give it `waiting`, `compute` or links")
    quality = quality_of((original, longer))
    updates = sorted({round(first.last * n / POINTS) or 1 for n in range(1, POINTS + 1)})
    points = [
        DilationPoint(
            update,
            time := first.reached(update),
            second.reached(update) / factor,
            first.received(time),
            second.received(time * factor),
            first.value(update, quality),
            second.value(update, quality),
        )
        for update in updates
    ]
    return DilationComparison(factor, quality, points)


class _Curve:
    """When a run had made each update, and what had arrived by then."""

    def __init__(self, run: RecordedRun) -> None:
        rows = run.pushes
        self._updates, self._times = run.version_times
        arrived: npt.NDArray[np.float64] = rows.column("time").to_numpy()
        order = np.argsort(arrived, kind="stable")
        self._arrived = arrived[order]
        self._bytes = np.cumsum(rows.column("message_bytes").to_numpy()[order])
        self._evaluations = run.evaluations
        self.last = int(self._updates[-1]) if len(self._updates) else 0

    def reached(self, update: int) -> float:
        """Return when an update was made, in seconds of training."""
        return float(self._times[np.searchsorted(self._updates, update)])

    def received(self, time: float) -> int:
        """Return the bytes of the messages of all pushes until a time."""
        # Times of two runs under the virtual clock differ by rounding.
        count = int(np.searchsorted(self._arrived, time * (1 + 1e-12), side="right"))
        return int(self._bytes[count - 1]) if count else 0

    def value(self, update: int, quality: Quality) -> float | None:
        """Return the value of a quality at the last evaluation until an update."""
        place = int(np.searchsorted(self._evaluations.iteration, update, side="right")) - 1
        return float(self._evaluations.of(quality)[place]) if place >= 0 else None


def _percent(share: float) -> str:
    return f"{100 * share:+.2f} %" if share else "0 %"

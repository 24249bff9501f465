"""The clock of training, and the faults to begin and to end next by the wall clock.

An agenda has scheduled times, and the ends of active faults.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from testbed.faults.fault import Fault
from testbed.faults.schedule import Schedule, TimedFault

Clock: TypeAlias = Callable[[], float]
"""Returns the present in seconds of CLOCK_MONOTONIC, as ``time.monotonic`` does."""


class TrainingClock:
    """The clock by which the faults of one run are timed.

    Attributes:
        began: when training began; None before that.
    """

    def __init__(self, now: Clock) -> None:
        self.now = now
        self.began: float | None = None

    @property
    def elapsed(self) -> float:
        """The seconds since training began; 0 before that."""
        return 0.0 if self.began is None else self.now() - self.began


@dataclass(order=True, slots=True)
class FaultEnd:
    """The future end of a fault, and the incarnations of the devices that it struck, by number."""

    when: float
    number: int
    fault: Fault = field(compare=False)
    struck: Mapping[int, int] = field(compare=False)


class Agenda:
    """The agenda of one run; all times are CLOCK_MONOTONIC in seconds."""

    def __init__(self, schedule: Schedule) -> None:
        """Start empty: nothing is due before training."""
        self._schedule = schedule
        self._timed: Iterator[TimedFault] = iter(())
        self._next: TimedFault | None = None
        self._training = 0.0
        self._ends: list[FaultEnd] = []
        self._count = itertools.count()

    def begin(self, training: float, elapsed: float) -> None:
        """Count the faults' times from the start of training.

        Args:
            elapsed: seconds of training in earlier sessions, whose faults have begun already.
        """
        self._training = training
        due = self._schedule.timed()
        self._timed = itertools.dropwhile(lambda timed: timed.time <= elapsed, due)
        self._next = next(self._timed, None)

    def end_at(self, when: float, fault: Fault, struck: Mapping[int, int]) -> None:
        """Schedule the end of a fault.

        Args:
            struck: the incarnations of the devices that it struck, by number.
        """
        heapq.heappush(self._ends, FaultEnd(when, next(self._count), fault, struck))

    def has_end(self, number: int) -> bool:
        """Return True if a worker that was killed is scheduled to come back."""
        return any(number in end.struck for end in self._ends if end.fault.kind == "kill")

    def clear(self) -> None:
        """Drop everything that was due."""
        self._next = None
        self._ends.clear()

    @property
    def due(self) -> float:
        """The time of the next entry; infinite if there is none."""
        return min(self._begins, self._ends[0].when if self._ends else math.inf)

    @property
    def _begins(self) -> float:
        return math.inf if self._next is None else self._training + self._next.time

    def take(self, now: float) -> TimedFault | FaultEnd | None:
        """Remove and return the next entry if it is due by ``now``; at equal times, ends come first."""
        if self.due > now:
            return None
        if self._ends and self._ends[0].when <= self._begins:
            return heapq.heappop(self._ends)
        timed, self._next = self._next, next(self._timed, None)
        return timed

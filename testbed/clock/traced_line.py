"""A line whose rate changes over time, under the virtual clock, by a trace or by background flows.

All rates to come are known, so no event changes them: when a message leaves is found by adding up the
bits that pass from step to step. A fault that limits the rate holds where the trace has more.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from testbed.clock.background_rates import RestOfRate, Taking
from testbed.clock.rate_courses import Course
from testbed.clock.transfers import Jitter, Line
from testbed.network.segments import wire_bytes


class TracedLine(Line):
    """One direction of one link, whose rate changes over time."""

    def __init__(self, course: Course, delay: float = 0.0, jitter: Jitter | None = None) -> None:
        super().__init__(None, delay, jitter)
        self._course = course

    @property
    def instant(self) -> bool:
        """False: a message's size always matters."""
        return False

    def _usual_arrival(self, now: float, size: int) -> float:
        return self._leaves(now, size) + self._delay

    def _waiting_bits(self, start: float) -> float:
        return self._course.bits_between(start, self.free) if self.free > start else 0.0

    def send(self, now: float, size: int) -> float:
        self.handed_over += wire_bytes(size)
        self.free = self._leaves(now, size)
        return self._sent(now, self.free, self.free + self._delay)

    def hold(self, now: float, until: float) -> Callable[[float], float]:
        start, again, course = max(now, self.down), max(until, self.down), self._course
        by = max(0.0, until - start)
        self.down = again
        if by == 0.0:
            return lambda arrival: arrival

        def later(leaving: float) -> float:
            """Return when a message leaves that has left already, or loses the time of the outage."""
            if leaving <= start:
                return leaving
            return course.after(again, course.bits_between(start, leaving))

        def moved(arrival: float, left: float, delay: float) -> float:
            return later(left) + delay if left > start else arrival + by

        self.free = later(self.free)
        self.marks = list(map(later, self.marks))
        return self._moving(later, moved)

    def change(self, now: float, rate: int | None) -> Callable[[float], float]:
        """Limit the rate in addition to the trace; None ends the limit."""
        return self._follow(now, self._course.limited(rate))

    def beside(self, now: float, takings: Sequence[Taking]) -> Callable[[float], float]:
        """Leave background flows from now on what they take then; return what ``change`` does.

        Raises:
            TypeError: the line has none.
        """
        if not isinstance(self._course, RestOfRate):
            raise TypeError("no background flow is on this line")
        return self._follow(now, replace(self._course, takings=tuple(takings)))

    def _follow(self, now: float, course: Course) -> Callable[[float], float]:
        before, start = self._course, max(now, self.down)
        if course == before:
            return lambda arrival: arrival
        self._course = course

        def later(leaving: float) -> float:
            if leaving <= start:
                return leaving
            return course.after(start, before.bits_between(start, leaving))

        self.free = later(self.free)
        self.marks = list(map(later, self.marks))
        return self._moving(later, lambda _, left, delay: later(left) + delay)

    def _leaves(self, now: float, size: int) -> float:
        start = max(now, self.free, self.down)
        return self._course.after(start, 8.0 * wire_bytes(size))

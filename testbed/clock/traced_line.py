"""A line whose rate follows a trace, under the virtual clock.

All rates to come are known, so no event changes them: when a message leaves is found by adding up the
bits that pass from step to step. A fault that limits the rate holds where the trace has more.
"""

import math
from collections.abc import Callable

from testbed.clock.transfers import Jitter, Line
from testbed.network.segments import wire_bytes
from testbed.rate_trace import RateTrace

_ROUNDING = 1e-6
"""Bits that a message does not wait for when a step ends: they are a rounding."""


class TracedLine(Line):
    """One direction of one link, whose rate changes over time."""

    def __init__(self, trace: RateTrace, delay: float = 0.0, jitter: Jitter | None = None) -> None:
        super().__init__(None, delay, jitter)
        self._trace = trace
        self._limit: int | None = None
        self._in_a_period = self._bits_in_a_period(None)

    @property
    def instant(self) -> bool:
        """False: a message's size always matters."""
        return False

    def _usual_arrival(self, now: float, size: int) -> float:
        return self._leaves(now, size) + self._delay

    def _waiting_bits(self, start: float) -> float:
        return self._bits_between(start, self.free, self._limit) if self.free > start else 0.0

    def send(self, now: float, size: int) -> float:
        self.handed_over += wire_bytes(size)
        self.free = self._leaves(now, size)
        return self._sent(now, self.free, self.free + self._delay)

    def hold(self, now: float, until: float) -> Callable[[float], float]:
        start, again = max(now, self.down), max(until, self.down)
        by = max(0.0, until - start)
        self.down = again
        if by == 0.0:
            return lambda arrival: arrival

        def later(leaving: float) -> float:
            """Return when a message leaves that has left already, or loses the time of the outage."""
            if leaving <= start:
                return leaving
            bits = self._bits_between(start, leaving, self._limit)
            return self._after(again, bits, self._limit, self._in_a_period)

        def moved(arrival: float, left: float, delay: float) -> float:
            return later(left) + delay if left > start else arrival + by

        self.free = later(self.free)
        self.marks = list(map(later, self.marks))
        return self._moving(later, moved)

    def change(self, now: float, rate: int | None) -> Callable[[float], float]:
        """Limit the rate in addition to the trace; None ends the limit."""
        if rate == self._limit:
            return lambda arrival: arrival
        start, before = max(now, self.down), self._limit
        self._limit = rate
        self._in_a_period = self._bits_in_a_period(rate)
        limit, in_a_period = self._limit, self._in_a_period

        def later(leaving: float) -> float:
            if leaving <= start:
                return leaving
            bits = self._bits_between(start, leaving, before)
            return self._after(start, bits, limit, in_a_period)

        self.free = later(self.free)
        self.marks = list(map(later, self.marks))
        return self._moving(later, lambda _, left, delay: later(left) + delay)

    # -- adding up the bits that pass

    def _leaves(self, now: float, size: int) -> float:
        start = max(now, self.free, self.down)
        return self._after(start, 8.0 * wire_bytes(size), self._limit, self._in_a_period)

    def _after(self, start: float, bits: float, limit: int | None, in_a_period: float) -> float:
        """Return the time at which so many bits have passed that begin to pass at ``start``."""
        trace = self._trace
        step = trace.step_at(start)
        if trace.period is not None and bits > in_a_period:
            turns = math.ceil(bits / in_a_period) - 1
            bits -= turns * in_a_period
            step += turns * len(trace.times)
            start += turns * trace.period
        while True:
            rate, end = _least(trace.rate(step), limit), trace.begin(step + 1)
            if rate and bits - rate * (end - start) <= _ROUNDING:
                return min(start + bits / rate, end)
            if end > start:
                bits = max(0.0, bits - rate * (end - start))
                start = end
            step += 1

    def _bits_between(self, start: float, end: float, limit: int | None) -> float:
        trace = self._trace
        step, bits = trace.step_at(start), 0.0
        while start < end:
            until = min(end, trace.begin(step + 1))
            bits += _least(trace.rate(step), limit) * (until - start)
            start = until
            step += 1
        return bits

    def _bits_in_a_period(self, limit: int | None) -> float:
        period = self._trace.period
        return math.inf if period is None else self._bits_between(0.0, period, limit)


def _least(rate: int, limit: int | None) -> int:
    return rate if limit is None else min(rate, limit)

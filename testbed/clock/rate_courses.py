"""The rate of a link over time, under the virtual clock, where it changes.

All rates to come are known: when bits have passed is found by adding up those of each step.
"""

import math
from dataclasses import dataclass
from typing import Self, TypeAlias

from testbed.clock import background_rates
from testbed.clock.background_rates import ROUNDING, RestOfRate, Taking
from testbed.rate_trace import RateTrace


@dataclass(frozen=True, slots=True)
class LimitedTrace:
    """The rate of a link that follows a trace, where no fault leaves less.

    Attributes:
        limit: the most that a fault leaves, in bit/s; None: all.
        in_a_period: the bits that pass in a period of the trace; infinite if it does not repeat.
    """

    trace: RateTrace
    limit: int | None
    in_a_period: float

    @classmethod
    def of(cls, trace: RateTrace, limit: int | None = None) -> Self:
        never = cls(trace, limit, math.inf)
        period = trace.period
        return never if period is None else cls(trace, limit, never.bits_between(0.0, period))

    def limited(self, limit: int | None) -> Self:
        return self.of(self.trace, limit)

    def rate(self, time: float) -> float:
        return self._least(self.trace.step_at(time))

    def next_change(self, time: float) -> float:
        """Return the first time after ``time`` at which the trace has another rate."""
        return self.trace.begin(self.trace.step_at(time) + 1)

    def _least(self, step: int) -> int:
        rate = self.trace.rate(step)
        return rate if self.limit is None else min(rate, self.limit)

    def after(self, start: float, bits: float) -> float:
        """Return the time at which so many bits have passed that begin to pass at ``start``."""
        trace = self.trace
        step = trace.step_at(start)
        if trace.period is not None and bits > self.in_a_period:
            turns = math.ceil(bits / self.in_a_period) - 1
            bits -= turns * self.in_a_period
            step += turns * len(trace.times)
            start += turns * trace.period
        while True:
            rate, end = self._least(step), trace.begin(step + 1)
            if rate and bits - rate * (end - start) <= ROUNDING:
                return min(start + bits / rate, end)
            if end > start:
                bits = max(0.0, bits - rate * (end - start))
                start = end
            step += 1

    def bits_between(self, start: float, end: float) -> float:
        """Return the bits that can pass from one time to another."""
        trace = self.trace
        step, bits = trace.step_at(start), 0.0
        while start < end:
            until = min(end, trace.begin(step + 1))
            bits += self._least(step) * (until - start)
            start = until
            step += 1
        return bits


Course: TypeAlias = LimitedTrace | RestOfRate
"""The rate of one direction of a link over time."""
STORED: tuple[type, ...] = (RateTrace, LimitedTrace, *background_rates.STORED)
"""The classes in a state, besides plain values."""


def course(usual: RateTrace | int | None, takings: tuple[Taking, ...]) -> Course | None:
    """Return the rate of a link over time, with what background flows take of it.

    Args:
        usual: its rate in bit/s, or the trace that this follows; None: it has no limit.

    Returns:
        None if the rate does not change by itself.
    """
    if takings:
        return RestOfRate(usual, takings)
    return LimitedTrace.of(usual) if isinstance(usual, RateTrace) else None

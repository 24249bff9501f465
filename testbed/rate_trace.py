"""The rate of one direction of a link over time: steps, at each of which the rate changes.

Steps are numbered from 0 at the start of training, and go on from the first rate after the last one
where the trace repeats. A clock walks over the numbers, so that no step is missed or passed twice by
rounding.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self


@dataclass(frozen=True, slots=True)
class RateTrace:
    """A rate that changes.

    Attributes:
        times: when each rate begins, in seconds of training; the first is 0, and they increase.
        rates: in bit/s; 0: nothing passes.
        period: seconds after which the trace begins again, later than the last time; None: the last
            rate holds for good, and is not 0.
        spread: True if devices begin at places that are evenly spread over the period.
    """

    times: Sequence[float]
    rates: Sequence[int]
    period: float | None = None
    spread: bool = False

    @classmethod
    def of(
        cls,
        times: Sequence[float],
        rates: Sequence[int],
        period: float | None,
        *,
        spread: bool = False,
    ) -> Self:
        """Make a trace; steps that change nothing are left out.

        Raises:
            ValueError: the values are no such trace; the message is a sentence for a person.
        """
        if not times or len(times) != len(rates):
            raise ValueError("has no rate, or not one for each time")
        if times[0] != 0:
            raise ValueError(f"begins at {times[0]:g} s: give the rate from the time 0 on")
        for before, after in pairwise(times):
            if not after > before:
                raise ValueError(
                    f"has the time {after:g} s after {before:g} s: times must increase"
                )
        if not any(rates):
            raise ValueError("has only rates of 0: nothing would ever pass; give it another rate")
        if period is None and rates[-1] == 0:
            raise ValueError(
                "ends with a rate of 0, and nothing would pass from then on: give it another rate at "
                "the end, or repeat it"
            )
        if period is not None and period <= times[-1]:
            raise ValueError(
                f"repeats after {period:g} s, and its last rate begins at {times[-1]:g} s: repeat it "
                "later"
            )
        kept = [i for i in range(len(times)) if i == 0 or rates[i] != rates[i - 1]]
        return cls([times[i] for i in kept], [rates[i] for i in kept], period, spread)

    def begin(self, step: int) -> float:
        """Return when a step begins, in seconds; infinite after the last step of all."""
        turn, place = divmod(step, len(self.times))
        if self.period is not None:
            return turn * self.period + self.times[place]
        return self.times[place] if turn == 0 else math.inf

    def rate(self, step: int) -> int:
        """Return the rate of a step in bit/s."""
        return self.rates[step % len(self.rates)]

    def step_at(self, time: float) -> int:
        """Return the number of the step at a time, 0 or later; where two meet, that of the later."""
        turn = 0 if self.period is None else int(time // self.period)
        within = time if self.period is None else time - turn * self.period
        step = max(0, turn * len(self.times) + bisect_right(self.times, within) - 1)
        # What is left of a division may be off by a rounding.
        while self.begin(step + 1) <= time:
            step += 1
        while step and self.begin(step) > time:
            step -= 1
        return step

    def of_device(self, number: int, devices: int) -> Self:
        """Return the trace of one of so many devices, from its place on."""
        if self.period is None or not (self.spread and number):
            return self
        by = self.period * number / devices
        first = bisect_right(self.times, by) - 1
        after = [(time - by, rate) for time, rate in self._pairs[first + 1 :]]
        before = [(time + self.period - by, rate) for time, rate in self._pairs[: first + 1]]
        steps = [(0.0, self.rates[first]), *after, *before]
        steps = [one for one in steps if one[0] < self.period]
        return type(self).of([time for time, _ in steps], [rate for _, rate in steps], self.period)

    @property
    def first(self) -> int:
        """The first rate above 0, in bit/s."""
        return next(rate for rate in self.rates if rate)

    @property
    def mean(self) -> float:
        """The mean rate in bit/s over a period; in the long run the last rate where nothing repeats."""
        if self.period is None:
            return float(self.rates[-1])
        ends = [*self.times[1:], self.period]
        bits = sum(
            rate * (end - begin)
            for begin, end, rate in zip(self.times, ends, self.rates, strict=True)
        )
        return bits / self.period

    @property
    def _pairs(self) -> list[tuple[float, int]]:
        return list(zip(self.times, self.rates, strict=True))

"""Claims of DBW's paper, compared seed by seed.

A claim about an order holds if it holds with most of the seeds that all of its lines have, and their
number is told. A claim about a factor holds if the median factor over the seeds is the paper's, up or
down to ``FACTOR`` times.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reproduction.claims import Verdict
from reproduction.measures import Lines, Target, common
from testbed.quantities import as_duration

FACTOR = 1.5
"""The most by which a measured factor may differ from the paper's, in both directions."""
_FEWEST = 3
"""The fewest settings among which one can be the best."""
_ALMOST = 1.05
"""A line is at least as fast as another if it takes at most this many times as long."""


def _mean(values: Mapping[int, float]) -> str:
    """Return the mean over seeds as a duration."""
    mean = float(np.mean(list(values.values())))
    return as_duration(mean) if math.isfinite(mean) else "not reached"


def _verdict(text: str, each: list[bool], measured: str) -> Verdict:
    return Verdict(
        text, sum(each) > len(each) / 2, f"{measured}; in {sum(each)} of {len(each)} seeds"
    )


Seconds: TypeAlias = dict[int, float]
"""By seed, the seconds to a target."""


def _beside_fastest(
    lines: Lines, fast: str, others: Sequence[str], target: Target
) -> tuple[Seconds, Seconds] | None:
    """Return a line's seconds to a target, and those of the fastest other line with the same seed.

    The seeds are those that the line and all others with runs have; None if there are none.
    """
    there = [name for name in others if lines[name].runs]
    ours, *theirs = common(*(lines[name].seconds_to(target) for name in (fast, *there)))
    if not theirs or not ours:
        return None
    return ours, {seed: min(one[seed] for one in theirs) for seed in ours}


@dataclass(frozen=True, slots=True)
class BestStatic:
    """The static k of a group that is the fastest.

    Attributes:
        k: the paper's.
        names: of the static lines, by k.
        where: the rest of the claim.
    """

    k: int
    names: Mapping[int, str]
    target: Target
    where: str

    def check(self, lines: Lines) -> Verdict:
        """Find the fastest with each seed, of the k that have runs, which are three at least."""
        there = {k: name for k, name in sorted(self.names.items()) if lines[name].runs}
        among = ", ".join(map(str, there or sorted(self.names)))
        text = f"{self.where}: of the static k ({among}) {self.k} is the fastest to {self.target}"
        if self.k not in there or len(there) < _FEWEST:
            return Verdict(text)
        times = common(*(lines[name].seconds_to(self.target) for name in there.values()))
        if not times[0]:
            return Verdict(text)
        best = [
            min(zip(there, times, strict=True), key=lambda one: one[1][seed])[0]
            for seed in times[0]
        ]
        of_each = ", ".join(f"{k}: {_mean(one)}" for k, one in zip(there, times, strict=True))
        return _verdict(text, [k == self.k for k in best], of_each)


@dataclass(frozen=True, slots=True)
class AtLeastAsFast:
    """A line reaches a target no later than each of others; 5 % count as nothing."""

    fast: str
    others: tuple[str, ...]
    target: Target
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare with the fastest of the others that have runs, on the seeds that all of them have."""
        found = _beside_fastest(lines, self.fast, self.others, self.target)
        if found is None:
            return Verdict(self.text)
        ours, fastest = found
        each = [
            math.isfinite(ours[seed]) and ours[seed] <= _ALMOST * fastest[seed] for seed in ours
        ]
        return _verdict(self.text, each, f"{_mean(ours)}, the fastest other {_mean(fastest)}")


@dataclass(frozen=True, slots=True)
class TimesFaster:
    """A line reaches a target several times faster than the fastest of others.

    Attributes:
        factor: the paper's.
    """

    fast: str
    others: tuple[str, ...]
    target: Target
    factor: float
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the median over the seeds with the paper's factor, two-sided."""
        found = _beside_fastest(lines, self.fast, self.others, self.target)
        if found is None:
            return Verdict(self.text)
        ours, fastest = found
        ratios = [fastest[seed] / ours[seed] for seed in ours]
        if not all(map(math.isfinite, ratios)):
            return Verdict(self.text, False, "not reached")
        median = float(np.median(ratios))
        holds = 1 / FACTOR <= median / self.factor <= FACTOR
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return Verdict(self.text, holds, f"{median:.2f} times (by seed: {each})")


@dataclass(frozen=True, slots=True)
class WithinTime:
    """A measure's mean between two moments is within bounds.

    Attributes:
        start, end: of the time, in seconds, or as shares of the run if ``shares``.
        low, high: the bounds.
    """

    name: str
    measure: str
    start: float
    end: float
    low: float
    high: float
    text: str
    shares: bool = False

    def check(self, lines: Lines) -> Verdict:
        """Compare the mean with each seed."""
        line = lines[self.name]
        length = 1.0
        if self.shares and line.runs:
            length = float(np.mean([run.evaluations.time[-1] for run in line.runs]))
        found = line.within(self.measure, self.start * length, self.end * length)
        if not found:
            return Verdict(self.text)
        each = [self.low <= value <= self.high for value in found.values()]
        means = ", ".join(f"{value:.1f}" for value in found.values())
        return _verdict(self.text, each, f"{self.measure} {means}")


@dataclass(frozen=True, slots=True)
class Follows:
    """An estimate follows an exact value: the median of their ratio is 1, up or down to ``FACTOR``."""

    name: str
    estimate: str
    exact: str
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare at the evaluated versions, each with the estimate for the update after it."""
        medians = []
        for run in lines[self.name].runs:
            exact = run.evaluations.exact.get(self.exact)
            estimates = run.diagnostics.values.get(self.estimate)
            if exact is None or estimates is None:
                continue
            at = np.interp(
                run.evaluations.iteration + 1, run.diagnostics.iteration, estimates, right=np.nan
            )
            ratios = at / exact
            if len(known := ratios[np.isfinite(ratios)]):
                medians.append(float(np.median(known)))
        if not medians:
            return Verdict(self.text)
        each = [1 / FACTOR <= median <= FACTOR for median in medians]
        return _verdict(self.text, each, "ratio " + ", ".join(f"{one:.2f}" for one in medians))

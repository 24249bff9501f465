"""Claims of DBW's paper beside ``reproduction.races``, compared seed by seed as those are."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reproduction.claims import Verdict
from reproduction.measures import Lines, Target, common
from reproduction.races import FACTOR, mean_seconds, of_most_seeds

_FEWEST = 3
"""The fewest settings among which one can be the best."""


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
        of_each = ", ".join(
            f"{k}: {mean_seconds(one)}" for k, one in zip(there, times, strict=True)
        )
        return of_most_seeds(text, [k == self.k for k in best], of_each)


@dataclass(frozen=True, slots=True)
class Outweighs:
    """The mean of one exact value over a run is at least so many times that of another.

    Attributes:
        greater, lesser: names of exact values.
    """

    name: str
    greater: str
    lesser: str
    times: float
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare with each seed."""
        ratios = [
            float(np.nanmean(exact[self.greater]) / np.nanmean(exact[self.lesser]))
            for run in lines[self.name].runs
            if {self.greater, self.lesser} <= set(exact := run.evaluations.exact)
        ]
        if not ratios:
            return Verdict(self.text)
        told = "ratio " + ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return of_most_seeds(self.text, [ratio >= self.times for ratio in ratios], told)


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
        return of_most_seeds(self.text, each, f"{self.measure} {means}")


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
        return of_most_seeds(self.text, each, "ratio " + ", ".join(f"{one:.2f}" for one in medians))

"""Claims of DBW's paper beside ``reproduction.races``, compared seed by seed as those are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from reproduction.claims import Verdict, decided, told_of
from reproduction.measures import Lines, Target
from reproduction.races import FACTOR
from reproduction.significance import Sample, duration, ratio

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
        found = {k: duration(lines[name], self.target) for k, name in there.items()}
        seeds = set.intersection(*(set(one.values) for one in found.values()))
        if not seeds:
            return Verdict(text)
        times = {k: one.of(seeds) for k, one in found.items()}
        told = ", ".join(f"{k}: {told_of(one)}" for k, one in times.items())
        best = times[self.k]
        others = [ratio(one, best).times(1) for k, one in times.items() if k != self.k]
        return decided(text, others, told, self.k)


@dataclass(frozen=True, slots=True)
class Similar:
    """Two lines take about as long to a target: the quotient is 1, up or down to ``FACTOR``."""

    one: str
    other: str
    target: Target
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare on the seeds that both have."""
        both = [duration(lines[name], self.target) for name in (self.one, self.other)]
        seeds = both[0].values.keys() & both[1].values.keys()
        if not seeds:
            return Verdict(self.text)
        one, other = (sample.of(seeds) for sample in both)
        interval = ratio(one, other).times(1 / FACTOR, FACTOR)
        told = f"{told_of(one)} and {told_of(other)}: {interval.value:.2f} times"
        return decided(self.text, [interval], told, 1.0)


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
        ratios = {
            run.seed: float(np.nanmean(exact[self.greater]) / np.nanmean(exact[self.lesser]))
            for run in lines[self.name].runs
            if {self.greater, self.lesser} <= set(exact := run.evaluations.exact)
        }
        if not ratios:
            return Verdict(self.text)
        told = "ratio " + ", ".join(f"{one:.2f}" for one in ratios.values())
        return decided(self.text, [Sample(ratios).logs().times(self.times)], told)


@dataclass(frozen=True, slots=True)
class WithinTime:
    """A measure's mean between two moments is within bounds.

    Attributes:
        start, end: of the time, in seconds, or as shares of each run if ``shares``.
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
        line, found = lines[self.name], dict[int, float]()
        for run in line.runs:
            length = float(run.evaluations.time[-1]) if self.shares else 1.0
            moments = self.start * length, self.end * length
            found |= replace(line, runs=(run,)).within(self.measure, *moments)
        if not found:
            return Verdict(self.text)
        means = ", ".join(f"{value:.1f}" for value in found.values())
        interval = Sample(found).between(self.low, self.high, "")
        return decided(self.text, [interval], f"{self.measure} {means}")


@dataclass(frozen=True, slots=True)
class Follows:
    """An estimate follows an exact value: the median of their ratio is 1, up or down to ``FACTOR``."""

    name: str
    estimate: str
    exact: str
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare at the evaluated versions, each with the estimate for the update after it."""
        medians = {}
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
                medians[run.seed] = float(np.median(known))
        if not medians:
            return Verdict(self.text)
        told = "ratio " + ", ".join(f"{one:.2f}" for one in medians.values())
        return decided(self.text, [Sample(medians).logs().times(1 / FACTOR, FACTOR)], told, 1.0)

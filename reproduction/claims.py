"""Kinds of claims that a paper makes about its results, compared with ours by ``significance``'s rule.

Lines are compared only on the seeds that all of them have run: over different seeds, chance would be
compared as well. A claim that only one paper makes is a class of its own beside that paper's parts.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reproduction.measures import Line, Lines, Target, common
from reproduction.significance import (
    Decision,
    Interval,
    Sample,
    accuracy,
    all_of,
    at_chance,
    ratio,
    until,
)
from testbed.number_text import as_bytes, as_count, as_duration


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what became of it.

    Attributes:
        text: the claim.
        decision: what became of it; not measured if runs are missing.
        measured: the numbers that it is about.
        decisive: of its comparisons the one that decides it; None if there is none.
        published: the paper's number, if the claim is about one.
    """

    text: str
    decision: Decision = Decision.UNKNOWN
    measured: str = ""
    decisive: Interval | None = None
    published: float | None = None


def decided(
    text: str, comparisons: Sequence[Interval], measured: str, published: float | None = None
) -> Verdict:
    """Return the verdict on a claim of one comparison or several, which all have to hold."""
    decision = all_of(one.decision for one in comparisons)
    worst = [one for one in comparisons if one.decision is decision]
    return Verdict(text, decision, measured, min(worst, key=lambda one: one.margin), published)


def of_order(
    text: str, samples: Sequence[Sample], comparisons: Sequence[Interval], measured: str
) -> Verdict:
    """Return the verdict on an order of accuracies; lines that have learnt nothing have none."""
    if at_chance(samples):
        return Verdict(text, measured=f"{measured}; not compared: with a seed all are at chance")
    return decided(text, comparisons, measured)


class Claim(Protocol):
    """A statement of a paper, or a requirement of its reproduction."""

    def check(self, lines: Lines) -> Verdict:
        """Compare it with the lines of its part."""


@dataclass(frozen=True, slots=True)
class Exceeds:
    """A measure of one line, such as its greatest accuracy, is greater than another line's.

    Attributes:
        greater, lesser: names of lines.
        measure: from a line to its value for each seed.
        says: the claim in words, between the titles of the two lines.
        unit: that of the measure; points are of accuracy.
    """

    greater: str
    lesser: str
    measure: Callable[[Line], dict[int, float]] = Line.greatest
    says: str = "ends above"
    unit: str = "points"

    def check(self, lines: Lines) -> Verdict:
        """Compare the two over the seeds that both lines have."""
        greater, lesser = lines[self.greater], lines[self.lesser]
        text = f"{greater.series.title} {self.says} {lesser.series.title}"
        a, b = samples((greater, lesser), self.measure, self.unit)
        if not a:
            return Verdict(text)
        seeds = sum(a.values[seed] > b.values[seed] for seed in a.values)
        told = f"{a.mean:.2f} and {b.mean:.2f}; in {seeds} of {len(a.values)} seeds"
        return of_order(text, (a, b), [(a - b).between(0, unit=self.unit)], told)


def samples(
    lines: Sequence[Line], measure: Callable[[Line], Mapping[int, float]], unit: str = "points"
) -> list[Sample]:
    """Return a measure of lines on the seeds that all have; points are accuracies, with errors."""
    values = common(*map(measure, lines))
    if unit != "points":
        return [Sample(one) for one in values]
    return [accuracy(line, one) for line, one in zip(lines, values, strict=True)]


def descending(*names: str) -> tuple[Exceeds, ...]:
    """Return the claims that each of the lines ends above the next."""
    return tuple(Exceeds(a, b) for a, b in itertools.pairwise(names))


@dataclass(frozen=True, slots=True)
class Within:
    """A line ends at most some points below another one; it may end above.

    Attributes:
        says: the claim in words.
        points: points of accuracy.
        measure: accuracies in place of the last.
    """

    name: str
    other: str
    points: float
    says: str
    measure: Callable[[Line], dict[int, float]] = Line.last

    def check(self, lines: Lines) -> Verdict:
        """Compare the two on the seeds that both have."""
        ours, theirs = samples((lines[self.name], lines[self.other]), self.measure)
        if not ours:
            return Verdict(self.says)
        told = f"{ours.mean:.2f} and {theirs.mean:.2f}"
        return of_order(self.says, (ours, theirs), [(ours - theirs).between(-self.points)], told)


@dataclass(frozen=True, slots=True)
class Near:
    """The greatest accuracy of a line, or its last, is the paper's, up to some points.

    It must be neither worse nor better: that a line does badly is also a result of a paper.
    """

    name: str
    accuracy: float
    within: float
    measure: Callable[[Line], dict[int, float]] = Line.greatest

    def check(self, lines: Lines) -> Verdict:
        """Compare the mean over all seeds with the paper's number."""
        line, paper = lines[self.name], self.accuracy
        text = (
            f"{line.series.title}: within {self.within:g} points of {paper:.2f} %, above or below"
        )
        if not (ours := accuracy(line, self.measure(line))):
            return Verdict(text)
        interval = ours.between(paper - self.within, paper + self.within, "%")
        return decided(text, [interval], f"{ours.mean:.2f} % ({ours.mean - paper:+.2f})", paper)


@dataclass(frozen=True, slots=True)
class FallsShort:
    """The greatest accuracy of a line is less than a target."""

    name: str
    target: Target

    def check(self, lines: Lines) -> Verdict:
        """Compare the mean over all seeds with the target."""
        line, goal = lines[self.name], self.target.value
        text = f"{line.series.title} does not reach {self.target}"
        if not (ours := accuracy(line, line.greatest())):
            return Verdict(text)
        found = line.attempts(self.target)
        told = f"{ours.mean:.2f} %; {found.reached} of {found.runs} runs reach it"
        return decided(text, [ours.between(most=goal, unit="%")], told, goal)


@dataclass(frozen=True, slots=True)
class Cheaper:
    """One line reaches a target at a fraction of what another spends.

    Attributes:
        text: the claim in words.
        cost: one of ``measures.COSTS``.
        times: the least ratio of the two costs.
        window: evaluations in the moving average that has to reach the target.
    """

    text: str
    cheap: str
    dear: str
    target: Target
    cost: str
    times: float = 1.0
    window: int = 1

    def check(self, lines: Lines) -> Verdict:
        """Compare the costs; a run that misses the target costs all that it has spent, or more."""
        theirs, ours = (self._costs(lines[name]) for name in (self.dear, self.cheap))
        seeds = set(theirs.values) & set(ours.values)
        if seeds <= theirs.above & ours.above:
            return Verdict(self.text)
        theirs, ours = theirs.of(seeds), ours.of(seeds)
        interval = ratio(theirs, ours).times(self.times)
        least = "at least " * bool(theirs.above & seeds and not ours.above & seeds)
        times = f"{least}{interval.value:,.{0 if interval.value >= 10 else 1}f} times"
        told = f"{told_of(theirs, self.cost)} and {told_of(ours, self.cost)}: {times}"
        return decided(self.text, [interval], told, self.times)

    def _costs(self, line: Line) -> Sample:
        reached = line.reaching(self.target, self.window)
        ends = {run.seed: float(getattr(run.evaluations, self.cost)[-1]) for run in line.runs}
        costs = {s: reached[s].cost(self.cost) if s in reached else math.inf for s in ends}
        return until(costs, ends)


def told_of(sample: Sample, cost: str = "time") -> str:
    """Return the mean of what it costs to reach a target, or how many seeds do not reach it."""
    known = {seed: v for seed, v in sample.values.items() if seed not in sample.above}
    if not known:
        return "not reached"
    few = f" with {len(known)} of {len(sample.values)} seeds" * (len(known) < len(sample.values))
    return as_cost(mean(known), cost) + few


def mean(values: dict[int, float]) -> float:
    """Return the mean over seeds."""
    return float(np.mean(list(values.values())))


def as_cost(value: float | None, cost: str) -> str:
    """Return a cost in its unit."""
    if cost == "time":
        return as_duration(value)
    if cost == "iteration":
        return as_count(None if value is None else round(value))
    return as_bytes(value)

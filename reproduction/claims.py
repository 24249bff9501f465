"""Kinds of claims that a paper makes about its results, checked mechanically against ours.

Lines are compared only on the seeds that all of them have run: over different seeds, chance would be
compared as well. An ordering is that of the means over these seeds; the number of seeds with which it
holds is given too. A claim that only one paper makes is a class of its own beside that paper's parts.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reproduction.measures import Line, Lines, Target, both_reaching, common
from testbed.number_text import as_bytes, as_count, as_duration


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what became of it.

    Attributes:
        text: the claim.
        holds: True if it holds here; None if runs are missing.
        measured: the numbers that decide it.
    """

    text: str
    holds: bool | None = None
    measured: str = ""

    def __str__(self) -> str:
        return {True: "holds", False: "**does not hold**", None: "not measured"}[self.holds]


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
        in_each_seed: True if it has to hold with every seed, and not only in the mean.
    """

    greater: str
    lesser: str
    measure: Callable[[Line], dict[int, float]] = Line.greatest
    says: str = "ends above"
    in_each_seed: bool = False

    def check(self, lines: Lines) -> Verdict:
        """Compare the two over the seeds that both lines have."""
        greater, lesser = lines[self.greater], lines[self.lesser]
        each = " with every seed" if self.in_each_seed else ""
        text = f"{greater.series.title} {self.says} {lesser.series.title}{each}"
        ours, theirs = common(self.measure(greater), self.measure(lesser))
        if not ours:
            return Verdict(text)
        a, b = (mean(values) for values in (ours, theirs))
        seeds = sum(ours[seed] > theirs[seed] for seed in ours)
        holds = seeds == len(ours) if self.in_each_seed else a > b
        return Verdict(
            text, holds, f"{a:.2f} and {b:.2f} ({a - b:+.2f}); in {seeds} of {len(ours)} seeds"
        )


def descending(*names: str) -> tuple[Exceeds, ...]:
    """Return the claims that each of the lines ends above the next."""
    return tuple(Exceeds(a, b) for a, b in itertools.pairwise(names))


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
        if not (finals := self.measure(line)):
            return Verdict(text)
        ours = mean(finals)
        return Verdict(
            text, abs(ours - paper) <= self.within, f"{ours:.2f} % ({ours - paper:+.2f})"
        )


@dataclass(frozen=True, slots=True)
class FallsShort:
    """No run of a line reaches a target."""

    name: str
    target: Target

    def check(self, lines: Lines) -> Verdict:
        """Count the runs that reach it."""
        line = lines[self.name]
        text = f"{line.series.title} does not reach {self.target}"
        found = line.attempts(self.target)
        if not found.runs:
            return Verdict(text)
        return Verdict(text, not found.reached, f"{found.reached} of {found.runs} runs reach it")


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
        """Compare the means over the seeds with which both lines reach it."""
        both = both_reaching(lines[self.dear], lines[self.cheap], self.target, self.window)
        if both is None:
            return Verdict(self.text)
        theirs, ours = (getattr(one, self.cost) for one in both)
        in_words = f"{as_cost(theirs, self.cost)} and {as_cost(ours, self.cost)}"
        ratio = theirs / ours
        return Verdict(
            self.text,
            ratio >= self.times,
            f"{in_words}: {ratio:,.{0 if ratio >= 10 else 1}f} times",
        )


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

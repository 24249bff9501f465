"""Claims about which line reaches a target first, compared seed by seed.

A claim about an order holds if it holds with most of the seeds that all of its lines have, and their
number is told. A claim about a factor holds if the median factor over the seeds is the paper's, up or
down to ``FACTOR`` times, and if the line is the faster one at all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reproduction.claims import Verdict
from reproduction.measures import Lines, Target, common
from testbed.number_text import as_duration

FACTOR = 1.5
"""The most by which a measured factor may differ from the paper's, in both directions."""
_ALMOST = 1.05
"""A line is at least as fast as another if it takes at most this many times as long."""
Seconds: TypeAlias = dict[int, float]
"""By seed, the seconds to a target."""


def mean_seconds(values: Mapping[int, float]) -> str:
    """Return the mean over seeds as a duration."""
    mean = float(np.mean(list(values.values())))
    return as_duration(mean) if math.isfinite(mean) else "not reached"


def of_most_seeds(text: str, each: Sequence[bool], measured: str) -> Verdict:
    """Return the verdict on a claim that has to hold with most of the seeds."""
    return Verdict(
        text, sum(each) > len(each) / 2, f"{measured}; in {sum(each)} of {len(each)} seeds"
    )


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
class AtLeastAsFast:
    """A line reaches a target no later than each of others; 5 % count as nothing.

    Attributes:
        times: it may take so many times as long.
    """

    fast: str
    others: tuple[str, ...]
    target: Target
    text: str
    times: float = _ALMOST

    def check(self, lines: Lines) -> Verdict:
        """Compare with the fastest of the others that have runs, on the seeds that all of them have."""
        found = _beside_fastest(lines, self.fast, self.others, self.target)
        if found is None:
            return Verdict(self.text)
        ours, fastest = found
        each = [
            math.isfinite(ours[seed]) and ours[seed] <= self.times * fastest[seed] for seed in ours
        ]
        measured = f"{mean_seconds(ours)}, the fastest other {mean_seconds(fastest)}"
        return of_most_seeds(self.text, each, measured)


@dataclass(frozen=True, slots=True)
class TimesFaster:
    """A line reaches a target several times faster than the fastest of others.

    Attributes:
        factor: the paper's.
        at_least: True if the paper gives a lower bound: any greater factor holds as well.
    """

    fast: str
    others: tuple[str, ...]
    target: Target
    factor: float
    text: str
    at_least: bool = False

    def check(self, lines: Lines) -> Verdict:
        """Compare the median over the seeds with the paper's factor, two-sided unless it is a bound."""
        found = _beside_fastest(lines, self.fast, self.others, self.target)
        if found is None:
            return Verdict(self.text)
        ours, fastest = found
        ratios = [fastest[seed] / ours[seed] for seed in ours if math.isfinite(ours[seed])]
        if len(ratios) < len(ours) or not (self.at_least or all(map(math.isfinite, ratios))):
            return Verdict(self.text, False, "not reached")
        median = float(np.median(ratios))
        low = median > 1 and median / self.factor >= (1 if self.at_least else 1 / FACTOR)
        holds = low and (self.at_least or median / self.factor <= FACTOR)
        if not math.isfinite(median):
            return Verdict(self.text, holds, f"{mean_seconds(ours)}, no other reaches it")
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        return Verdict(self.text, holds, f"{median:.2f} times (by seed: {each})")

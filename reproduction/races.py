"""Claims about which line reaches a target first, compared seed by seed.

What is compared are quotients of times, by their logarithms. A line may not have reached the target by
the end of its run: then its time is that of the end or more, and the interval is open on that side. A
claim about a factor holds if it is the paper's, up or down to ``FACTOR`` times, and if the line is the
faster one at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reproduction.claims import Verdict, decided, told_of
from reproduction.measures import Lines, Target
from reproduction.significance import Sample, duration, fastest, ratio

FACTOR = 1.5
"""The most by which a measured factor may differ from the paper's, in both directions."""
_ALMOST = 1.05
"""A line is at least as fast as another if it takes at most this many times as long."""


def _beside_others(
    lines: Lines, fast: str, others: Sequence[str], target: Target
) -> tuple[Sample, list[Sample]] | None:
    """Return a line's seconds to a target and those of others, of the seeds that all have, or None."""
    found = [duration(lines[name], target) for name in (fast, *others)]
    seeds = set.intersection(*(set(one.values) for one in found))
    if not seeds:
        return None
    ours, *theirs = (one.of(seeds) for one in found)
    return ours, theirs


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
        """Compare with each of the others, on the seeds that all of them have."""
        found = _beside_others(lines, self.fast, self.others, self.target)
        if found is None:
            return Verdict(self.text)
        ours, theirs = found
        comparisons = [ratio(one, ours).times(1 / self.times) for one in theirs]
        told = f"{told_of(ours)}, the fastest other {told_of(fastest(theirs))}"
        return decided(self.text, comparisons, told)


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
        """Compare with the fastest of the others by seed, two-sided unless the paper's is a bound."""
        found = _beside_others(lines, self.fast, self.others, self.target)
        if found is None:
            return Verdict(self.text)
        ours, theirs = found
        rival = fastest(theirs)
        least = self.factor if self.at_least else max(1, self.factor / FACTOR)
        most = math.inf if self.at_least else self.factor * FACTOR
        interval = ratio(rival, ours).times(least, most)
        open_ended = ours.above | rival.above | rival.below
        times = f"{interval.value:.2f} times" if not open_ended else "the quotient is open"
        told = f"{told_of(ours)} and {told_of(rival)}: {times}"
        return decided(self.text, [interval], told, self.factor)

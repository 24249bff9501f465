"""The rule by which a claim holds, does not hold, or is undecided: docs/reproduction/verdicts.md.

A claim is one comparison or several: a quantity, such as the difference of two accuracies, has to lie
between bounds. The quantity has an interval at 95 %. The comparison holds if the interval is inside the
bounds, it does not hold if the interval is outside, and otherwise it is undecided.

With several seeds the interval is Student's t of the quantity's values by seed, so that two lines are
compared pair by pair. With one seed it is that of the binomial error of the test images for an
accuracy; for anything else it is unbounded, since nothing is known of what another seed would give.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from scipy import special

from reproduction.measures import Line, Target
from reproduction.record import Record

LEVEL = 0.95
"""The level of every interval, two-sided."""
CHANCE = 15.0
"""Percent: a run below it has learnt nothing of ten classes."""
_TEST_IMAGES = dict.fromkeys(("mnist", "fashion-mnist", "cifar10", "cifar10-jpeg"), 10_000)
_TEST_IMAGES["digits"] = 355


class Decision(StrEnum):
    """The verdict on a claim; its value is the word in the pages and in the file of claims."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"
    UNKNOWN = "not measured"


def all_of(decisions: Iterable[Decision]) -> Decision:
    """Return what becomes of a claim that has several parts, which all have to hold."""
    found = set(decisions)
    if Decision.FAILS in found:
        return Decision.FAILS
    return Decision.UNDECIDED if Decision.UNDECIDED in found else Decision.HOLDS


def opposite(decision: Decision) -> Decision:
    """Return what becomes of the claim that another one does not hold."""
    other = {Decision.HOLDS: Decision.FAILS, Decision.FAILS: Decision.HOLDS}
    return other.get(decision, decision)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with its interval, and what it has to be.

    Attributes:
        value: the mean over the seeds.
        low, high: the interval; infinite where it is unbounded.
        seeds: the number of seeds.
        least, most: the bounds between which a claim says that it lies.
        unit: that of all of them.
    """

    value: float
    low: float
    high: float
    seeds: int
    least: float = -math.inf
    most: float = math.inf
    unit: str = "points"

    @property
    def decision(self) -> Decision:
        """The comparison of the interval with the bounds; on a bound, as with a tie, it is open."""
        if self.high < self.least or self.low > self.most:
            return Decision.FAILS
        above = self.least == -math.inf or self.low > self.least
        below = self.most == math.inf or self.high < self.most
        return Decision.HOLDS if above and below else Decision.UNDECIDED

    @property
    def margin(self) -> tuple[float, float]:
        """How far the interval, and then its mean, is inside the bounds; negative outside."""
        return self._inside(self.low, self.high), self._inside(self.value, self.value)

    def _inside(self, low: float, high: float) -> float:
        ends = [low - self.least] * math.isfinite(self.least)
        ends += [self.most - high] * math.isfinite(self.most)
        return min(ends, default=math.inf)


@dataclass(frozen=True, slots=True)
class Sample:
    """A quantity with a value for each seed.

    Attributes:
        values: by seed.
        errors: by seed the standard error of a value by itself; empty if none is known.
        grid: the step in which values are counted, as an accuracy is in test images.
        above, below: the seeds whose true value is more, or less, than the one that is given, as
            with a run that ended before it had reached a target.
    """

    values: Mapping[int, float]
    errors: Mapping[int, float] = field(default_factory=dict)
    grid: float = 0.0
    above: frozenset[int] = frozenset()
    below: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.values)

    def __sub__(self, other: "Sample") -> "Sample":
        """Return the differences of the seeds that both have; errors are independent."""
        seeds = sorted(set(self.values) & set(other.values))
        known = set(self.errors) & set(other.errors)
        return Sample(
            {seed: self.values[seed] - other.values[seed] for seed in seeds},
            {s: math.hypot(self.errors[s], other.errors[s]) for s in seeds if s in known},
            max(self.grid, other.grid),
            self.above | other.below,
            self.below | other.above,
        )

    def __neg__(self) -> "Sample":
        values = {seed: -value for seed, value in self.values.items()}
        return replace(self, values=values, above=self.below, below=self.above)

    def __add__(self, other: "Sample") -> "Sample":
        return self - -other

    def logs(self) -> "Sample":
        """Return the logarithms; they have no errors of their own."""
        return Sample(
            {seed: _log(value) for seed, value in self.values.items()},
            above=self.above,
            below=self.below,
        )

    def of(self, seeds: Iterable[int]) -> "Sample":
        """Return the values of some of the seeds."""
        return replace(self, values={seed: self.values[seed] for seed in sorted(seeds)})

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(list(self.values.values())))

    def between(
        self, least: float = -math.inf, most: float = math.inf, unit: str = "points"
    ) -> Interval:
        """Return the interval of the mean, to be compared with bounds; there is a seed at least."""
        values, count = list(self.values.values()), len(self.values)
        if not all(map(math.isfinite, values)):
            half = math.inf
        elif count == 1:
            error = next(iter(self.errors.values()), math.inf)
            half = float(special.ndtri((1 + LEVEL) / 2)) * error
        else:
            deviation = max(float(np.std(values, ddof=1)), self.grid)
            half = float(special.stdtrit(count - 1, (1 + LEVEL) / 2)) * deviation / math.sqrt(count)
        bounded = math.isfinite(half)
        low = self.mean - half if bounded and not self.below & set(self.values) else -math.inf
        high = self.mean + half if bounded and not self.above & set(self.values) else math.inf
        return Interval(self.mean, low, high, count, least, most, unit)

    def times(self, least: float = 0.0, most: float = math.inf) -> Interval:
        """Return the interval of a ratio whose logarithms this is; the mean is geometric."""
        found = self.between(_log(least), _log(most))
        value, low, high = (_exp(one) for one in (found.value, found.low, found.high))
        low = low or -math.inf  # unbounded, as the logarithm was
        return Interval(value, low, high, found.seeds, least or -math.inf, most, "times")


def accuracy(line: Line, values: Mapping[int, float]) -> Sample:
    """Return accuracies of a line's runs, percent, with the binomial errors of their test images."""
    images = {run.seed: _images(run) for run in line.runs}
    errors, grid = {}, 0.0
    for seed, value in values.items():
        if count := images[seed]:
            share = min(max(value / 100, 1 / count), 1 - 1 / count)
            errors[seed] = 100 * math.sqrt(share * (1 - share) / count)
            grid = max(grid, 100 / count)
    return Sample(values, errors, grid)


def _images(run: Record) -> int | None:
    """Return the number of images that a run's accuracy is of; None if that is not known."""
    return run.spec.evaluation.images or _TEST_IMAGES.get(str(run.spec.dataset.name))


def duration(line: Line, target: Target) -> Sample:
    """Return a line's seconds to a target, restricted to the length of its runs.

    A run that ends before it has reached the target has the seconds of its end, or more.
    """
    ends = {run.seed: float(run.evaluations.time[-1]) for run in line.runs}
    return until(line.seconds_to(target), ends)


def until(values: Mapping[int, float], ends: Mapping[int, float]) -> Sample:
    """Return what it takes to reach something: infinite values are those of the end, or more."""
    open_ended = frozenset(seed for seed, value in values.items() if math.isinf(value))
    found = {seed: ends[seed] if seed in open_ended else v for seed, v in values.items()}
    return Sample(found, above=open_ended)


def fastest(samples: Sequence[Sample]) -> Sample:
    """Return by seed the least of what several lines take.

    It is that of the lines that are there, or less if the run of another one ended before that. If none
    is there it is more than the shortest run.
    """
    seeds = set.intersection(*(set(one.values) for one in samples))
    values, above, below = {}, set(), set()
    for seed in sorted(seeds):
        there = [one.values[seed] for one in samples if seed not in one.above]
        ended = min((one.values[seed] for one in samples if seed in one.above), default=math.inf)
        values[seed] = min(there, default=ended)
        if not there:
            above.add(seed)
        elif ended < values[seed]:
            below.add(seed)
    return Sample(values, above=frozenset(above), below=frozenset(below))


def ratio(a: Sample, b: Sample) -> Sample:
    """Return the logarithms of a ÷ b, for ``Sample.times``."""
    return a.logs() - b.logs()


def at_chance(samples: Sequence[Sample]) -> bool:
    """Return True if with one of the seeds no line of accuracies has learnt anything.

    Such lines are not compared: their order is that of noise.
    """
    seeds = set.intersection(*(set(one.values) for one in samples))
    counted = all(one.grid for one in samples)
    return counted and any(all(one.values[s] < CHANCE for one in samples) for s in seeds)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf  # of infinity: infinity


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf

"""Claims of Ako's paper beside ``reproduction.races``, compared seed by seed.

Figures 2, 3, 9 and 12 compare accuracies at one moment: they are interpolated there between two
evaluations. An order has to hold with every seed that all of its lines have.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reproduction.claims import Verdict, mean
from reproduction.measures import Line, Lines, Target, common
from reproduction.papers.ako.scales import MODEL, as_rate, mean_time
from reproduction.races import mean_seconds
from testbed.experiment.spec import Spec
from testbed.number_text import as_number

Measure: TypeAlias = Callable[[Line], dict[int, float]]
_TRAINING = ("worker", "peer")
"""The parts that compute gradients."""
IMAGES = 60_000
"""Training images of MNIST and of Fashion-MNIST: those of an epoch of all devices together."""
ERROR = 1.0
"""Points of accuracy: the standard error of 2,000 test images, of which 72 % are right."""
TIMES = 1.5
"""The most by which a measured factor may differ from the paper's, in both directions."""


def at(seconds: float, fewest: float = 0.9) -> Measure:
    """Return the measure of accuracy, percent, at a moment.

    A run that ends earlier has its last accuracy, unless it ended before ``fewest`` of the time.
    """

    def measure(line: Line) -> dict[int, float]:
        found = {}
        for run in line.runs:
            time = run.evaluations.time
            if time[-1] >= fewest * seconds:
                found[run.seed] = float(np.interp(seconds, time, run.evaluations.accuracy))
        return found

    return measure


def epochs_to(target: Target) -> Measure:
    """Return the measure of epochs to a target; infinite if the run does not reach it."""

    def measure(line: Line) -> dict[int, float]:
        reached = line.reaching(target)
        return {
            run.seed: reached[run.seed].iteration * run.spec.training.batch_size / IMAGES
            if run.seed in reached
            else math.inf
            for run in line.runs
        }

    return measure


def epochs_in_all(line: Line) -> dict[int, float]:
    """Return by seed the epochs of all devices together by the last evaluation."""
    return {
        run.seed: int(run.evaluations.iteration[-1]) * run.spec.training.batch_size / IMAGES
        for run in line.runs
    }


def epoch_seconds(line: Line) -> dict[int, float]:
    """Return by seed the seconds in which all devices together compute an epoch's gradients."""
    return {
        run.seed: float(run.evaluations.time[-1] / run.evaluations.iteration[-1])
        * IMAGES
        / run.spec.training.batch_size
        for run in line.runs
    }


def updates_per_second(line: Line) -> dict[int, float]:
    """Return by seed the updates of all devices in a second of the run's clock."""
    return {
        run.seed: float(run.evaluations.iteration[-1] / run.evaluations.time[-1])
        for run in line.runs
    }


def processors(line: Line) -> dict[int, float]:
    """Return by seed how many percent of the time the devices that train compute gradients."""
    found = {}
    for run in line.runs:
        parts = [use for part, use in run.result.use.items() if part in _TRAINING and use.cpu]
        if parts:
            found[run.seed] = 100 * float(np.mean([use.cpu.mean for use in parts if use.cpu]))
    return found


def use_of_links(line: Line) -> dict[int, float]:
    """Return by seed how many percent of their rates all uplinks carry, in the mean of all devices."""
    found = {}
    for run in line.runs:
        shares = [(use.devices, use.uplink.mean) for use in run.result.use.values() if use.uplink]
        if shares:
            count, mean_share = zip(*shares, strict=True)
            found[run.seed] = 100 * float(np.average(mean_share, weights=count))
    return found


def computing_seconds(line: Line) -> dict[int, float]:
    """Return by seed how many of ``epoch_seconds`` a device computes."""
    return {
        run.seed: mean_time(run.spec)
        * IMAGES
        / (run.spec.training.batch_size * run.spec.devices.workers)
        for run in line.runs
    }


def synchronising_seconds(line: Line) -> dict[int, float]:
    """Return by seed how many of ``epoch_seconds`` a device does not compute."""
    computing = computing_seconds(line)
    return {seed: value - computing[seed] for seed, value in epoch_seconds(line).items()}


def bandwidth(line: Line) -> dict[int, float]:
    """Return by seed the Mbit/s of payload that a peer receives, in the mean of all peers."""
    return {
        run.seed: 8e-6
        * float(run.evaluations.payload_bytes[-1] / run.evaluations.time[-1])
        / run.spec.devices.workers
        for run in line.runs
    }


def predicted(spec: Spec, p: float) -> float:
    """Return γ·m·(n − 1)/p, the Mbit/s that equation (3) makes of p partitions."""
    return 8e-6 / mean_time(spec) * MODEL * (spec.devices.workers - 1) / p


def _told(values: Mapping[int, float], form: str) -> str:
    known = {seed: value for seed, value in values.items() if math.isfinite(value)}
    if not known:
        return "not reached"
    few = f" with {len(known)} of {len(values)} seeds" * (len(known) < len(values))
    return format(mean(known), form) + few


@dataclass(frozen=True, slots=True)
class Ascending:
    """The measures of lines are in an ascending order, with every seed.

    Attributes:
        names: from the line of the least value to that of the greatest.
        form: the format of a value.
        least: of a run whose value is infinite, as it has not come to it, what that value exceeds.
    """

    names: tuple[str, ...]
    measure: Measure
    text: str
    form: str = ".2f"
    least: Measure | None = None

    def check(self, lines: Lines) -> Verdict:
        """Compare neighbours with each seed that all lines have; runs may be too short to tell."""
        of_names = [lines[name] for name in self.names]
        values = common(*(self.measure(line) for line in of_names))
        if not values[0]:
            return Verdict(self.text)
        least = [self.least(line) for line in of_names] if self.least else values
        each = [
            _ascend(
                [(one[seed], at_least[seed]) for one, at_least in zip(values, least, strict=True)]
            )
            for seed in values[0]
        ]
        told = ", ".join(
            f"{line.series.title}: {_told(one, self.form)}"
            for line, one in zip(of_names, values, strict=True)
        )
        told += f"; in {each.count(True)} of {len(each)} seeds"
        if short := each.count(None):
            told += f", with {short} a run is too short to tell"
        return Verdict(self.text, _all(each), told)


def _ascend(values: Sequence[tuple[float, float]]) -> bool | None:
    """Return whether values ascend; None if that is not known.

    Args:
        values: each with what it is more than, where it is infinite.
    """
    found: list[bool | None] = []
    for (a, a_least), (b, b_least) in itertools.pairwise(values):
        if math.isfinite(a) and math.isfinite(b):
            found.append(a < b)
        elif math.isfinite(a):
            found.append(True if a <= b_least else None)
        else:
            found.append(False if b <= a_least else None)
    return _all(found)


def _all(found: Sequence[bool | None]) -> bool | None:
    """Return False if one is, else None if one is not known."""
    return False if False in found else None if None in found else True


@dataclass(frozen=True, slots=True)
class NoBetter:
    """None of the lines is more accurate than the first, up to two errors, with every seed."""

    names: tuple[str, ...]
    measure: Measure
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare each with the first, with each seed that all lines have."""
        text = f"{self.text}, up to {2 * ERROR:g} points"
        first, *others = common(*(self.measure(lines[name]) for name in self.names))
        if not first:
            return Verdict(text)
        each = [all(one[seed] <= first[seed] + 2 * ERROR for one in others) for seed in first]
        told = ", ".join(
            f"{lines[name].series.title}: {mean(one):.2f}"
            for name, one in zip(self.names, (first, *others), strict=True)
        )
        return Verdict(text, all(each), f"{told}; in {sum(each)} of {len(each)} seeds")


@dataclass(frozen=True, slots=True)
class Between:
    """A measure of a line is within bounds, with every seed."""

    name: str
    measure: Measure
    low: float
    high: float
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare each seed's value with the bounds."""
        values = self.measure(lines[self.name])
        if not values:
            return Verdict(self.text)
        each = [self.low <= value <= self.high for value in values.values()]
        told = ", ".join(f"{value:.1f}" for value in values.values())
        return Verdict(self.text, all(each), f"{told}; in {sum(each)} of {len(each)} seeds")


@dataclass(frozen=True, slots=True)
class OneIsFaster:
    """The fastest of some lines reaches a target before another line, with every seed."""

    names: tuple[str, ...]
    other: str
    target: Target
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the fastest with each seed that all lines have."""
        *several, other = common(
            *(lines[name].seconds_to(self.target) for name in (*self.names, self.other))
        )
        if not other:
            return Verdict(self.text)
        fastest = {seed: min(one[seed] for one in several) for seed in other}
        each = [fastest[seed] < other[seed] for seed in other]
        told = f"{mean_seconds(fastest)} and {mean_seconds(other)}"
        return Verdict(self.text, all(each), f"{told}; in {sum(each)} of {len(each)} seeds")


@dataclass(frozen=True, slots=True)
class BestOf:
    """Of a group of lines one has the greatest accuracy, with every seed.

    Attributes:
        best: the title within the group that the paper has.
        names: of the lines, by their titles within the group.
    """

    best: str
    names: Mapping[str, str]
    measure: Measure
    where: str

    def check(self, lines: Lines) -> Verdict:
        """Find the best with each seed that all of them have."""
        text = f"{self.where}: of {', '.join(self.names)} the best is {self.best}"
        text += f", up to {ERROR:g} point"
        values = common(*(self.measure(lines[name]) for name in self.names.values()))
        if not values[0]:
            return Verdict(text)
        each = [self.best in near_best(self.names, values, seed) for seed in values[0]]
        told = ", ".join(
            f"{title}: {mean(one):.2f}" for title, one in zip(self.names, values, strict=True)
        )
        return Verdict(text, all(each), f"{told}; in {sum(each)} of {len(each)} seeds")


def near_best(titles: Iterable[str], values: list[dict[int, float]], seed: int) -> set[str]:
    """Return the titles whose values are the greatest of a seed, up to ``ERROR``."""
    of_seed = {title: one[seed] for title, one in zip(titles, values, strict=True)}
    greatest = max(of_seed.values())
    return {title for title, value in of_seed.items() if value + ERROR >= greatest}


@dataclass(frozen=True, slots=True)
class BestChanges:
    """None of a group has the greatest accuracy in all groups, up to ``ERROR``, with every seed.

    Attributes:
        groups: by what differs between them the lines of each, by their titles within it.
    """

    groups: Mapping[str, Mapping[str, str]]
    measure: Measure
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the best of the groups with each seed that all lines have."""
        names = [name for group in self.groups.values() for name in group.values()]
        values = dict(zip(names, common(*(self.measure(lines[n]) for n in names)), strict=True))
        seeds = list(values[names[0]])
        if not seeds:
            return Verdict(self.text)
        best = {
            title: [near_best(group, [values[n] for n in group.values()], seed) for seed in seeds]
            for title, group in self.groups.items()
        }
        each = [not set.intersection(*of_seed) for of_seed in zip(*best.values(), strict=True)]
        told = "; ".join(
            f"{title}: {' or '.join(one for one in self.groups[title] if one in set.union(*found))}"
            for title, found in best.items()
        )
        return Verdict(self.text, all(each), f"{told}; in {sum(each)} of {len(each)} seeds")


@dataclass(frozen=True, slots=True)
class Factor:
    """The measure of one line is the paper's factor times another's, up or down to ``TIMES``.

    Attributes:
        factor: the paper's.
    """

    name: str
    other: str
    measure: Measure
    factor: float
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the median over the seeds that both have."""
        ours, theirs = common(*(self.measure(lines[name]) for name in (self.name, self.other)))
        if not ours:
            return Verdict(self.text)
        ratios = [ours[seed] / theirs[seed] for seed in ours]
        median = float(np.median(ratios))
        holds = 1 / TIMES <= median / self.factor <= TIMES
        told = f"{mean(ours):.2f} and {mean(theirs):.2f}: {median:.2f} times"
        return Verdict(self.text, holds, f"{told}; {as_number(len(ratios), 'seed')}")


@dataclass(frozen=True, slots=True)
class FollowsPrediction:
    """The bandwidth that partitions take is that of equation (3), up or down to a share.

    Attributes:
        names: of the lines, by p.
        within: the greatest share by which both may differ.
        exceeds: True for the p whose prediction is more than the link carries: there it must differ.
    """

    names: Mapping[float, str]
    within: float
    exceeds: bool

    def check(self, lines: Lines) -> Verdict:
        """Compare the p of the kind that is asked for, with every seed."""
        apart: dict[float, list[float]] = {}
        for p, name in self.names.items():
            for run in lines[name].runs:
                asked = predicted(run.spec, p)
                if (1e6 * asked > as_rate(run.spec)) == self.exceeds:
                    measured = bandwidth(lines[name])[run.seed]
                    apart.setdefault(p, []).append(measured / asked - 1)
        which = "more than the link carries" if self.exceeds else "at most what the link carries"
        says = "differs from it by more than" if self.exceeds else "is within"
        text = f"where the predicted usage is {which}, the measured one {says} {self.within:.0%}"
        text += "" if self.exceeds else " of it"
        if not apart:
            return Verdict(text)
        inside = [abs(one) <= self.within for found in apart.values() for one in found]
        told = ", ".join(f"p = {p}: {np.mean(found):+.0%}" for p, found in apart.items())
        return Verdict(text, not any(inside) if self.exceeds else all(inside), told)


@dataclass(frozen=True, slots=True)
class ComputesLonger:
    """The gradients of an epoch take one line longer to compute than another's whole epoch "
    "takes."""

    name: str
    other: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the two with each seed that both have."""
        line, other = lines[self.name], lines[self.other]
        text = f"{line.series.title} computes longer for an epoch than an epoch of "
        text += f"{other.series.title} takes"
        ours, theirs = common(computing_seconds(line), epoch_seconds(other))
        if not ours:
            return Verdict(text)
        each = [ours[seed] > theirs[seed] for seed in ours]
        told = f"{mean(ours):.1f} s and {mean(theirs):.1f} s; in {sum(each)} of {len(each)} seeds"
        return Verdict(text, all(each), told)

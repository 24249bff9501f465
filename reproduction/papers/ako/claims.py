"""Claims of Ako's paper beside ``reproduction.races``, compared seed by seed.

Figures 2, 3, 9 and 12 compare accuracies at one moment: they are interpolated there between two
evaluations.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reproduction.claims import Verdict, decided, of_order, samples, told_of
from reproduction.measures import Line, Lines, Target, common
from reproduction.papers.ako.scales import as_rate, mean_time, model_bytes
from reproduction.significance import (
    Sample,
    all_of,
    at_chance,
    duration,
    fastest,
    opposite,
    ratio,
    until,
)
from testbed.experiment.spec import Spec

Measure: TypeAlias = Callable[[Line], dict[int, float]]
_TRAINING = ("worker", "peer")
"""The parts that compute gradients."""
IMAGES = 60_000
"""Training images of MNIST and of Fashion-MNIST: those of an epoch of all devices together."""
SLACK = 1.0
"""Points of accuracy that count as nothing between allocations."""
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
        updates = line.spent_to(target, "iteration")
        return {
            run.seed: updates[run.seed] * run.spec.training.batch_size / IMAGES for run in line.runs
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


def computing_share(line: Line) -> dict[int, float]:
    """Return by seed how many percent of an epoch's seconds a device computes."""
    epoch = epoch_seconds(line)
    return {seed: 100 * value / epoch[seed] for seed, value in computing_seconds(line).items()}


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
    return 8e-6 / mean_time(spec) * model_bytes(spec) * (spec.devices.workers - 1) / p


def _told(sample: Sample, form: str) -> str:
    known = [value for seed, value in sample.values.items() if seed not in sample.above]
    if not known:
        return "not reached"
    few = f" with {len(known)} of {len(sample.values)} seeds" * (len(known) < len(sample.values))
    return format(float(np.mean(known)), form) + few


@dataclass(frozen=True, slots=True)
class Ascending:
    """The measures of lines are in an ascending order.

    Attributes:
        names: from the line of the least value to that of the greatest.
        form: the format of a value.
        unit: that of the measure; points are of accuracy.
        least: of a run whose value is infinite, as it has not come to it, what that value exceeds.
    """

    names: tuple[str, ...]
    measure: Measure
    text: str
    form: str = ".2f"
    unit: str = "points"
    least: Measure | None = None

    def check(self, lines: Lines) -> Verdict:
        """Compare neighbours on the seeds that all lines have."""
        of_names = [lines[name] for name in self.names]
        found = samples(of_names, self.measure, self.unit)
        if self.least:
            ends = map(self.least, of_names)
            found = [until(one.values, end) for one, end in zip(found, ends, strict=True)]
        if not found[0]:
            return Verdict(self.text)
        told = ", ".join(
            f"{line.series.title}: {_told(one, self.form)}"
            for line, one in zip(of_names, found, strict=True)
        )
        pairs = [(b - a).between(0, unit=self.unit) for a, b in itertools.pairwise(found)]
        return of_order(self.text, found, pairs, told)


@dataclass(frozen=True, slots=True)
class Between:
    """A measure of a line, in percent, is within bounds."""

    name: str
    measure: Measure
    text: str
    low: float = -math.inf
    high: float = math.inf

    def check(self, lines: Lines) -> Verdict:
        """Compare the mean over the seeds with the bounds."""
        values = self.measure(lines[self.name])
        if not values:
            return Verdict(self.text)
        told = ", ".join(f"{value:.1f}" for value in values.values())
        return decided(self.text, [Sample(values).between(self.low, self.high, "%")], told)


@dataclass(frozen=True, slots=True)
class OneIsFaster:
    """The fastest of some lines reaches a target before another line."""

    names: tuple[str, ...]
    other: str
    target: Target
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the fastest by seed, on the seeds that all lines have."""
        found = [duration(lines[name], self.target) for name in (*self.names, self.other)]
        seeds = set.intersection(*(set(one.values) for one in found))
        if not seeds:
            return Verdict(self.text)
        *several, other = (one.of(seeds) for one in found)
        first = fastest(several)
        told = f"{told_of(first)} and {told_of(other)}"
        return decided(self.text, [ratio(other, first).times(1)], told)


@dataclass(frozen=True, slots=True)
class BestOf:
    """Of a group of lines one has the greatest accuracy, up to ``SLACK``.

    Attributes:
        best: the title within the group that the paper has.
        names: of the lines, by their titles within the group.
    """

    best: str
    names: Mapping[str, str]
    measure: Measure
    where: str

    def check(self, lines: Lines) -> Verdict:
        """Compare it with each of the others, on the seeds that all of them have."""
        text = f"{self.where}: of {', '.join(self.names)} the best is {self.best}"
        text += f", up to {SLACK:g} point"
        of_names = [lines[name] for name in self.names.values()]
        found = dict(zip(self.names, samples(of_names, self.measure), strict=True))
        if not found[self.best]:
            return Verdict(text)
        told = ", ".join(f"{title}: {one.mean:.2f}" for title, one in found.items())
        rivals = [one for title, one in found.items() if title != self.best]
        comparisons = [(found[self.best] - one).between(-SLACK) for one in rivals]
        return of_order(text, list(found.values()), comparisons, told)


@dataclass(frozen=True, slots=True)
class BestChanges:
    """None of a group has the greatest accuracy in all groups, up to ``SLACK``.

    Attributes:
        groups: by what differs between them the lines of each, by their titles within it.
    """

    groups: Mapping[str, Mapping[str, str]]
    measure: Measure
    text: str

    def check(self, lines: Lines) -> Verdict:
        """Find out for each of a group whether it is best in all groups: none may be."""
        of_group = [
            dict(zip(group, samples([lines[n] for n in group.values()], self.measure), strict=True))
            for group in self.groups.values()
        ]
        seeds = [set(one.values) for found in of_group for one in found.values()]
        if not set.intersection(*seeds):
            return Verdict(self.text)
        told = "; ".join(
            f"{title}: {max(found, key=lambda one: found[one].mean)}"
            for title, found in zip(self.groups, of_group, strict=True)
        )
        if any(at_chance(list(found.values())) for found in of_group):
            told += "; not compared: with a seed all of a group are at chance"
            return Verdict(self.text, measured=f"the greatest mean has {told}")
        best_everywhere = [
            all_of(
                (found[title] - other).between(-SLACK).decision
                for found in of_group
                for name, other in found.items()
                if name != title
            )
            for title in of_group[0]
        ]
        decision = all_of(map(opposite, best_everywhere))
        return Verdict(self.text, decision, f"the greatest mean has {told}")


@dataclass(frozen=True, slots=True)
class Factor:
    """The measure of one line is the paper's factor times another's, up or down to ``TIMES``.

    Attributes:
        factor: the paper's.
        least: of a run whose value is infinite, as it has not come to it, what that value exceeds.
    """

    name: str
    other: str
    measure: Measure
    factor: float
    text: str
    least: Measure | None = None

    def check(self, lines: Lines) -> Verdict:
        """Compare the quotients of the seeds that both have."""
        both = lines[self.name], lines[self.other]
        found = common(*map(self.measure, both))
        if not found[0]:
            return Verdict(self.text)
        ends = map(self.least, both) if self.least else found
        ours, theirs = map(until, found, ends)
        interval = ratio(ours, theirs).times(self.factor / TIMES, self.factor * TIMES)
        told = f"{_told(ours, '.2f')} and {_told(theirs, '.2f')}"
        told += f": {interval.value:.2f} times" * (not ours.above | theirs.above)
        return decided(self.text, [interval], told, self.factor)


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
        which = "more than the link carries" if self.exceeds else "at most what the link carries"
        says = "is below it by more than" if self.exceeds else "is within"
        text = f"where the predicted usage is {which}, the measured one {says} {self.within:.0%}"
        text += "" if self.exceeds else " of it"
        apart: dict[float, Sample] = {}
        for p, name in self.names.items():
            line = lines[name]
            if line.runs:
                asked = predicted(line.runs[0].spec, p)
                if (1e6 * asked > as_rate(line.runs[0].spec)) == self.exceeds:
                    shares = {seed: used / asked - 1 for seed, used in bandwidth(line).items()}
                    apart[p] = Sample(shares)
        if not apart:
            return Verdict(text)
        least, most = (-math.inf, -self.within) if self.exceeds else (-self.within, self.within)
        told = ", ".join(f"p = {p}: {one.mean:+.0%}" for p, one in apart.items())
        return decided(text, [one.between(least, most, "") for one in apart.values()], told)


@dataclass(frozen=True, slots=True)
class ComputesLonger:
    """A line computes longer for an epoch than another's whole epoch takes."""

    name: str
    other: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the two with each seed that both have."""
        line, other = lines[self.name], lines[self.other]
        text = f"{line.series.title} computes longer for an epoch than an epoch of "
        text += f"{other.series.title} takes"
        ours, theirs = map(Sample, common(computing_seconds(line), epoch_seconds(other)))
        if not ours:
            return Verdict(text)
        told = f"{ours.mean:.1f} s and {theirs.mean:.1f} s"
        return decided(text, [(ours - theirs).between(0, unit="s")], told)

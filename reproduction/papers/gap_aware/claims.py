"""Claims that Gap-Aware's paper makes, of the values that runs end with."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from reproduction.claims import Verdict, decided, of_order, samples
from reproduction.measures import Line, Lines, common
from reproduction.significance import Sample, accuracy, ratio

Measure: TypeAlias = Callable[[Line], dict[int, float]]
SLACK = 0.5
"""Points that count as nothing where a paper says that systems are as good as each other."""


def perplexity(line: Line) -> dict[int, float]:
    """Return e to the power of each seed's last test loss; infinite where the loss is not finite."""
    return {
        seed: math.exp(loss) if loss < 700 else math.inf for seed, loss in line.last("loss").items()
    }


def over_training(line: Line) -> dict[int, float]:
    """Return the mean of each seed's accuracies over training, without that of its beginning."""
    return {run.seed: float(np.mean(run.evaluations.accuracy[1:])) for run in line.runs}


@dataclass(frozen=True, slots=True)
class Ends:
    """A line ends within bounds: a system learns, or collapses.

    Attributes:
        says: the claim in words, after the line's title.
        least, most: the bounds, percent.
    """

    name: str
    says: str
    least: float = -math.inf
    most: float = math.inf

    def check(self, lines: Lines) -> Verdict:
        """Compare the mean with the bounds."""
        line = lines[self.name]
        text = f"{line.series.title} {self.says}"
        if not (ours := accuracy(line, line.last())):
            return Verdict(text)
        told = ", ".join(f"{value:.2f}" for value in ours.values.values())
        return decided(text, [ours.between(self.least, self.most, "%")], told)


@dataclass(frozen=True, slots=True)
class Above:
    """One line ends above another one."""

    name: str
    other: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the two on the seeds that both have."""
        line, other = lines[self.name], lines[self.other]
        text = f"{line.series.title} ends above {other.series.title}"
        ours, theirs = samples((line, other), Line.last)
        if not ours:
            return Verdict(text)
        told = f"{ours.mean:.2f} and {theirs.mean:.2f}"
        return of_order(text, (ours, theirs), [(ours - theirs).between(0)], told)


@dataclass(frozen=True, slots=True)
class Best:
    """No other line ends above this one.

    Attributes:
        among: which lines these are, in words, where it is not all of a table.
        slack: points by which another one may end above it.
    """

    name: str
    others: tuple[str, ...]
    among: str = ""
    slack: float = 0.0

    def check(self, lines: Lines) -> Verdict:
        """Compare it with each of the others, on the seeds that all of them have."""
        rivals = [name for name in self.others if name != self.name]
        text = f"{lines[self.name].series.title} is best of {len(rivals) + 1}{self.among}"
        text += f", up to {self.slack:g} points" * bool(self.slack)
        ours, *theirs = samples([lines[name] for name in (self.name, *rivals)], Line.last)
        if not ours:
            return Verdict(text)
        means = {lines[r].series.title: one.mean for r, one in zip(rivals, theirs, strict=True)}
        first = max(means, key=lambda title: means[title])
        told = f"{ours.mean:.2f}; the best other, {first}, {means[first]:.2f}"
        comparisons = [(ours - one).between(-self.slack) for one in theirs]
        return of_order(text, (ours, *theirs), comparisons, told)


@dataclass(frozen=True, slots=True)
class LosesMost:
    """From few workers to many, one system loses more accuracy than any of some others.

    Attributes:
        label: the system.
        others: labels of the others.
        few, many: numbers of workers.
    """

    label: str
    others: tuple[str, ...]
    few: int
    many: int

    def check(self, lines: Lines) -> Verdict:
        """Compare the losses on the seeds that all lines have."""
        labels = (self.label, *self.others)
        titles = [lines[f"{one}-{self.few}"].series.title.partition(",")[0] for one in labels]
        text = (
            f"from N = {self.few} to {self.many} {titles[0]} loses more than "
            f"{', '.join(titles[1:])}"
        )
        names = [f"{one}-{n}" for one in labels for n in (self.few, self.many)]
        found = samples([lines[name] for name in names], Line.last)
        if not found[0]:
            return Verdict(text)
        losses = [few - many for few, many in zip(found[::2], found[1::2], strict=True)]
        ours, *theirs = losses
        told = ", ".join(f"{one.mean:.2f}" for one in losses)
        return of_order(text, found, [(ours - one).between(0) for one in theirs], f"{told} points")


@dataclass(frozen=True, slots=True)
class Times:
    """The measure of one line is at least, or at most, so many times another's."""

    name: str
    other: str
    says: str
    least: float = 0.0
    most: float = math.inf
    measure: Measure = perplexity

    def check(self, lines: Lines) -> Verdict:
        """Compare the two on the seeds that both have."""
        values = common(self.measure(lines[self.name]), self.measure(lines[self.other]))
        ours, theirs = map(Sample, values)
        if not ours:
            return Verdict(self.says)
        interval = ratio(ours, theirs).times(self.least, self.most)
        told = f"{ours.mean:.2f} and {theirs.mean:.2f} ({interval.value:.2f} times)"
        return decided(self.says, [interval], told)


@dataclass(frozen=True, slots=True)
class Falls:
    """A diagnostic is smaller in the last fifth of training than in the first."""

    name: str
    diagnostic: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the two fifths."""
        line = lines[self.name]
        text = f"{line.series.title}: the {self.diagnostic} falls over training"
        values = common(*(line.mean(self.diagnostic, part, 5) for part in (0, 4)))
        first, last = map(Sample, values)
        if not first:
            return Verdict(text)
        interval = (first - last).between(0, unit="")
        return decided(text, [interval], f"{first.mean:.2f} to {last.mean:.2f}")


@dataclass(frozen=True, slots=True)
class Below:
    """The mean of a diagnostic is below that of another one, or of another line.

    Attributes:
        name, diagnostic: of the smaller one.
        other, than: of the greater one.
    """

    name: str
    diagnostic: str
    other: str
    than: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the means over all of training."""
        line, other = lines[self.name], lines[self.other]
        text = f"{line.series.title}: the mean {self.diagnostic} is below "
        text += f"the {self.than}" if line is other else f"that of {other.series.title}"
        values = common(line.mean(self.diagnostic), other.mean(self.than))
        ours, theirs = map(Sample, values)
        if not ours:
            return Verdict(text)
        interval = (theirs - ours).between(0, unit="")
        return decided(text, [interval], f"{ours.mean:.2f} and {theirs.mean:.2f}")

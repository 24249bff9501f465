"""Claims that Gap-Aware's paper makes, of the values that runs end with."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from reproduction.claims import Verdict, mean
from reproduction.measures import Line, Lines, common

Measure: TypeAlias = Callable[[Line], dict[int, float]]
ERROR = 0.5
"""Points: the standard error of the difference of two accuracies of about 85 % on 10,000 images."""


def _with_every_seed(text: str, holds: Sequence[bool], measured: str) -> Verdict:
    """Return the verdict on a claim that has to hold with every seed."""
    return Verdict(text, all(holds), f"{measured}; {sum(holds)} of {len(holds)} seeds")


def _doubt(margin: float) -> str:
    """Return a remark on a difference of accuracies that is no greater than its error."""
    return ", a margin within the test's error" if abs(margin) <= ERROR else ""


def perplexity(line: Line) -> dict[int, float]:
    """Return e to the power of each seed's last test loss; infinite where the loss is not finite."""
    return {
        seed: math.exp(loss) if loss < 700 else math.inf for seed, loss in line.last("loss").items()
    }


@dataclass(frozen=True, slots=True)
class Ends:
    """Every run of a line ends within bounds: a system learns, or collapses.

    Attributes:
        says: the claim in words, after the line's title.
        least, most: the bounds, in the measure's unit.
    """

    name: str
    says: str
    least: float = -math.inf
    most: float = math.inf
    measure: Measure = Line.last

    def check(self, lines: Lines) -> Verdict:
        """Compare each seed's value with the bounds."""
        line = lines[self.name]
        text = f"{line.series.title} {self.says}"
        values = self.measure(line)
        if not values:
            return Verdict(text)
        inside = [self.least <= value <= self.most for value in values.values()]
        told = ", ".join(f"{value:.2f}" for value in values.values())
        return _with_every_seed(text, inside, told)


@dataclass(frozen=True, slots=True)
class Above:
    """With every seed one line ends above another one."""

    name: str
    other: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the two with each seed that both have."""
        line, other = lines[self.name], lines[self.other]
        text = f"{line.series.title} ends above {other.series.title}"
        ours, theirs = common(line.last(), other.last())
        if not ours:
            return Verdict(text)
        above = [ours[seed] > theirs[seed] for seed in ours]
        a, b = mean(ours), mean(theirs)
        return _with_every_seed(text, above, f"{a:.2f} and {b:.2f} ({a - b:+.2f}{_doubt(a - b)})")


@dataclass(frozen=True, slots=True)
class Within:
    """A line ends at most some points below another one, with every seed; it may end above.

    Attributes:
        says: the claim in words.
        points: points of accuracy.
    """

    name: str
    other: str
    points: float
    says: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the two with each seed that both have."""
        ours, theirs = common(lines[self.name].last(), lines[self.other].last())
        if not ours:
            return Verdict(self.says)
        near = [ours[seed] >= theirs[seed] - self.points for seed in ours]
        a, b = mean(ours), mean(theirs)
        return _with_every_seed(self.says, near, f"{a:.2f} and {b:.2f} ({a - b:+.2f})")


@dataclass(frozen=True, slots=True)
class Best:
    """With every seed, no other line ends above this one.

    Attributes:
        among: which lines these are, in words, where it is not all of a table.
        slack: points by which another one may end above it.
    """

    name: str
    others: tuple[str, ...]
    among: str = ""
    slack: float = 0.0

    def check(self, lines: Lines) -> Verdict:
        """Compare it with the best of the others, with the seeds that all of them have."""
        rivals = [name for name in self.others if name != self.name]
        text = f"{lines[self.name].series.title} is best of {len(rivals) + 1}{self.among}"
        text += f", up to {self.slack:g} points" * bool(self.slack)
        ours, *theirs = common(*(lines[name].last() for name in (self.name, *rivals)))
        if not ours:
            return Verdict(text)
        best = {seed: max(values[seed] for values in theirs) for seed in ours}
        won = [ours[seed] >= best[seed] - self.slack for seed in ours]
        means = {name: mean(values) for name, values in zip(rivals, theirs, strict=True)}
        first = max(means, key=lambda name: means[name])
        told = f"{mean(ours):.2f}; the best other, {lines[first].series.title}, {means[first]:.2f}"
        told += _doubt(mean(ours) - means[first])
        return _with_every_seed(text, won, told)


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
        """Compare the losses with each seed that all lines have."""
        labels = (self.label, *self.others)
        titles = [lines[f"{one}-{self.few}"].series.title.partition(",")[0] for one in labels]
        text = (
            f"from N = {self.few} to {self.many} {titles[0]} loses more than "
            f"{', '.join(titles[1:])}"
        )
        names = [f"{one}-{n}" for one in labels for n in (self.few, self.many)]
        values = common(*(lines[name].last() for name in names))
        if not values[0]:
            return Verdict(text)
        losses = [
            {seed: before[seed] - after[seed] for seed in before}
            for before, after in zip(values[::2], values[1::2], strict=True)
        ]
        ours, *theirs = losses
        most = [all(ours[seed] > other[seed] for other in theirs) for seed in ours]
        told = ", ".join(f"{mean(one):.2f}" for one in losses)
        doubt = _doubt(mean(ours) - max(mean(other) for other in theirs))
        return _with_every_seed(text, most, f"{told} points{doubt}")


@dataclass(frozen=True, slots=True)
class Times:
    """The measure of one line is at least, or at most, so many times another's, with every seed."""

    name: str
    other: str
    says: str
    least: float = 0.0
    most: float = math.inf
    measure: Measure = perplexity

    def check(self, lines: Lines) -> Verdict:
        """Compare the two with each seed that both have."""
        ours, theirs = common(self.measure(lines[self.name]), self.measure(lines[self.other]))
        if not ours:
            return Verdict(self.says)
        inside = [self.least <= ours[seed] / theirs[seed] <= self.most for seed in ours]
        a, b = mean(ours), mean(theirs)
        return _with_every_seed(self.says, inside, f"{a:.2f} and {b:.2f} ({a / b:.2f} times)")


@dataclass(frozen=True, slots=True)
class Falls:
    """With every seed a diagnostic is smaller in the last fifth of training than in the first."""

    name: str
    diagnostic: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the two fifths."""
        line = lines[self.name]
        text = f"{line.series.title}: the {self.diagnostic} falls over training"
        first, last = common(*(line.mean(self.diagnostic, part, 5) for part in (0, 4)))
        if not first:
            return Verdict(text)
        falls = [last[seed] < first[seed] for seed in first]
        return _with_every_seed(text, falls, f"{mean(first):.2f} to {mean(last):.2f}")


@dataclass(frozen=True, slots=True)
class Below:
    """With every seed the mean of a diagnostic is below that of another one, or of another line.

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
        ours, theirs = common(line.mean(self.diagnostic), other.mean(self.than))
        if not ours:
            return Verdict(text)
        below = [ours[seed] < theirs[seed] for seed in ours]
        return _with_every_seed(text, below, f"{mean(ours):.2f} and {mean(theirs):.2f}")

"""Claims that only AdaComp's paper makes."""

from dataclasses import dataclass

import numpy as np

from reproduction.claims import Verdict, decided, of_order, samples
from reproduction.measures import Line, Lines, moving_average
from reproduction.significance import accuracy

_EARLY = 0.1
"""The share of all iterations that counts as the beginning."""


@dataclass(frozen=True, slots=True)
class NotLinearInIngress:
    """§V-C, Fig. 1: bytes buy less and less accuracy."""

    name: str
    window: int

    def check(self, lines: Lines) -> Verdict:
        """Compare what both halves of the bytes bought."""
        text = (
            "accuracy is not linear in ingress: the second half of the bytes buys less than the "
            "first"
        )
        line = lines[self.name]
        firsts, halves, lasts = (
            accuracy(line, {seed: value[i] for seed, value in self._of(line).items()})
            for i in range(3)
        )
        if not firsts:
            return Verdict(text)
        first, second = halves - firsts, lasts - halves
        told = f"{first.mean:+.2f} and {second.mean:+.2f} points"
        return decided(text, [(first - second).between(0)], told)

    def _of(self, line: Line) -> dict[int, tuple[float, float, float]]:
        """Return by seed the averages at the first, the middle and the last of the bytes."""
        found = {}
        for run in line.runs:
            averages = moving_average(run.evaluations.accuracy, self.window)
            wire = run.evaluations.wire_bytes[self.window - 1 :]
            if len(averages):
                halfway = int(np.searchsorted(wire, wire[-1] / 2))
                first, half, last = averages[[0, halfway, -1]].tolist()
                found[run.seed] = (first, half, last)
        return found


@dataclass(frozen=True, slots=True)
class WiderLead:
    """§V-E, Fig. 4: with fewer images, three classes lose more against one.

    Attributes:
        large, small: one class and three, on 60,000 and on 12,000 images.
        ratio: c, for the text.
    """

    large: tuple[str, str]
    small: tuple[str, str]
    ratio: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the two leads over the seeds that all four lines have."""
        text = (
            "one class's lead over three is greater on 12,000 images than on 60,000, "
            f"c = {self.ratio}"
        )
        finals = samples([lines[name] for name in (*self.large, *self.small)], Line.greatest)
        if not finals[0]:
            return Verdict(text)
        a, b, c, d = finals
        small, large = c - d, a - b
        told = f"{small.mean:+.2f} and {large.mean:+.2f} points"
        return of_order(text, finals, [(small - large).between(0)], told)


@dataclass(frozen=True, slots=True)
class FasterEarly:
    """§V-E, Fig. 4: three classes are ahead of one at the beginning."""

    fast: str
    slow: str
    window: int

    def check(self, lines: Lines) -> Verdict:
        """Compare mean accuracies of the first updates over the seeds that both lines have."""
        fast, slow = lines[self.fast], lines[self.slow]
        text = f"three classes are faster at the beginning: {fast.series.title}"
        ours, theirs = samples((fast, slow), self._early)
        if not ours:
            return Verdict(text)
        return of_order(
            text,
            (ours, theirs),
            [(ours - theirs).between(0)],
            f"mean accuracy in the first {_EARLY:.0%} of the updates: {ours.mean:.2f}, "
            f"{theirs.mean:.2f} %",
        )

    def _early(self, line: Line) -> dict[int, float]:
        """Return by seed the mean of the averages of the first updates."""
        found = {}
        for run in line.runs:
            averages = moving_average(run.evaluations.accuracy, self.window)
            if len(averages):
                updates = run.evaluations.iteration[self.window - 1 :]
                early = updates <= _EARLY * updates[-1]
                early[0] = True
                found[run.seed] = float(averages[early].mean())
        return found

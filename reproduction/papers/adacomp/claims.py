"""Claims that only AdaComp's paper makes."""

from dataclasses import dataclass

import numpy as np

from reproduction.claims import Verdict, mean
from reproduction.measures import Lines, common, on_equal_seeds

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
        averaged = lines[self.name].averaged(self.window)
        if not len(averaged):
            return Verdict(text)
        accuracy, wire = averaged.values.mean(axis=0), averaged.costs["wire_bytes"]
        halfway = int(np.searchsorted(wire, wire[-1] / 2))
        first, second = accuracy[halfway] - accuracy[0], accuracy[-1] - accuracy[halfway]
        return Verdict(text, bool(second < first), f"{first:+.2f} and {second:+.2f} points")


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
        finals = common(*(lines[name].greatest() for name in (*self.large, *self.small)))
        if not finals[0]:
            return Verdict(text)
        a, b, c, d = map(mean, finals)
        return Verdict(text, c - d > a - b, f"{c - d:+.2f} and {a - b:+.2f} points")


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
        means = []
        for line in on_equal_seeds(fast, slow):
            averaged = line.averaged(self.window)
            if not len(averaged):
                return Verdict(text)
            updates = averaged.costs["iteration"]
            early = updates <= _EARLY * updates[-1]
            early[0] = True
            means.append(float(averaged.values[:, early].mean()))
        ours, theirs = means
        return Verdict(
            text,
            ours > theirs,
            f"mean accuracy in the first {_EARLY:.0%} of the updates: {ours:.2f}, {theirs:.2f} %",
        )

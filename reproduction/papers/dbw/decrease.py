"""The decrease of the loss, expected and seen: Figs. 1(c) and 2(c), and what the paper says of them.

DBW's diagnostics are means over some updates each; the exact loss is that of evaluations. Both are
compared over the same updates, which are those of a mean.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reproduction.claims import Verdict, decided
from reproduction.drawing import UPDATES, Places
from reproduction.measures import Floats, Line, Lines
from reproduction.record import Record
from reproduction.significance import Sample
from testbed.results.figures.chart import Across, Axis, Panel, Plot, Series

BOUND = 0.9
"""The least share of comparisons in which a lower bound has to be one; the loss is noisy."""
PROPORTIONAL = 0.8
"""The least correlation of what is almost proportional."""
_TITLES = ("DBW's estimate", "exact")


def decreases(run: Record) -> tuple[Floats, Floats, Floats] | None:
    """Return the last update of each mean, and the decreases per update: expected and seen.

    Returns:
        Each float64, (means,), without those of the updates before there was an estimate; None if the
        run has no exact loss or no estimates.
    """
    loss, gain = run.evaluations.exact.get("training_loss"), run.diagnostics.values.get("gain")
    if loss is None or gain is None:
        return None
    ends = run.diagnostics.iteration.astype(np.float64)
    starts = np.concatenate([[0.0], ends[:-1]])
    at = run.evaluations.iteration.astype(np.float64)
    seen = (np.interp(starts, at, loss) - np.interp(ends, at, loss)) / (ends - starts)
    known = np.isfinite(gain) & np.isfinite(seen)
    return (ends[known], gain[known], seen[known]) if known.any() else None


def _found(line: Line) -> dict[int, tuple[Floats, Floats, Floats]]:
    return {run.seed: both for run in line.runs if (both := decreases(run))}


@dataclass(frozen=True, slots=True)
class Agree:
    """The expected decreases agree with those that are seen, by a number for each seed.

    Attributes:
        agreement: of the expected and the seen ones.
        least: of the number.
        form: the number's format.
    """

    name: str
    text: str
    agreement: Callable[[Floats, Floats], float]
    least: float
    form: str

    def check(self, lines: Lines) -> Verdict:
        """Compare the mean over the seeds."""
        found = _found(lines[self.name])
        if not found:
            return Verdict(self.text)
        each = {seed: self.agreement(*both[1:]) for seed, both in found.items()}
        told = ", ".join(format(one, self.form) for one in each.values())
        return decided(self.text, [Sample(each).between(self.least, unit="")], told)


def bounds(name: str) -> Agree:
    """Return the claim that the expected decrease is a lower bound, in a share of ``BOUND``."""
    text = f"Ĝ is a lower bound for the decrease of the loss, in {100 * BOUND:g} % of all cases"
    return Agree(name, text, lambda a, b: float(np.mean(a <= b)), BOUND, ".0%")


def proportional(name: str) -> Agree:
    """Return the claim that both are almost proportional: that they are correlated."""
    text = "Ĝ and the decrease of the loss are almost proportional: a correlation of at least "
    text += f"{PROPORTIONAL:g}"
    return Agree(name, text, lambda a, b: float(np.corrcoef(a, b)[0, 1]), PROPORTIONAL, ".2f")


@dataclass(frozen=True, slots=True)
class Decreases:
    """The panel of both, over the updates, of a line's first run."""

    name: str

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return both; nothing without a run that has both."""
        found = list(_found(lines[self.name]).values())
        series = tuple(
            Series(title, updates, values, places[title])
            for updates, *curves in found[:1]
            for title, values in zip(_TITLES, curves, strict=True)
        )
        zero = (Across("y", 0.0),) if found else ()
        y = Axis("decrease of the loss in an update")
        panel = Panel(y, series, zero, nothing="" if found else "no run yet")
        return Plot(Axis(UPDATES.label, whole=True, low=0), (panel,))

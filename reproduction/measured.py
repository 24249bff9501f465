"""Tables, claims and panels of numbers that need no runs (``reproduction.paper.Measurement``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reproduction.claims import Verdict
from reproduction.drawing import Places
from reproduction.measures import Lines
from reproduction.tables import markdown
from testbed.results.figures.chart import Across, Axis, Panel, Plot, Series


@dataclass(frozen=True, slots=True)
class Numbers:
    """A table of measured numbers."""

    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]

    def markdown(self, lines: Lines) -> str:
        """Return the table; empty if nothing is measured."""
        return markdown(self.headings, self.rows) if self.rows else ""


@dataclass(frozen=True, slots=True)
class Found:
    """A claim about measured numbers, already compared with them."""

    verdict: Verdict

    def check(self, lines: Lines) -> Verdict:
        """Return what became of it."""
        return self.verdict


@dataclass(frozen=True, slots=True)
class Points:
    """A panel of measured numbers.

    Attributes:
        x_label, y_label: those of the axes.
        curves: by title x and y of each point.
        logarithmic: True for two logarithmic axes of base 2.
        mark: an x at which a vertical line is drawn.
    """

    x_label: str
    y_label: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    logarithmic: bool = False
    mark: float | None = None

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return the curves."""
        log = 2 if self.logarithmic else 0
        found = {
            title: np.array(points, dtype=float).reshape(-1, 2)
            for title, points in self.curves.items()
        }
        series = tuple(
            Series(title, points[:, 0], points[:, 1], places[title])
            for title, points in found.items()
        )
        mark = () if self.mark is None else (Across("x", self.mark),)
        panel = Panel(Axis(self.y_label, log=log), series, mark)
        return Plot(Axis(self.x_label, log=log), (panel,))

"""Tables, claims and panels of numbers that need no runs (``reproduction.paper.Measurement``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reproduction.claims import Verdict
from reproduction.drawing import Places
from reproduction.measures import Lines
from reproduction.tables import markdown
from testbed.results.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    def has_points(self, lines: Lines) -> bool:
        """Return True if there is a point."""
        return any(self.curves.values())

    def draw(self, axes: "Axes", lines: Lines, places: Places) -> None:
        """Draw the curves."""
        for title, points in self.curves.items():
            x, y = zip(*points, strict=True)
            axes.plot(x, y, label=title, **style.line_style(places[title]))
        if self.logarithmic:
            style.logarithmic(axes, "x", base=2)
            style.logarithmic(axes, "y", base=2)
        if self.mark is not None:
            axes.axvline(self.mark, color="#777777", linewidth=0.6)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)

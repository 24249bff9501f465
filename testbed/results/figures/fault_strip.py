"""Faults in figures: a strip below a plot, with a row of ticks and bars for each curve with faults.

A tick is the beginning of a fault; a bar is its duration, if there are few. The colour is that of the
kind, the line through a row is the curve's own. If many workers crash, a panel shows how many are
alive. A line across the plot is a server's death.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.results.figures import style
from testbed.results.figures.fault_marks import (
    FEW,
    KIND_COLOURS,
    OTHER_COLOUR,
    Living,
    Mark,
    living,
    marks,
)
from testbed.results.reading.curves import Curve
from testbed.results.reading.faults import in_order, went_down

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW, _LIVING = 0.13, 0.5
"""Heights of a row of the strip and of the panel of workers, inches."""
_LINES = 4
"""Maximum number of server kills that are lines across the plot; above it, none is drawn there."""
FEW_TICKS = 40
"""Maximum number of marks of a row with the usual width; above it, all are thinner."""


@dataclass(frozen=True, slots=True)
class Panels:
    """The axes of a figure from the top; the lower ones are None if they would be empty."""

    main: "Axes"
    living: "Axes | None" = None
    strip: "Axes | None" = None

    @property
    def lowest(self) -> "Axes":
        """The axes that have the label of x."""
        return self.strip or self.living or self.main


def make_panels(figure: "Figure", curves: Sequence[Curve]) -> Panels:
    """Make the axes that some curves need, and the figure taller by those for faults."""
    rows = sum(map(_struck, curves))
    if not rows:
        return Panels(figure.subplots())
    many = any(went_down(run.faults) > FEW for curve in curves for run in curve.runs)
    heights = [figure.get_figheight(), *[_LIVING] * many, 0.05 + _ROW * rows]
    figure.set_figheight(sum(heights))
    axes = figure.subplots(len(heights), sharex=True, height_ratios=heights)
    for upper in axes[:-1]:
        upper.tick_params(labelbottom=False)
    return Panels(axes[0], axes[1] if many else None, axes[-1])


def draw(panels: Panels, curves: Sequence[Curve], against: str) -> tuple[list["Artist"], list[str]]:
    """Draw the faults of some curves; return the legend's handles and labels for them.

    Args:
        against: the quantity of x: ``iteration``, ``payload``, ``message`` or ``wire``.
    """
    if panels.strip is None:
        return [], []
    limits = panels.main.get_xlim()
    rows = [(i, _placed(curve, against)) for i, curve in enumerate(curves) if _struck(curve)]
    for row, (i, found) in enumerate(rows):
        panels.strip.axhline(row, linewidth=0.7, **style.line_style(i), zorder=1)
        for mark in found:
            width = 1.0 if len(found) <= FEW_TICKS else 0.5
            _draw_mark(panels.strip, row, mark, against, width)
    panels.strip.set_ylim(len(rows) - 0.4, -0.6)
    panels.strip.set_yticks([])
    panels.strip.grid(visible=False)
    panels.strip.spines["left"].set_visible(False)
    panels.strip.set_ylabel("faults", rotation=0, ha="right", va="center")
    kills = [(i, mark) for i, found in rows for mark in found if mark.server]
    for i, mark in kills if len(kills) <= _LINES else ():
        _across(panels.main, mark.at[against], style.line_style(i)["color"])
    if panels.living is not None:
        for i, curve in enumerate(curves):
            _step(panels.living, i, living(curve), against)
        panels.living.set_ylim(bottom=0)
        panels.living.set_ylabel("workers\nalive")
    panels.main.set_xlim(limits)
    return legend({mark.kind for _, found in rows for mark in found})


def draw_over_time(axes: "Axes", curve: Curve) -> set[str]:
    """Mark the faults of one curve along the top of its plot over time; return their kinds."""
    found, limits = marks(curve), axes.get_xlim()
    if found:
        axes.set_ylim(top=1.12 * axes.get_ylim()[1])
    width = 1.0 if len(found) <= FEW_TICKS else 0.5
    across = axes.get_xaxis_transform()
    for mark in found:
        x, colour = mark.at["time"], colour_of(mark.kind)
        axes.plot([x, x], [0.93, 1], transform=across, color=colour, linewidth=width, zorder=3)
        if mark.until is not None:
            axes.axvspan(x, mark.until["time"], 0.95, 1, color=colour, alpha=0.5, linewidth=0)
    axes.set_xlim(limits)
    return {mark.kind for mark in found}


def legend(kinds: set[str]) -> tuple[list["Artist"], list[str]]:
    """Return the legend's ticks in the colours of some kinds, and the kinds."""
    from matplotlib.lines import Line2D

    names = list(in_order(kinds))
    handles: list[Artist] = [
        Line2D([], [], color=colour_of(kind), marker="|", markersize=6, linestyle="none")
        for kind in names
    ]
    return handles, names


def colour_of(kind: str) -> str:
    """Return the colour of a kind of fault."""
    return KIND_COLOURS.get(kind, OTHER_COLOUR)


def _struck(curve: Curve) -> bool:
    return any(run.faults for run in curve.runs)


def _placed(curve: Curve, against: str) -> list[Mark]:
    """Return the marks that have a place: without an evaluation, the ingress by then is unknown."""
    return [m for m in marks(curve) if against == "iteration" or m.at[against] > 0]


def _draw_mark(axes: "Axes", row: int, mark: Mark, against: str, width: float) -> None:
    x, colour = mark.at[against], colour_of(mark.kind)
    axes.plot([x, x], [row - 0.36, row + 0.36], color=colour, linewidth=width, zorder=3)
    if mark.until is not None:
        axes.fill_between(
            [x, mark.until[against]],
            row - 0.3,
            row + 0.3,
            color=colour,
            alpha=0.5,
            linewidth=0,
            zorder=2,
        )


def _across(axes: "Axes", x: float, colour: str) -> None:
    axes.axvline(x, color=colour, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
    axes.annotate(
        "server killed",
        (x, 0),
        xycoords=("data", "axes fraction"),
        xytext=(-2, 3),
        textcoords="offset points",
        rotation=90,
        ha="right",
        va="bottom",
        fontsize=6,
        color="#444444",
    )


def _step(axes: "Axes", i: int, found: Living | None, against: str) -> None:
    if found is not None:
        axes.step(found.at[against], found.workers, where="post", **style.line_style(i))

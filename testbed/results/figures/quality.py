"""Accuracy, or another quality, against ingress or updates: a line per curve, a band over seeds, stars.

A star is where a curve first reaches the goal, as in the table of ``reaching``: at the
mean of its runs' bytes and values there, filled if all its runs reached it and hollow if some did
not. Faults, if any, are drawn below the plot (``fault_strip``).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from testbed.quantities import Measure
from testbed.results.figures import fault_strip, style
from testbed.results.reading.curves import Curve
from testbed.results.reading.quality import ACCURACY
from testbed.results.tables.reaching import Reaching, reaching

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Against: TypeAlias = Measure | Literal["iteration"]
_MARKED = 8
"""Markers on each curve, for any number of evaluations."""
_DECADES = 20
"""The ratio of the greatest to the least value from which on y is logarithmic, for other qualities."""


def draw(
    figure: "Figure",
    curves: Sequence[Curve],
    against: Against,
    linear: bool,
    goal: float | None = None,
) -> None:
    """Draw the curves into an empty figure.

    Args:
        figure: of one column.
        curves: at least one, all of one quality, drawn in this order; one without an evaluation is
            only in the legend.
        against: which bytes the x axis counts, or ``iteration`` (always linear).
        linear: True for a linear axis of bytes.
        goal: the points where curves first reach it are marked; as for ``reaching.goal_of``.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    panels = fault_strip.make_panels(figure, curves)
    axes = panels.main
    for i, curve in enumerate(curves):
        _line(axes, i, curve, against, linear)
    drawn = any(len(line.get_xdata()) for line in axes.lines)  # type: ignore[arg-type]
    handles, labels = axes.get_legend_handles_labels()
    quality = curves[0].quality
    axes.set_ylabel(f"test {quality.axis}")
    if against == "iteration":
        rounds = all(curve.of_programs for curve in curves)
        panels.lowest.set_xlabel("round" if rounds else "iteration (updates applied)")
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    else:
        panels.lowest.set_xlabel(f"PS ingress, {against} bytes")
    if drawn:
        # Before the stars, which lie on the curves, so that the goal's line cannot widen the plot.
        if quality == ACCURACY:
            bottom, top = axes.get_ylim()
            axes.set_ylim(max(bottom, 0), min(top, 101))
        else:
            scale_values(axes)
        axes.margins(x=0.02)
        if against == "iteration":
            axes.set_xlim(left=0)
        elif linear:
            axes.set_xlim(left=0)
            style.bytes_axis(axes.xaxis)
        else:
            style.logarithmic(axes, "x", number=style.short_bytes)
        _stars(axes, reaching(curves, goal), against)
    else:
        axes.set_ylim(0, 100)
        over = all(run.ended != "running" for curve in curves for run in curve.runs)
        style.nothing_to_draw(axes, "no evaluation" if over else "no evaluation yet")
    # After the axis has its scale and its limits, which no fault may widen.
    kinds, names = fault_strip.draw(panels, curves, against) if drawn else ([], [])
    style.legend_above(figure, [*handles, *kinds], [*labels, *names])


def _line(axes: "Axes", i: int, curve: Curve, against: Against, linear: bool) -> None:
    mean = curve.mean
    x = mean.iteration if against == "iteration" else getattr(mean, f"{against}_bytes")
    # The evaluation before any push is not drawn on a log axis, most of which greetings would take
    # up; a value that is not a number is not drawn at all.
    shown = np.isfinite(mean.value)
    if against != "iteration" and not linear:
        shown &= (x > 0) if curve.of_programs else (mean.iteration > 0)
    every = max(1, int(shown.sum()) // _MARKED)
    if len(curve.runs) > 1:
        band = mean.low[shown], mean.high[shown]
        axes.fill_between(
            x[shown], *band, color=style.COLOURS[i % len(style.COLOURS)], alpha=0.2, linewidth=0
        )
    axes.plot(
        x[shown],
        mean.value[shown],
        label=curve.title,
        marker=style.marker(i),
        markevery=(i % every, every),  # staggered, so that markers of close curves do not overlap
        **style.line_style(i),
    )


def scale_values(axes: "Axes") -> None:
    """Make y logarithmic where it would hide how curves end: perplexities begin at thousands."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines])
    if drawn.min() > 0 and drawn.max() / drawn.min() >= _DECADES:
        style.logarithmic(axes, "y")


def _stars(axes: "Axes", reached: Reaching, against: Against) -> None:
    """Mark the points where the goal is reached, and draw its line if any curve reaches it."""
    rows, goal = reached.rows, reached.goal
    for i, row in enumerate(rows):
        x = row.iteration if against == "iteration" else getattr(row, f"{against}_bytes")
        if x is None or row.value is None:
            continue
        colour = style.COLOURS[i % len(style.COLOURS)]
        axes.plot(
            x,
            row.value,
            marker="*",
            markersize=9,
            markerfacecolor=colour if row.reached == len(row.runs) else "white",
            markeredgecolor="black" if row.reached == len(row.runs) else colour,
            markeredgewidth=0.5 if row.reached == len(row.runs) else 1,
            zorder=4,
            clip_on=False,
        )
    if goal is not None and any(row.reached for row in rows):
        axes.axhline(goal, color="#777777", linewidth=0.6, linestyle=(0, (2, 2)), zorder=1)
        # Right of the plot, where no curve can be.
        axes.annotate(
            f"\N{BLACK STAR} {reached.quality.with_unit(goal)}",
            (1, goal),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            annotation_clip=False,
        )

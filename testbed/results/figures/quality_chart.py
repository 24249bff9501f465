"""Accuracy, or another quality, against ingress, updates, time or energy: lines, bands, stars.

A star is where a curve first reaches the goal, as in the table of ``reaching``: at the
mean of its runs' bytes and values there, filled if all its runs reached it and hollow if some did
not. Faults, if any, are drawn below the plot (``faults``).
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from testbed.number_text import Measure
from testbed.results.figures import fault_strip
from testbed.results.figures.chart import Across, Axis, Chart, Panel, Plot, Series, values_axis
from testbed.results.reading.curves import MEASURES, Curve
from testbed.results.reading.quality import ACCURACY
from testbed.results.tables.reaching import Reaching

_NoBytes: TypeAlias = Literal["iteration", "time", "joules"]
Against: TypeAlias = Measure | _NoBytes
AXES_WITHOUT_BYTES: tuple[_NoBytes, ...] = get_args(_NoBytes)
AXES: tuple[Against, ...] = (*MEASURES, *AXES_WITHOUT_BYTES)


def chart(
    curves: Sequence[Curve], against: Against, linear: bool, reached: Reaching | None = None
) -> Chart:
    """Make the chart of some curves.

    Args:
        curves: at least one, all of one quality, drawn in this order; one without an evaluation is
            only in the legend.
        against: which bytes the x axis counts, or else ``iteration``, ``time`` or ``joules``, which
            are always linear.
        linear: True for a linear axis of bytes.
        reached: where the curves reach a goal, to mark it; None to mark nothing.
    """
    quality, by_bytes = curves[0].quality, against in MEASURES
    log = by_bytes and not linear
    lines = tuple(_line(i, curve, against, log) for i, curve in enumerate(curves))
    if by_bytes:
        x = Axis(f"PS ingress, {against} bytes", "B", log=10 * log, low=None if log else 0)
    elif against == "joules":
        x = Axis("energy of all devices", "J", low=0)
    elif against == "time":
        x = Axis("seconds since training began", low=0)
    else:
        rounds = all(curve.of_programs for curve in curves)
        label = "round" if rounds else "iteration (updates applied)"
        x = Axis(label, whole=True, low=0)
    label = f"test {quality.axis}"
    if not any(len(line.x) for line in lines):
        over = all(run.ended != "running" for curve in curves for run in curve.runs)
        why = "no evaluation" if over else "no evaluation yet"
        if any(len(run.evaluations) for curve in curves for run in curve.runs):
            why = "the energy of no run is known"
        panel = Panel(Axis(label, low=0, high=100), lines, nothing=why)
        return Chart((Plot(Axis(x.label, low=0, high=1, ticks={}), (panel,)),))
    by_accuracy = quality == ACCURACY
    y = Axis(label, within=(0, 101)) if by_accuracy else values_axis(label, lines)
    # On a logarithmic axis, no fault may widen the plot by decades.
    start = min(line.x.min() for line in lines if len(line.x)) if log else -np.inf
    stars, goal = ((), ()) if reached is None else (_stars(reached, against, log), _goal(reached))
    main = Panel(y, (*lines, *stars), (*goal, *fault_strip.kills(curves, against, start)))
    placed = list(enumerate(curves))
    below = (*fault_strip.alive(placed, against, start), *fault_strip.strip(placed, against, start))
    return Chart((Plot(x, (main, *below)),))


def _line(i: int, curve: Curve, against: Against, log: bool) -> Series:
    mean = curve.mean
    x = getattr(mean, _column(against)).astype(np.float64)
    # The evaluation before any push is not drawn on a log axis, most of which greetings would take
    # up; a value that is not a number is not drawn at all.
    shown = np.isfinite(mean.value) & np.isfinite(x)
    if log:
        shown &= (x > 0) if curve.of_programs else (mean.iteration > 0)
    moments = zip(mean.iteration[shown], mean.time[shown], strict=True)
    return Series(
        curve.title,
        x[shown],
        mean.value[shown],
        i,
        markers=True,
        band=(mean.low[shown], mean.high[shown]) if len(curve.runs) > 1 else None,
        texts=tuple(f"iteration {iteration:,}, {time:.1f} s" for iteration, time in moments),
    )


def _stars(reached: Reaching, against: Against, log: bool) -> tuple[Series, ...]:
    """Return the points where the goal is reached, on a log axis those that lines may have there."""
    return tuple(
        Series(
            row.name,
            np.array([getattr(row, _column(against))]),
            np.array([row.value]),
            i,
            "star",
            hollow=row.reached < len(row.runs),
        )
        for i, row in enumerate(reached.rows)
        if row.value is not None
        and (x := getattr(row, _column(against))) is not None
        and (not log or (x > 0 and row.iteration))
    )


def _column(against: Against) -> str:
    return f"{against}_bytes" if against in MEASURES else against


def _goal(reached: Reaching) -> tuple[Across, ...]:
    """Return the line of the goal, if any curve reaches it."""
    if reached.goal is None or not any(row.reached for row in reached.rows):
        return ()
    words = f"\N{BLACK STAR} {reached.quality.with_unit(reached.goal)}"
    return (Across("y", reached.goal, dotted=True, words=words),)

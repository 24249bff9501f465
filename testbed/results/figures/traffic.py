"""Figures of ingress over time, of ingress by worker, and of staleness."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from testbed import quantities as q
from testbed.results.figures import fault_strip, style
from testbed.results.reading.curves import Curve
from testbed.results.reading.ingress import KINDS, Ingress, merged_remarks
from testbed.results.reading.staleness import histograms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KIND_COLOURS = dict(
    zip(
        KINDS,
        (
            "#0072B2",
            "#E69F00",
            "#009E73",
            "#D55E00",
            "#CC79A7",
            "#56B4E9",
            "#7F7F7F",  # black would vanish on a dark page
            "#0072B2",
        ),
        strict=True,
    )
)
_PANEL = 1.7
"""Height of one of several panels, inches."""


def draw_over_time(figure: "Figure", curves: Sequence[Curve], ingress: Sequence[Ingress]) -> None:
    """Draw a panel for each curve: bytes per second, the kinds stacked, with faults at the top.

    Every panel has axes of its own: runs take different times, and rates differ a hundredfold.
    """
    from matplotlib.patches import Patch

    columns = 1 if len(curves) == 1 else 2
    rows = -(-len(curves) // columns)
    if len(curves) > 1:
        figure.set_size_inches(2 * style.COLUMN, _PANEL * rows + 0.3)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    faults: set[str] = set()
    for axes, curve, own in zip(panels, curves, ingress, strict=False):
        axes.set_title(curve.title, fontsize=8)
        _stack(axes, own)
        if own.rates:
            faults |= fault_strip.draw_over_time(axes, curve)
    for axes in panels[len(curves) :]:
        axes.remove()
    for axes in panels[max(0, len(curves) - columns) : len(curves)]:
        what = "the programs" if all(curve.of_programs for curve in curves) else "training"
        axes.set_xlabel(f"seconds since {what} began")
    kinds = [kind for kind in KINDS if any(kind in own.rates for own in ingress)]
    handles = [Patch(color=KIND_COLOURS[kind]) for kind in kinds]
    marks, names = fault_strip.legend(faults)
    style.legend_above(figure, [*handles, *marks], [*(KINDS[kind] for kind in kinds), *names])
    style.remarks_below(figure, merged_remarks([curve.title for curve in curves], ingress))


def draw_by_worker(figure: "Figure", curves: Sequence[Curve], ingress: Sequence[Ingress]) -> None:
    """Draw each curve's cumulative distribution of a worker's ingress, relative to the mean."""
    axes = figure.subplots()
    for i, (curve, own) in enumerate(zip(curves, ingress, strict=True)):
        count = len(own.workers)
        mean = f", mean {q.as_bytes(float(own.worker_bytes.mean()))}" if count else ""
        axes.step(
            np.concatenate([own.worker_shares[:1], own.worker_shares]),
            100 * np.arange(count + 1)[: count + 1 if count else 0] / max(1, count),
            where="post",
            label=f"{curve.title}{mean}",
            **style.line_style(i),
        )
    axes.set_xlabel("ingress from a worker ÷ mean of the run's workers")
    axes.set_ylabel("workers with at most this (%)")
    if any(len(own.workers) for own in ingress):
        axes.set_xlim(left=min(0.9, axes.get_xlim()[0]), right=max(1.1, axes.get_xlim()[1]))
        axes.set_ylim(0, 101)
    else:
        style.nothing_to_draw(axes, "no update yet")
    style.legend_above(figure, *axes.get_legend_handles_labels())
    style.remarks_below(figure, merged_remarks([curve.title for curve in curves], ingress))


def draw_staleness(figure: "Figure", curves: Sequence[Curve]) -> None:
    """Draw the curves' histograms of staleness as outlines, so that they can be told apart."""
    axes = figure.subplots()
    bars = histograms(curves)
    for i, (curve, shares) in enumerate(zip(curves, bars.shares, strict=True)):
        axes.stairs(
            shares,
            np.arange(len(shares) + 1) * bars.width,
            baseline=0 if len(shares) else None,
            label=curve.title,
            color=style.line_style(i)["color"],
            linestyle=style.line_style(i)["linestyle"],
            linewidth=1.2,
        )
    axes.set_xlabel("staleness (updates)")
    per = f" per {bars.width} of staleness" if bars.width > 1 else ""
    axes.set_ylabel(f"updates (%){per}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    if not any(len(shares) for shares in bars.shares):
        style.nothing_to_draw(axes, "no update yet")
    style.legend_above(figure, *axes.get_legend_handles_labels())


def _stack(axes: "Axes", ingress: Ingress) -> None:
    if not ingress.rates:
        style.nothing_to_draw(axes, "no ingress")
        return
    bins = len(next(iter(ingress.rates.values())))
    edges = ingress.start + ingress.width * np.arange(bins + 1)
    bottom = np.zeros(bins)
    for kind in KINDS:
        if kind in ingress.rates:
            top = bottom + ingress.rates[kind]
            axes.stairs(
                top, edges, baseline=bottom, fill=True, color=KIND_COLOURS[kind], linewidth=0
            )
            bottom = top
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    style.bytes_axis(axes.yaxis, suffix="/s")

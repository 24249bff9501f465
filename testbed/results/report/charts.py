"""The report's charts as JSON, which ``report.js`` draws: each as ``figures.chart`` describes it.

Arrays stand once in ``arrays``, however many charts have them, and charts have their places. Text is
escaped, because Plotly interprets some HTML in names, labels and hovers.
"""

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from testbed.results.figures import quality_chart
from testbed.results.figures.chart import Chart
from testbed.results.figures.chart_files import axes_of, charts_of
from testbed.results.figures.quality_chart import AXES_WITHOUT_BYTES
from testbed.results.figures.style import COLOURS
from testbed.results.reading.curves import MEASURES, Curve
from testbed.results.tables.reaching import NEVER, Point, Reaching, steps_of

LOOKS = {
    "light": COLOURS,
    "dark": ("#56B4E9", "#FF8A4C", "#2FC79A", "#E39AC6", "#F0B429", "#8FA8FF", "#E6E6E6"),
    "symbols": (
        "circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star-diamond"
    ),
    "dashes": ("solid", "dash", "dot", "dashdot", "longdash"),
}  # fmt: skip
"""The look of a curve on a light and a dark page, by its place."""


def page_charts(curves: Sequence[Curve]) -> dict[str, Chart]:
    """Return the charts of some curves by the names that the page has for them.

    Those against ingress have one for each kind of bytes and scale: ``ingress-wire-log``.

    Raises:
        NoRunError: a journal cannot be read.
    """
    found = charts_of(curves)
    if any(len(run.evaluations) for curve in curves for run in curve.runs):
        found |= {axis: quality_chart.chart(curves, axis, True) for axis in axes_of(curves)}
        for measure in MEASURES:
            found[f"ingress-{measure}-log"] = quality_chart.chart(curves, measure, False)
            found[f"ingress-{measure}-linear"] = quality_chart.chart(curves, measure, True)
    return found


def as_json(charts: Mapping[str, Chart], curves: Sequence[Curve], reached: Reaching) -> str:
    """Return the page's data as JSON that cannot end the element around it.

    Args:
        reached: the table of the goal that the page opens with.
    """
    pool = _Pool()
    content = {
        "charts": {name: pool.value(chart) for name, chart in charts.items()},
        "curves": [
            {
                "name": html.escape(curve.title, quote=False),
                "runs": len(curve.runs),
                "steps": [
                    {"goal": goal} | _step(point, len(curve.runs), pool)
                    for goal, point in steps_of(curve).items()
                ],
                "never": NEVER.cells(len(curve.runs)),
            }
            for curve in curves
        ],
        "baseline": next(i for i, c in enumerate(curves) if c.name == reached.baseline),
        "quality": {k: pool.value(v) for k, v in reached.quality.record().items()},
        "goal": reached.goal,
        "looks": LOOKS,
        "arrays": pool.arrays,
    }
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _step(point: Point, runs: int, pool: "_Pool") -> dict[str, object]:
    """Return where a goal is reached: the numbers that place a star, and the table's cells."""
    sizes = {measure: getattr(point, f"{measure}_bytes") for measure in MEASURES}
    numbers = {"reached": point.reached, "value": point.value} | sizes
    numbers |= {axis: getattr(point, axis) for axis in AXES_WITHOUT_BYTES}
    return {name: pool.value(one) for name, one in numbers.items()} | {"cells": point.cells(runs)}


@dataclass
class _Pool:
    """The parts of charts as JSON, in which an array is its place in ``arrays``."""

    arrays: list[list[float | None] | list[str]] = field(default_factory=list)
    _places: dict[object, int] = field(default_factory=dict)

    def value(self, of: Any) -> Any:
        """Return a part of a chart as JSON; a number that is not finite is null."""
        if isinstance(of, float):
            return of if math.isfinite(of) else None
        if isinstance(of, np.ndarray):
            numbers = [float(f"{one:.8g}") if math.isfinite(one) else None for one in of.tolist()]
            return self._place(tuple(numbers))
        if is_dataclass(of):
            return {one.name: self.value(getattr(of, one.name)) for one in fields(of)}
        if isinstance(of, Mapping):
            return [[self.value(key), self.value(one)] for key, one in of.items()]
        if isinstance(of, tuple):
            texts = [self.value(one) for one in of]
            return self._place(tuple(texts)) if texts and isinstance(texts[0], str) else texts
        return html.escape(of, quote=False) if isinstance(of, str) else of

    def _place(self, array: tuple[Any, ...]) -> int:
        if array not in self._places:
            self._places[array] = len(self.arrays)
            self.arrays.append(list(array))
        return self._places[array]

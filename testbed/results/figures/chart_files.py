"""Charts of runs, and their files for a paper: which ones there are, and their names.

Runs that differ only in their seed are one curve (``curves``).
"""

from collections.abc import Sequence
from pathlib import Path

from testbed.results.figures import (
    diagnostics_chart,
    image_labels,
    ingress_charts,
    paper,
    quality_chart,
)
from testbed.results.figures.chart import Chart
from testbed.results.figures.quality_chart import AXES_WITHOUT_BYTES, Against
from testbed.results.reading.curves import Curve, curves_of
from testbed.results.reading.ingress import IngressOverTime, ingress_of
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.reaching import reaching


def charts_of(curves: Sequence[Curve]) -> dict[str, Chart]:
    """Return by name the charts that do not depend on what runs are compared by.

    They are ingress over time, ingress by worker, staleness, labels per device, if devices have labels
    of their own, and diagnostics over iterations, if an algorithm reports any.

    Raises:
        NoRunError: a journal cannot be read.
    """
    ingress: list[IngressOverTime] = [ingress_of(curve) for curve in curves]
    charts = {
        "ingress-over-time": ingress_charts.over_time(curves, ingress),
        "ingress-by-worker": ingress_charts.by_worker(curves, ingress),
    }
    if not all(curve.of_programs for curve in curves):
        charts["staleness"] = ingress_charts.staleness(curves)
    if (shared := image_labels.chart(curves)) is not None:
        charts["labels-per-device"] = shared
    if (diagnosed := diagnostics_chart.chart(curves)) is not None:
        charts["diagnostics"] = diagnosed
    return charts


def axes_of(curves: Sequence[Curve]) -> tuple[Against, ...]:
    """Return what curves are drawn against besides bytes; energy only if that of any run is known."""
    metered = any(curve.has_energy for curve in curves)
    return tuple(axis for axis in AXES_WITHOUT_BYTES if axis != "joules" or metered)


def write_figures(
    runs: Sequence[RecordedRun], directory: Path, goal: float | None = None
) -> list[Path]:
    """Write every figure of some runs, each as SVG and PNG; return the paths.

    They are accuracy, or another quality, versus wire ingress and versus each of ``axes_of``, and those
    of ``charts_of``.

    Args:
        runs: at least one.
        directory: made if it does not exist.
        goal: the points where curves first reach it are marked; as for ``reaching.goal_of``.

    Raises:
        NoRunError: a journal cannot be read.
        TestbedError: the directory cannot be written to.
    """
    curves = curves_of(runs)
    name, reached = curves[0].quality.name, reaching(curves, goal)
    charts = {f"{name}-versus-ingress": quality_chart.chart(curves, "wire", False, reached)}
    for axis in axes_of(curves):
        versus = "energy" if axis == "joules" else axis
        charts[f"{name}-versus-{versus}"] = quality_chart.chart(curves, axis, True, reached)
    return paper.write_all(charts | charts_of(curves), directory)


def write_figure(
    runs: Sequence[RecordedRun],
    path: Path,
    against: Against = "wire",
    linear: bool = False,
    goal: float | None = None,
) -> Path:
    """Write accuracy, or another quality, versus ingress or another quantity, as the suffix says.

    Args:
        runs: their curves are drawn in this order.
        path: ends in ``.svg``, ``.png`` or ``.pdf``.
        against: which bytes the x axis counts, or one of ``AXES_WITHOUT_BYTES``.
        linear: True for a linear axis of bytes, False for a logarithmic one.
        goal: the points where curves first reach it are marked; as for ``reaching.goal_of``.

    Raises:
        NoRunError: a journal cannot be read.
        TestbedError: the suffix is another, or the file cannot be written.
    """
    curves = curves_of(runs)
    return paper.write(quality_chart.chart(curves, against, linear, reaching(curves, goal)), path)

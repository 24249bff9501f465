"""Figures for a paper, as SVG and PNG: which ones are drawn of some runs, and their file names.

Runs that differ only in their seed are one curve (``curves``); ``style`` has the look of figures.
"""

from collections.abc import Sequence
from pathlib import Path

from testbed.results.figures import diagnostics as diagnostics_figure
from testbed.results.figures import quality as quality_figure
from testbed.results.figures import style as figure_style
from testbed.results.figures import traffic as traffic_figures
from testbed.results.figures.quality import Against
from testbed.results.reading.curves import curves_of
from testbed.results.reading.ingress import ingress_of
from testbed.results.reading.run import Run


def write_figures(runs: Sequence[Run], directory: Path, goal: float | None = None) -> list[Path]:
    """Write every figure of some runs, each as SVG and PNG; return the paths.

    They are accuracy, or another quality, versus wire ingress and versus iteration, ingress over time,
    ingress by worker, staleness, and, if an algorithm reports any, diagnostics over iterations.

    Args:
        runs: at least one.
        directory: made if it does not exist.
        goal: the points where curves first reach it are marked; as for ``reaching.goal_of``.

    Raises:
        NoRunError: a journal cannot be read.
        TestbedError: the directory cannot be written to.
    """
    curves = curves_of(runs)
    ingress = [ingress_of(curve) for curve in curves]
    quality = curves[0].quality.name
    drawings: dict[str, figure_style.Draw] = {
        f"{quality}-versus-ingress": lambda figure: quality_figure.draw(
            figure, curves, "wire", False, goal
        ),
        f"{quality}-versus-iteration": lambda figure: quality_figure.draw(
            figure, curves, "iteration", True, goal
        ),
        "ingress-over-time": lambda figure: traffic_figures.draw_over_time(figure, curves, ingress),
        "ingress-by-worker": lambda figure: traffic_figures.draw_by_worker(figure, curves, ingress),
    }
    if not all(curve.of_programs for curve in curves):
        drawings["staleness"] = lambda figure: traffic_figures.draw_staleness(figure, curves)
    if diagnostics_figure.declared(curves):
        drawings["diagnostics"] = lambda figure: diagnostics_figure.draw(figure, curves)
    written = []
    for name, draw in drawings.items():
        paths = [directory / f"{name}.{suffix}" for suffix in ("svg", "png")]
        figure_style.write(draw, paths)
        written += paths
    return written


def write_figure(
    runs: Sequence[Run],
    path: Path,
    against: Against = "wire",
    linear: bool = False,
    goal: float | None = None,
) -> Path:
    """Write accuracy, or another quality, versus ingress or iteration, in the format of the suffix.

    Args:
        runs: their curves are drawn in this order.
        path: ends in ``.svg``, ``.png`` or ``.pdf``.
        against: which bytes the x axis counts, or ``iteration``.
        linear: True for a linear axis of bytes, False for a logarithmic one.
        goal: the points where curves first reach it are marked; as for ``reaching.goal_of``.

    Raises:
        NoRunError: a journal cannot be read.
        TestbedError: the suffix is another, or the file cannot be written.
    """
    curves = curves_of(runs)
    figure_style.write(
        lambda figure: quality_figure.draw(figure, curves, against, linear, goal), [path]
    )
    return path

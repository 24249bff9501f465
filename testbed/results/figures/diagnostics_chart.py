"""The chart of what algorithms report of themselves: a plot for each diagnostic, over iterations.

Where a diagnostic estimates a quantity that the simulator has computed, the exact values are drawn
beside it. An estimate of an update is one at the version that it leads from, so an exact value of a
version stands at the update after it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from testbed.results.figures.chart import LOW, Axis, Chart, Floats, Panel, Plot, Series
from testbed.results.reading.curves import Curve
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.reading.run_files import DiagnosticRecord

POINTS = 400
"""The most points of a line: of more updates, means over equal parts are drawn."""


def chart(curves: Sequence[Curve]) -> Chart | None:
    """Make a plot for each diagnostic, with a line for each curve that has it, of its first run.

    None if no algorithm of the curves reports any.
    """
    declared = {one.name: one for curve in curves for one in curve.runs[0].manifest.diagnostics}
    if not declared:
        return None
    plots = []
    for name, diagnostic in declared.items():
        series = tuple(s for i, curve in enumerate(curves) for s in _series(i, curve, diagnostic))
        nothing = "" if series else "no known value"
        panel = Panel(Axis(), series, height=LOW, nothing=nothing)
        plots.append(Plot(Axis("iteration", whole=True), (panel,), name))
    several = any(len(curve.runs) > 1 for curve in curves)
    remarks = ("Of several seeds, the first.",) if several else ()
    return Chart(tuple(plots), min(2, len(plots)), remarks)


def _series(place: int, curve: Curve, diagnostic: DiagnosticRecord) -> Iterator[Series]:
    """Yield the line of one curve's diagnostic, and its exact values; nothing without a known value."""
    run = curve.runs[0]
    x, y = thinned(run.diagnostics.get(diagnostic.name, np.empty(0)))
    if not len(x):
        return
    yield Series(curve.name, x, y, place)
    at, exact = exact_beside(run, diagnostic)
    if len(exact):
        yield Series(f"{curve.name}, exact", at.astype(float), exact, place, "points")


def thinned(values: Floats) -> tuple[Floats, Floats]:
    """Return iterations and values, both of shape (points,): at most ``POINTS``, the known ones."""
    parts = np.array_split(np.arange(len(values)), min(POINTS, max(1, len(values))))
    known = [part[np.isfinite(values[part])] for part in parts]
    kept = [part for part in known if len(part)]
    x = np.array([float(part.mean()) + 1 for part in kept])
    return x, np.array([float(values[part].mean()) for part in kept])


def exact_beside(
    run: RecordedRun, diagnostic: DiagnosticRecord
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the updates and the exact values of what a diagnostic estimates; none if not known."""
    evaluations = run.evaluations
    values = evaluations.exact.get(diagnostic.estimates, np.empty(0))
    known = evaluations.iteration[: len(values)] + 1 <= run.summary.updates
    return (evaluations.iteration[: len(values)] + 1)[known], values[known]

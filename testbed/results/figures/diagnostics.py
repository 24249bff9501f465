"""The figure of what algorithms report of themselves: a panel for each diagnostic, over iterations.

Where a diagnostic estimates a quantity that the simulator has computed, the exact values are drawn
beside it. An estimate of an update is one at the version that it leads from, so an exact value of a
version stands at the update after it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.results.figures import style
from testbed.results.reading.curves import Curve
from testbed.results.reading.records import Diagnostic
from testbed.results.reading.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 400
"""The most points of a line: of more updates, means over equal parts are drawn."""
_PANEL = 1.7
"""Height of a panel, inches."""
_EXACT = "exact"


def declared(curves: Sequence[Curve]) -> dict[str, Diagnostic]:
    """Return the diagnostics of any of the curves, by name and in the order of their declarations."""
    return {one.name: one for curve in curves for one in curve.runs[0].manifest.diagnostics}


def draw(figure: "Figure", curves: Sequence[Curve]) -> None:
    """Draw a panel for each diagnostic, with a line for each curve that has it, of its first run."""
    names = declared(curves)
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    figure.set_size_inches(columns * style.COLUMN, _PANEL * rows + 0.3)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, one in zip(panels, names.values(), strict=False):
        axes.set_title(one.name, fontsize=8)
        drawn = [_line(axes, i, curve, one) for i, curve in enumerate(curves)]
        if not any(drawn):
            style.nothing_to_draw(axes, "no known value")
    for axes in panels[len(names) :]:
        axes.remove()
    for axes in panels[max(0, len(names) - columns) : len(names)]:
        axes.set_xlabel("iteration")
    legend: dict[str, Any] = {}
    for axes in panels[: len(names)]:
        handles, labels = axes.get_legend_handles_labels()
        legend |= dict(zip(labels, handles, strict=True))
    style.legend_above(figure, list(legend.values()), list(legend))
    if any(len(curve.runs) > 1 for curve in curves):
        style.remarks_below(figure, ["Of several seeds, the first."])


def _line(axes: "Axes", place: int, curve: Curve, diagnostic: Diagnostic) -> bool:
    """Draw one curve's diagnostic, and the exact values; return False if it has no known value."""
    run = curve.runs[0]
    values = run.diagnostics.get(diagnostic.name, np.empty(0))
    x, y = thinned(values)
    if not len(x):
        return False
    axes.plot(x, y, label=curve.name, **style.line_style(place))
    exact_x, exact = exact_beside(run, diagnostic)
    if len(exact):
        colour = style.line_style(place)["color"]
        label = f"{curve.name}, {_EXACT}"
        axes.plot(
            exact_x, exact, label=label, color=colour, linestyle="none", marker=".", alpha=0.5
        )
    return True


def thinned(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
    """Return iterations and values, both of shape (points,): at most ``POINTS``, the known ones."""
    parts = np.array_split(np.arange(len(values)), min(POINTS, max(1, len(values))))
    known = [part[np.isfinite(values[part])] for part in parts]
    kept = [part for part in known if len(part)]
    x = np.array([float(part.mean()) + 1 for part in kept])
    return x, np.array([float(values[part].mean()) for part in kept])


def exact_beside(
    run: Run, diagnostic: Diagnostic
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the updates and the exact values of what a diagnostic estimates; none if not known."""
    evaluations = run.evaluations
    values = evaluations.exact.get(diagnostic.estimates, np.empty(0))
    known = evaluations.iteration[: len(values)] + 1 <= run.summary.updates
    return (evaluations.iteration[: len(values)] + 1)[known], values[known]

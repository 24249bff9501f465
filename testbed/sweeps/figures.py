"""Figures of a sweep: one for each swept key, and the curves of all combinations if they are few.

Runs that differ only in their seed are one point or one curve: their mean, with a band from the lowest
to the highest. A key's figure has a line for each algorithm and combination of the other keys; where
these would be too many to be told apart, a line for each algorithm, its band over everything else.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.ended import is_complete
from testbed.experiment.sweep import describe, text_of
from testbed.results.figures import quality as quality_figure
from testbed.results.figures import style
from testbed.results.reading.curves import Curve, quality_of
from testbed.results.reading.quality import ACCURACY, Quality
from testbed.results.reading.run import Run
from testbed.sweeps.sweep_table import SweepRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 10
"""Lines that can be told apart, and whose names have room above a figure."""


def write_figures(
    rows: Sequence[SweepRow], keys: Mapping[str, Sequence[Any]], folder: Path
) -> list[Path]:
    """Write the figures of the complete runs, each as SVG and PNG; return the paths.

    Raises:
        TestbedError: the folder cannot be written to.
    """
    complete = [row for row in rows if is_complete(row.run.ended)]
    if not complete:
        return []
    quality = quality_of([row.run for row in complete])
    drawings: dict[str, style.Draw] = {}
    for key, values in keys.items():
        if key != "seed" and len(values) > 1:
            name = f"by-{re.sub(r'[^A-Za-z0-9_-]+', '-', key)}"
            drawings[name] = _of_key(complete, key, values, quality)
    curves = _curves(complete, quality)
    if len(curves) <= MOST_LINES:
        drawings[f"{quality.name}-versus-ingress"] = lambda figure: quality_figure.draw(
            figure, curves, "wire", False
        )
    written = []
    for name, draw in drawings.items():
        paths = [folder / f"{name}.{suffix}" for suffix in ("svg", "png")]
        style.write(draw, paths)
        written += paths
    return written


def _others(row: SweepRow, *but: str) -> dict[str, Any]:
    return {key: value for key, value in row.values.items() if key not in ("seed", *but)}


def _name(row: SweepRow, *but: str) -> str:
    others = _others(row, *but)
    return f"{row.algorithm}, {describe(others)}" if others else row.algorithm


def _curves(rows: Sequence[SweepRow], quality: Quality) -> list[Curve]:
    """Return a curve for each algorithm and combination but for the seed, each run once."""
    groups: dict[str, dict[Path, SweepRow]] = defaultdict(dict)
    known: set[Path] = set()
    for row in rows:
        name, directory = _name(row), row.run.directory
        if directory not in known or directory in groups.get(name, {}):
            groups[name][directory] = row
            known.add(directory)
    return [
        Curve(name, tuple(row.run for row in group.values()), quality)
        for name, group in groups.items()
    ]


def _of_key(
    rows: Sequence[SweepRow], key: str, values: Sequence[Any], quality: Quality
) -> style.Draw:
    """Return what draws the final value of a quality, and wire ingress, against one swept key."""
    lines: dict[str, list[SweepRow]] = defaultdict(list)
    for row in rows:
        lines[_name(row, key)].append(row)
    remarks: list[str] = []
    if len(lines) > MOST_LINES:
        lines = defaultdict(list)
        for row in rows:
            lines[row.algorithm].append(row)
        others = ", ".join(one for one in rows[0].values if one != key)
        remarks.append(
            f"Each line is a mean over {others}; its band goes from the least to the most."
        )
    numeric = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    places = {
        text_of(value): float(value) if numeric else float(i) for i, value in enumerate(values)
    }

    def draw(figure: "Figure") -> None:
        figure.set_figheight(figure.get_figheight() * 1.7)
        upper, lower = figure.subplots(2, 1, sharex=True)
        for i, (name, group) in enumerate(lines.items()):
            of_value: dict[float, list[SweepRow]] = defaultdict(list)
            for row in group:
                of_value[places[text_of(row.values[key])]].append(row)
            _line(upper, i, name, of_value, lambda run: _final(run, quality))
            _line(lower, i, name, of_value, lambda run: float(run.summary.ingress.wire_bytes))
        upper.set_ylabel(f"final {quality.axis}")
        if quality != ACCURACY:
            quality_figure.scale_values(upper)
        lower.set_ylabel("PS ingress, wire bytes")
        lower.set_xlabel(key)
        _scale(lower, places, numeric)
        style.bytes_axis(lower.yaxis)
        lower.set_ylim(bottom=0)
        handles, labels = upper.get_legend_handles_labels()
        style.legend_above(figure, handles, labels)
        style.remarks_below(figure, remarks)

    return draw


def _final(run: Run, quality: Quality) -> float | None:
    """Return the last value of a quality; None if it is not known, or not finite."""
    if quality == ACCURACY:
        return run.summary.final_accuracy
    values = run.evaluations.of(quality)
    return float(values[-1]) if len(values) and np.isfinite(values[-1]) else None


def _line(
    axes: "Axes",
    i: int,
    name: str,
    of: Mapping[float, list[SweepRow]],
    value_of: Callable[[Run], float | None],
) -> None:
    """Draw a mean over runs at each place, and the band of them."""
    known = {}
    for place in sorted(of):
        found = [value for row in of[place] if (value := value_of(row.run)) is not None]
        if found:
            known[place] = found
    x = list(known)
    if any(len(found) > 1 for found in known.values()):
        low, high = [min(found) for found in known.values()], [max(f) for f in known.values()]
        colour = style.COLOURS[i % len(style.COLOURS)]
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    mean = [sum(found) / len(found) for found in known.values()]
    axes.plot(x, mean, label=name, marker=style.marker(i), **style.line_style(i))


def _scale(axes: "Axes", places: Mapping[str, float], numeric: bool) -> None:
    """Give the axis a tick for each value; numbers that span decades are on a logarithmic one."""
    from matplotlib.ticker import NullLocator

    at = sorted(places.values())
    if numeric and at[0] > 0 and at[-1] / at[0] >= 20:
        axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(list(places.values()), list(places))

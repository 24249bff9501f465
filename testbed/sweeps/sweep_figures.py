"""Figures of a sweep: one for each swept key, and the curves of all combinations if they are few.

Runs that differ only in their seed are one point or one curve: their mean, with a band from the lowest
to the highest. A key's figure has a line for each algorithm and combination of the other keys; where
these would be too many to be told apart, a line for each algorithm, its band over everything else.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.experiment.combinations import describe, text_of
from testbed.results.figures import paper
from testbed.results.figures import quality_chart as quality_figure
from testbed.results.figures.chart import LOW, Axis, Chart, Panel, Plot, Series, values_axis
from testbed.results.reading.curves import Curve, quality_of
from testbed.results.reading.quality import ACCURACY, Quality
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.reaching import reaching
from testbed.run_endings import is_complete
from testbed.sweeps.sweep_table import SweepRow

MOST_LINES = 10
"""Lines that can be told apart, and whose names have room above a figure."""
_DECADES = 20
"""The ratio of the greatest to the least number of a key from which on its axis is logarithmic."""


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
    charts: dict[str, Chart] = {}
    for key, values in keys.items():
        if key != "seed" and len(values) > 1:
            name = f"by-{re.sub(r'[^A-Za-z0-9_-]+', '-', key)}"
            charts[name] = _of_key(complete, key, values, quality)
    curves = _curves(complete, quality)
    if len(curves) <= MOST_LINES:
        reached = reaching(curves)
        charts[f"{quality.name}-versus-ingress"] = quality_figure.chart(
            curves, "wire", False, reached
        )
    return paper.write_all(charts, folder)


def _without_effect(rows: Sequence[SweepRow]) -> dict[str, set[str]]:
    """Return by algorithm the keys that make no other run of it, such as another algorithm's option."""
    groups: dict[str, dict[str, dict[str, set[Path]]]] = {}
    several: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        of_algorithm = groups.setdefault(row.algorithm, {})
        for key in row.values:
            rest = describe({other: row.values[other] for other in row.values if other != key})
            runs = of_algorithm.setdefault(key, {}).setdefault(rest, set())
            if row.run.directory in runs:  # for another value of the key
                several[row.algorithm].add(key)
            runs.add(row.run.directory)
    return {
        algorithm: {key for key in keys if max(map(len, groups[algorithm][key].values())) == 1}
        for algorithm, keys in several.items()
    }


def _name(row: SweepRow, without_effect: Mapping[str, set[str]], *but: str) -> str:
    left_out = {"seed", *but, *without_effect.get(row.algorithm, ())}
    others = {key: value for key, value in row.values.items() if key not in left_out}
    return f"{row.algorithm}, {describe(others, row.algorithm)}" if others else row.algorithm


def _curves(rows: Sequence[SweepRow], quality: Quality) -> list[Curve]:
    """Return a curve for each algorithm and combination but for the seed, each run once."""
    groups: dict[str, dict[Path, SweepRow]] = defaultdict(dict)
    known: set[Path] = set()
    without_effect = _without_effect(rows)
    for row in rows:
        name, directory = _name(row, without_effect), row.run.directory
        if directory not in known or directory in groups.get(name, {}):
            groups[name][directory] = row
            known.add(directory)
    return [
        Curve(name, tuple(row.run for row in group.values()), quality)
        for name, group in groups.items()
    ]


def _of_key(rows: Sequence[SweepRow], key: str, values: Sequence[Any], quality: Quality) -> Chart:
    """Make the chart of the final value of a quality, and of wire ingress, against one swept key."""
    lines: dict[str, list[SweepRow]] = defaultdict(list)
    without_effect = _without_effect(rows)
    for row in rows:
        lines[_name(row, without_effect, key)].append(row)
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

    def of(value_of: Callable[[RecordedRun], float | None]) -> tuple[Series, ...]:
        found = []
        for i, (name, group) in enumerate(lines.items()):
            known: dict[float, list[float]] = defaultdict(list)
            for row in group:
                if (value := value_of(row.run)) is not None:
                    known[places[text_of(row.values[key])]].append(value)
            found.append(_line(name, i, known))
        return tuple(found)

    final = of(lambda run: _final(run, quality))
    y = values_axis(f"final {quality.axis}", () if quality == ACCURACY else final)
    ingress = of(lambda run: float(run.summary.ingress.wire_bytes))
    at = sorted(places.values())
    log = 10 if numeric and at[0] > 0 and at[-1] / at[0] >= _DECADES else 0
    x = Axis(key, log=log, ticks={place: text for text, place in places.items()})
    bytes_axis = values_axis("PS ingress, wire bytes", ingress, "B")
    panels = (Panel(y, final, height=LOW), Panel(bytes_axis, ingress, height=LOW))
    return Chart((Plot(x, panels),), remarks=tuple(remarks))


def _final(run: RecordedRun, quality: Quality) -> float | None:
    """Return the last value of a quality; None if it is not known, or not finite."""
    if quality == ACCURACY:
        return run.summary.final_accuracy
    values = run.evaluations.of(quality)
    return float(values[-1]) if len(values) and np.isfinite(values[-1]) else None


def _line(name: str, place: int, known: Mapping[float, list[float]]) -> Series:
    """Return a mean over runs at each place, and the band of them."""
    values = [known[at] for at in sorted(known)]
    several = any(len(found) > 1 for found in values)
    low, high, mean = (
        np.array([of(found) for found in values]) for of in (min, max, statistics.fmean)
    )
    band = (low, high) if several else None
    return Series(name, np.array(sorted(known)), mean, place, markers=True, band=band)

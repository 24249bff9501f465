"""Charts of reproductions: curves of moving averages with a band of extremes, sweeps of final values.

A part's chart is data: its panels, and in each panel what the axes show and which lines are drawn. It
gives each title its colour, dashes and marker, in the order of drawing: a title looks the same in all
panels, and no two titles look alike.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from reproduction.measures import Averaged, Line, Lines, Spread, Target
from testbed.results.figures import paper, style
from testbed.results.figures.chart import (
    Across,
    Axis,
    Chart,
    Floats,
    Plot,
    Series,
    without_seeds,
)
from testbed.results.figures.chart import Panel as Upright

_BESIDE = 3
"""The most panels in a row: with more, their numbers are too small to read on a page."""
_COUNTS = 5
"""The height of an axis of diagnostics above which its ticks are whole numbers."""
_HALF = 50
"""The accuracy, in percent, above which an axis ends at 100 %."""
_NO_RUN = "no run yet"
_LABELS = {
    "accuracy": "test accuracy (%)",
    "loss": "test loss",
    "training_loss": "training loss",
    "gradient_norm": "‖∇F‖²",
    "gradient_variance": "V(g)",
}
"""The y axes of what evaluations measure; a diagnostic's has its name."""


class Places(dict[str, int]):
    """The places of a figure's titles among the colours; a new title takes the next place."""

    def __missing__(self, title: str) -> int:
        """Return the place of a title that has none yet."""
        self[title] = len(self)
        return self[title]


class Panel(Protocol):
    """One plot."""

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return what it shows of the lines that have points, each in the look of its title's place."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The quantity of an x axis: one of ``measures.COSTS``, its label, and the unit that divides it."""

    name: str
    label: str
    unit: float = 1.0


UPDATES = Cost("iteration", "iteration (updates applied)")
SECONDS = Cost("time", "time (s)")
WIRE = Cost("wire_bytes", "PS ingress on the wire (GB)", 1e9)


@dataclass(frozen=True, slots=True)
class Against:
    """A panel of moving averages against what they cost.

    Attributes:
        x: what it costs.
        window: evaluations in a moving average.
        curves: the titles of the lines that it shows, by name; None for all lines and their own titles.
        measure: ``accuracy``, in percent, ``loss``, or the name of a diagnostic.
        title: above the panel, if it needs one.
        logarithmic: True for a logarithmic x axis.
        target: drawn as a dashed line.
        above: the label of a second x axis above, and by what the first line's x is multiplied there.
    """

    x: Cost
    window: int = 1
    curves: Mapping[str, str] | None = None
    measure: str = "accuracy"
    title: str = ""
    logarithmic: bool = False
    target: Target | None = None
    above: tuple[str, Callable[[Averaged], float]] | None = None

    def _averaged(self, lines: Lines) -> dict[str, Averaged]:
        found = {
            name: line.over_time(self.window, self.measure)
            if self.x is SECONDS
            else line.averaged(self.window, self.measure)
            for name, line in lines.items()
        }
        return {name: averaged for name, averaged in found.items() if len(averaged)}

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return the curves; the x axes of all panels reach as far as the longest line of the part."""
        drawn = self._averaged(lines)
        titles = self.curves or {name: line.series.title for name, line in lines.items()}
        shown = {name: drawn[name] for name in titles if name in drawn}
        series = tuple(
            _line(titles[name], places, one.costs[self.x.name] / self.x.unit, one.values)
            for name, one in shown.items()
        )
        target = (Across("y", self.target.value, dotted=True),) if self.target and series else ()
        y = self._y_axis(list(shown.values()))
        panel = Upright(y, series, target, nothing="" if series else _NO_RUN)
        return Plot(self._x_axis(list(drawn.values())), (panel,), self.title)

    def _x_axis(self, drawn: list[Averaged]) -> Axis:
        label, above = self.x.label, None
        if self.above and drawn:
            above = (self.above[0], self.above[1](drawn[0]))
        if self.logarithmic:
            return Axis(label, log=10, above=above)
        longest = max((float(one.costs[UPDATES.name][-1]) for one in drawn), default=None)
        if self.x is UPDATES:
            return Axis(label, whole=True, low=0, high=longest, above=above)
        return Axis(label, low=0, above=above)

    def _y_axis(self, shown: list[Averaged]) -> Axis:
        label = _LABELS.get(self.measure, self.measure)
        if not shown:
            return Axis(label)
        lowest = min(float(one.values.min()) for one in shown)
        highest = max(float(one.values.max()) for one in shown)
        if self.measure not in _LABELS:
            return Axis(label, whole=highest > _COUNTS, low=min(0.0, lowest))
        if self.measure != "accuracy":
            return Axis(label, log=10)
        # Nothing is seen of the first twentieth, in which accuracy climbs.
        lowest = min(float(one.values[:, len(one) // 20].min()) for one in shown)
        return Axis(label, low=max(0.0, lowest - 1), high=100 if highest > _HALF else highest + 5)


@dataclass(frozen=True, slots=True)
class Beside:
    """A panel of several measures of one line, over updates and on one logarithmic axis.

    Attributes:
        name: the line's.
        measures: the titles of the curves, by what they show.
        y_label: that of the y axis.
    """

    name: str
    measures: Mapping[str, str]
    y_label: str

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return the measures that the line has."""
        found = {measure: lines[self.name].averaged(1, measure) for measure in self.measures}
        series = tuple(
            _line(self.measures[measure], places, averaged.costs[UPDATES.name], averaged.values)
            for measure, averaged in found.items()
            if len(averaged)
        )
        y = Axis(self.y_label, log=10 if series else 0)
        panel = Upright(y, series, nothing="" if series else _NO_RUN)
        return Plot(Axis(UPDATES.label, whole=True, low=0), (panel,))


@dataclass(frozen=True, slots=True)
class Sweep:
    """A panel of final values against a setting, such as the number of workers; bars are deviations.

    Attributes:
        label: that of the x axis.
        curves: by title the lines at the settings.
        values: from a line to its value for each seed.
        y_label: that of the y axis.
        logarithmic: True for a logarithmic x axis.
        chance: means below it are of runs that learnt nothing. The y axis does not reach them, so that
            the others are told apart, unless there are no others.
    """

    label: str
    curves: Mapping[str, Mapping[float, str]]
    values: Callable[[Line], Mapping[int, float]]
    y_label: str
    logarithmic: bool = False
    chance: float = -math.inf

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return the mean over seeds at each setting."""
        drawn: list[Spread] = []
        series = []
        for title, points in self.curves.items():
            spreads = {
                x: Spread.of(self.values(lines[name]).values()) for x, name in points.items()
            }
            found = {x: spread for x, spread in spreads.items() if spread is not None}
            drawn += found.values()
            x = np.array(list(found), dtype=float)
            mean = np.array([spread.mean for spread in found.values()])
            deviation = np.array([spread.deviation or 0.0 for spread in found.values()])
            series.append(Series(title, x, mean, places[title], markers=True, errors=deviation))
        learnt = [one for one in drawn if one.mean >= self.chance]
        low, high = _ends(learnt) if 0 < len(learnt) < len(drawn) else (None, None)
        y = Axis(self.y_label, low=low, high=high)
        settings = sorted({x for points in self.curves.values() for x in points})
        x_axis = Axis(self.label, log=10 * self.logarithmic, ticks={x: f"{x:g}" for x in settings})
        return Plot(x_axis, (Upright(y, tuple(one for one in series if len(one.x))),))


@dataclass(frozen=True, slots=True)
class Boxes:
    """A panel of box plots over seeds, and a point for each; infinite values are left out.

    Groups stand apart, in a colour each, with their titles above them.

    Attributes:
        groups: by title the lines of a group, by the titles of their boxes.
        values: from a line to its value for each seed.
        y_label: that of the y axis.
    """

    groups: Mapping[str, Mapping[str, str]]
    values: Callable[[Line], Mapping[int, float]]
    y_label: str

    def _known(self, line: Line) -> list[float]:
        return [value for value in self.values(line).values() if math.isfinite(value)]

    def plot(self, lines: Lines, places: Places) -> Plot:
        """Return a box for each line with values of several seeds, and a point for each value."""
        labels: dict[float, str] = {}
        series = []
        left = 0
        for place, (title, group) in enumerate(self.groups.items()):
            known = {box: self._known(lines[name]) for box, name in group.items()}
            drawn = {box: values for box, values in known.items() if values}
            if not drawn:
                continue
            labels |= dict(enumerate(drawn, left))
            x = np.repeat(np.arange(left, left + len(drawn)), [len(one) for one in drawn.values()])
            y = np.concatenate(list(drawn.values()))
            series.append(Series(title, x.astype(float), y, style.colour_of(place), "boxes"))
            left += len(drawn) + 1
        high = 1.05 * max(float(one.y.max()) for one in series) if series else None
        panel = Upright(Axis(self.y_label, low=0, high=high), tuple(series))
        return Plot(Axis(ticks=labels), (panel,))


def draw(panels: Sequence[Panel], lines: Lines, stem: Path) -> Path | None:
    """Draw a part's figure as SVG; return its path, None if no line has a point.

    Raises:
        TestbedError: a file cannot be written.
    """
    found = chart(panels, lines)
    if found is None:
        return None
    return paper.write(found, stem.with_name(f"{stem.name}.svg"), outlined=False)


def chart(panels: Sequence[Panel], lines: Lines) -> Chart | None:
    """Return a part's chart, at most ``_BESIDE`` panels in a row; None if no line has a point."""
    places = Places()
    plots = [panel.plot(lines, places) for panel in panels]
    series = [one for plot in plots for panel in plot.panels for one in panel.series]
    if not any(len(one.x) for one in series):
        return None
    titles = {one.name for one in series}
    # A system that has both a curve and points, which say nothing of seeds, has one entry.
    names = {
        title: title if (bare := without_seeds(title)) not in titles else bare for title in titles
    }
    if len(lines) <= 1 and len(set(names.values())) == 1:
        names = dict.fromkeys(titles, "")
    rows = -(-len(plots) // _BESIDE)
    return Chart(tuple(_named(plot, names) for plot in plots), -(-len(plots) // rows))


def _named(plot: Plot, names: Mapping[str, str]) -> Plot:
    """Return a plot whose series have other names."""
    panels = (
        replace(panel, series=tuple(replace(one, name=names[one.name]) for one in panel.series))
        for panel in plot.panels
    )
    return replace(plot, panels=tuple(panels))


def _ends(spreads: Sequence[Spread]) -> tuple[float, float]:
    """Return the ends of a y axis that shows these means and their bars, and a margin."""
    low = min(one.mean - (one.deviation or 0.0) for one in spreads)
    high = max(one.mean + (one.deviation or 0.0) for one in spreads)
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def _line(title: str, places: Places, x: Floats, values: Floats) -> Series:
    """Return the mean over the seeds, and with several seeds a band from the least to the greatest."""
    several = len(values) > 1
    band = (values.min(axis=0), values.max(axis=0)) if several else None
    name = f"{title} ({len(values)} seeds)" if several else title
    return Series(name, x, values.mean(axis=0), places[title], band=band)

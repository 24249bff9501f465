"""Draws figures: curves of moving averages with a band of extremes, and sweeps of final values.

A figure is data: its panels, and in each panel what the axes show and which lines are drawn. The figure
gives each title its colour, dashes and marker, in the order of drawing: a title looks the same in all
panels, and no two titles look alike.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from reproduction.measures import Averaged, Line, Lines, Spread, Target
from testbed.results.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_WIDTH = 3.2
"""Width of one of several panels, inches."""
_BESIDE = 3
"""The most panels in a row: with more, their numbers are too small to read on a page."""
_GREY = "#777777"
_COUNTS = 5
"""The height of an axis of diagnostics above which its ticks are whole numbers."""
_HALF = 50
"""The accuracy, in percent, above which an axis ends at 100 %."""
_SEEDS = re.compile(r" \(\d+ seeds\)$")
"""The end of a curve's title in the legend, if the curve is the mean of several."""
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
    """One pair of axes."""

    def has_points(self, lines: Lines) -> bool:
        """Return True if a line has a point in it."""

    def draw(self, axes: "Axes", lines: Lines, places: Places) -> None:
        """Draw the lines that have points, each in the look of its title's place."""


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

    def has_points(self, lines: Lines) -> bool:
        """Return True if a line has enough evaluations for a moving average."""
        return bool(self._averaged(lines))

    def _averaged(self, lines: Lines) -> dict[str, Averaged]:
        found = {
            name: line.over_time(self.window, self.measure)
            if self.x is SECONDS
            else line.averaged(self.window, self.measure)
            for name, line in lines.items()
        }
        return {name: averaged for name, averaged in found.items() if len(averaged)}

    def draw(self, axes: "Axes", lines: Lines, places: Places) -> None:
        """Draw the curves; the x axes of all panels reach as far as the longest line of the part."""
        drawn = self._averaged(lines)
        titles = self.curves or {name: line.series.title for name, line in lines.items()}
        shown = [name for name in titles if name in drawn]
        for name in shown:
            x = drawn[name].costs[self.x.name] / self.x.unit
            _band(axes, titles[name], places, x, drawn[name].values)
        if self.title:
            axes.set_title(self.title, fontsize=8)
        if drawn:
            self._draw_x_axis(axes, list(drawn.values()))
        if shown:
            self._draw_y_axis(axes, [drawn[name] for name in shown])
        else:
            style.nothing_to_draw(axes, "no run yet")

    def _draw_x_axis(self, axes: "Axes", drawn: list[Averaged]) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        if self.logarithmic:
            style.logarithmic(axes, "x")
        elif self.x is UPDATES:
            axes.set_xlim(0, max(int(one.costs["iteration"][-1]) for one in drawn))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        else:
            axes.set_xlim(left=0)
        axes.set_xlabel(self.x.label)
        if self.above:
            label, scale = self.above
            times = scale(drawn[0])
            functions = (_scaled(times), _scaled(1 / times))
            axes.secondary_xaxis("top", functions=functions).set_xlabel(label)

    def _draw_y_axis(self, axes: "Axes", shown: list[Averaged]) -> None:
        from matplotlib.ticker import MaxNLocator

        if self.target:
            axes.axhline(
                self.target.value, color=_GREY, linewidth=0.6, linestyle=(0, (2, 2)), zorder=1
            )
        if self.measure not in _LABELS:
            axes.set_ylim(bottom=min(0.0, *(float(one.values.min()) for one in shown)))
            if axes.get_ylim()[1] > _COUNTS:
                axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        elif self.measure == "accuracy":
            # Nothing is seen of the first twentieth, in which accuracy climbs.
            lowest = min(float(one.values[:, len(one) // 20].min()) for one in shown)
            highest = max(float(one.values.max()) for one in shown)
            axes.set_ylim(max(0.0, lowest - 1), 100 if highest > _HALF else highest + 5)
        else:
            style.logarithmic(axes, "y")
        axes.set_ylabel(_LABELS.get(self.measure, self.measure))


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

    def _averaged(self, lines: Lines) -> dict[str, Averaged]:
        found = {measure: lines[self.name].averaged(1, measure) for measure in self.measures}
        return {measure: averaged for measure, averaged in found.items() if len(averaged)}

    def has_points(self, lines: Lines) -> bool:
        """Return True if the line has an evaluation."""
        return bool(self._averaged(lines))

    def draw(self, axes: "Axes", lines: Lines, places: Places) -> None:
        """Draw the measures that the line has."""
        drawn = self._averaged(lines)
        for measure, averaged in drawn.items():
            x = averaged.costs[UPDATES.name]
            _band(axes, self.measures[measure], places, x, averaged.values)
        axes.set_xlim(left=0)
        axes.set_xlabel(UPDATES.label)
        axes.set_ylabel(self.y_label)
        if drawn:
            style.logarithmic(axes, "y")
        else:
            style.nothing_to_draw(axes, "no run yet")


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

    def has_points(self, lines: Lines) -> bool:
        """Return True if a line has a run."""
        return any(lines[name].runs for points in self.curves.values() for name in points.values())

    def draw(self, axes: "Axes", lines: Lines, places: Places) -> None:
        """Draw the mean over seeds at each setting."""
        drawn: list[Spread] = []
        for title, points in self.curves.items():
            place = places[title]
            spreads = {
                x: Spread.of(self.values(lines[name]).values()) for x, name in points.items()
            }
            found = {x: spread for x, spread in spreads.items() if spread is not None}
            if found:
                axes.errorbar(
                    list(found),
                    [spread.mean for spread in found.values()],
                    [spread.deviation or 0.0 for spread in found.values()],
                    label=title,
                    marker=style.marker(place),
                    capsize=2,
                    **style.line_style(place),
                )
            drawn += found.values()
        learnt = [one for one in drawn if one.mean >= self.chance]
        if 0 < len(learnt) < len(drawn):
            _fit(axes, learnt)
        ticks = sorted({x for points in self.curves.values() for x in points})
        if self.logarithmic:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
        axes.set_xlabel(self.label)
        axes.set_ylabel(self.y_label)


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

    def has_points(self, lines: Lines) -> bool:
        """Return True if a line has a finite value."""
        names = (name for group in self.groups.values() for name in group.values())
        return any(self._known(lines[name]) for name in names)

    def draw(self, axes: "Axes", lines: Lines, places: Places) -> None:
        """Draw a box for each line with values of several seeds: quartiles and median, whiskers to the
        extremes; the value of a single seed is a point.
        """
        labels: dict[int, str] = {}
        above = axes.get_xaxis_transform()
        left = 0
        for place, (title, group) in enumerate(self.groups.items()):
            colour = style.COLOURS[place % len(style.COLOURS)]
            known = {box: self._known(lines[name]) for box, name in group.items()}
            drawn = {box: values for box, values in known.items() if values}
            for x, (box, values) in enumerate(drawn.items(), left):
                labels[x] = box
                self._box(axes, x, values, colour)
            if drawn:
                middle = left + (len(drawn) - 1) / 2
                axes.text(middle, 1.02, title, transform=above, ha="center", color=colour)
                left += len(drawn) + 1
        axes.set_xticks(list(labels), list(labels.values()), rotation=90)
        if labels:
            axes.set_ylim(0, 1.05 * axes.dataLim.ymax)
        axes.set_ylabel(self.y_label)

    @staticmethod
    def _box(axes: "Axes", x: int, values: Sequence[float], colour: str) -> None:
        parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
        look: dict[str, Any] = {part: {"color": colour} for part in parts}
        if len(values) > 1:
            axes.boxplot(
                [values], positions=[x], whis=(0, 100), widths=0.6, showfliers=False, **look
            )
        axes.plot([x] * len(values), values, ".", markersize=5, alpha=0.7, color=colour)


def draw(panels: Sequence[Panel], lines: Lines, stem: Path) -> Path | None:
    """Draw a part's figure as SVG; return its path, None if no line has a point.

    Raises:
        TestbedError: a file cannot be written.
    """
    if not any(panel.has_points(lines) for panel in panels):
        return None
    path = stem.with_name(f"{stem.name}.svg")
    style.write(figure(panels, lines), [path])
    return path


def figure(panels: Sequence[Panel], lines: Lines) -> style.Draw:
    """Return what draws a part's panels, at most ``_BESIDE`` in a row, and one legend above them."""

    def into(canvas: "Canvas") -> None:
        rows = -(-len(panels) // _BESIDE)
        columns = -(-len(panels) // rows)
        if len(panels) > 1:
            canvas.set_size_inches(columns * _WIDTH, rows * style.HEIGHT)
        grid = list(canvas.subplots(rows, columns, squeeze=False).flat)
        legend: dict[str, Any] = {}
        places = Places()
        for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            panel.draw(axes, lines, places)
            _name_what_is_outside(axes)
            handles, names = axes.get_legend_handles_labels()
            legend |= dict(zip(names, handles, strict=True))
            if place % columns and axes.get_ylabel() == grid[place - 1].get_ylabel():
                axes.yaxis.label.set_visible(False)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        # A system that has both a curve and points, which say nothing of seeds, has one entry.
        legend = {name: one for name, one in legend.items() if _titled_once(name, legend)}
        if len(lines) > 1 or len(legend) > 1:
            style.legend_above(canvas, list(legend.values()), list(legend))

    return into


def _fit(axes: "Axes", spreads: Sequence[Spread]) -> None:
    """Set the y axis to these means and their bars, with its usual margin."""
    from matplotlib import rcParams

    low = min(one.mean - (one.deviation or 0.0) for one in spreads)
    high = max(one.mean + (one.deviation or 0.0) for one in spreads)
    margin = rcParams["axes.ymargin"] * (high - low)
    axes.set_ylim(low - margin, high + margin)


def _titled_once(name: str, legend: Mapping[str, object]) -> bool:
    title = _SEEDS.sub("", name)
    return title == name or title not in legend


def _name_what_is_outside(axes: "Axes") -> None:
    """Write below or above which edge the curves are that have no point inside the axes."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    below: list[str] = []
    above: list[str] = []
    for handle, title in zip(*axes.get_legend_handles_labels(), strict=True):
        line: Any = handle[0] if isinstance(handle, tuple) else handle  # that of an error bar
        x, y = (np.asarray(one, dtype=float) for one in line.get_data())
        y = y[np.isfinite(x) & np.isfinite(y) & (x >= left) & (x <= right)]
        if len(y) and not ((y >= low) & (y <= high)).any():
            (below if y.max() < low else above).append(_SEEDS.sub("", title))
    for titles, where, at, align in (
        (below, "below", 0.02, "bottom"),
        (above, "above", 0.98, "top"),
    ):
        if titles:
            axes.text(
                *(0.5, at, f"{where}: {', '.join(titles)}"),
                transform=axes.transAxes,
                ha="center",
                va=align,
                fontsize=6,
                color=_GREY,
            )


def _band(axes: "Axes", title: str, places: Places, x: Any, values: Any) -> None:
    """Draw the mean over the seeds, and with several seeds a band from the least to the greatest."""
    seeds, place = "", places[title]
    if len(values) > 1:
        seeds = f" ({len(values)} seeds)"
        colour = style.COLOURS[place % len(style.COLOURS)]
        low, high = values.min(axis=0), values.max(axis=0)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(x, values.mean(axis=0), label=title + seeds, **style.line_style(place))


def _scaled(times: float) -> "Callable[[Any], Any]":
    return lambda x: times * x

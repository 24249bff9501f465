"""Draws figures: curves of moving averages with a band of extremes, and sweeps of final values.

A figure is data: its panels, and in each panel what the axes show and which lines are drawn.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reproduction.measures import Averaged, Line, Lines, Spread, Target
from testbed.results.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import FuncFormatter

_WIDTH = 3.2
"""Width of one of several panels, inches."""
_GREY = "#777777"
_FEW = 3
"""The quotient of the ends of a logarithmic axis below which all its ticks have room for a number."""
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


class Panel(Protocol):
    """One pair of axes."""

    def has_points(self, lines: Lines) -> bool:
        """Return True if a line has a point in it."""

    def draw(self, axes: "Axes", lines: Lines) -> None:
        """Draw the lines that have points."""


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
class Curve:
    """The appearance of a line: its title in the legend, and its place among the colours."""

    title: str
    place: int


@dataclass(frozen=True, slots=True)
class Against:
    """A panel of moving averages against what they cost.

    Attributes:
        x: what it costs.
        window: evaluations in a moving average.
        curves: the lines that it shows, by name; None for all, in their order and by their titles.
        measure: ``accuracy``, in percent, ``loss``, or the name of a diagnostic.
        title: above the panel, if it needs one.
        logarithmic: True for a logarithmic x axis.
        target: drawn as a dashed line.
        y_label: False if the panel to the left has the same y axis.
        above: the label of a second x axis above, and by what the first line's x is multiplied there.
    """

    x: Cost
    window: int = 1
    curves: Mapping[str, Curve] | None = None
    measure: str = "accuracy"
    title: str = ""
    logarithmic: bool = False
    target: Target | None = None
    y_label: bool = True
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

    def draw(self, axes: "Axes", lines: Lines) -> None:
        """Draw the curves; the x axes of all panels reach as far as the longest line of the part."""
        drawn = self._averaged(lines)
        curves = self.curves or {
            name: Curve(line.series.title, place)
            for place, (name, line) in enumerate(lines.items())
        }
        shown = [name for name in curves if name in drawn]
        for name in shown:
            x = drawn[name].costs[self.x.name] / self.x.unit
            _band(axes, curves[name], x, drawn[name], lines[name])
        if self.title:
            axes.set_title(self.title, fontsize=8)
        if drawn:
            self._draw_x_axis(axes, list(drawn.values()))
        if shown:
            self._draw_y_axis(axes, [drawn[name] for name in shown])
        else:
            style.nothing_to_draw(axes, "no run yet")

    def _draw_x_axis(self, axes: "Axes", drawn: list[Averaged]) -> None:
        from matplotlib.ticker import MaxNLocator

        if self.logarithmic:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(_plain())
        elif self.x is UPDATES:
            axes.set_xlim(0, max(int(one.costs["iteration"][-1]) for one in drawn))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
            axes.xaxis.set_major_formatter(_plain(",.0f"))
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
            _make_logarithmic(axes)
        if self.y_label:
            axes.set_ylabel(_LABELS.get(self.measure, self.measure))


@dataclass(frozen=True, slots=True)
class Beside:
    """A panel of several measures of one line, over updates and on one logarithmic axis.

    Attributes:
        name: the line's.
        measures: the curves, by what they show.
        y_label: that of the y axis.
    """

    name: str
    measures: Mapping[str, Curve]
    y_label: str

    def _averaged(self, lines: Lines) -> dict[str, Averaged]:
        found = {measure: lines[self.name].averaged(1, measure) for measure in self.measures}
        return {measure: averaged for measure, averaged in found.items() if len(averaged)}

    def has_points(self, lines: Lines) -> bool:
        """Return True if the line has an evaluation."""
        return bool(self._averaged(lines))

    def draw(self, axes: "Axes", lines: Lines) -> None:
        """Draw the measures that the line has."""
        drawn = self._averaged(lines)
        for measure, averaged in drawn.items():
            x = averaged.costs[UPDATES.name]
            _band(axes, self.measures[measure], x, averaged, lines[self.name])
        axes.set_xlim(left=0)
        axes.set_xlabel(UPDATES.label)
        axes.set_ylabel(self.y_label)
        if drawn:
            _make_logarithmic(axes)
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
        places: the curves' places among the colours, by title, where other panels of the figure show
            some of them; empty: in their order.
        logarithmic: True for a logarithmic x axis.
        chance: means below it are of runs that learnt nothing. The y axis does not reach them, so that
            the others are told apart, unless there are no others.
    """

    label: str
    curves: Mapping[str, Mapping[float, str]]
    values: Callable[[Line], Mapping[int, float]]
    y_label: str
    places: Mapping[str, int] = field(default_factory=dict)
    logarithmic: bool = False
    chance: float = -math.inf

    def has_points(self, lines: Lines) -> bool:
        """Return True if a line has a run."""
        return any(lines[name].runs for points in self.curves.values() for name in points.values())

    def draw(self, axes: "Axes", lines: Lines) -> None:
        """Draw the mean over seeds at each setting."""
        drawn: list[Spread] = []
        for order, (title, points) in enumerate(self.curves.items()):
            place = self.places.get(title, order)
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

    def draw(self, axes: "Axes", lines: Lines) -> None:
        """Draw a box for each line with values: quartiles and median, whiskers to the extremes."""
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
        axes.set_ylim(bottom=0)
        axes.set_ylabel(self.y_label)

    @staticmethod
    def _box(axes: "Axes", x: int, values: Sequence[float], colour: str) -> None:
        parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
        look: dict[str, Any] = {part: {"color": colour} for part in parts}
        axes.boxplot([values], positions=[x], whis=(0, 100), widths=0.6, showfliers=False, **look)
        axes.plot([x] * len(values), values, ".", alpha=0.5, color=colour)


def draw(panels: Sequence[Panel], lines: Lines, stem: Path) -> Path | None:
    """Draw a part's figure as PNG and SVG; return the PNG's path, None if no line has a point.

    Raises:
        TestbedError: a file cannot be written.
    """
    if not any(panel.has_points(lines) for panel in panels):
        return None

    def into(canvas: "Canvas") -> None:
        if len(panels) > 1:
            canvas.set_size_inches(len(panels) * _WIDTH, style.HEIGHT)
        beside = canvas.subplots(1, len(panels), squeeze=False)[0]
        legend: dict[str, Any] = {}
        for axes, panel in zip(beside, panels, strict=True):
            panel.draw(axes, lines)
            handles, names = axes.get_legend_handles_labels()
            legend |= dict(zip(names, handles, strict=True))
        # A system that has both a curve and points, which say nothing of seeds, has one entry.
        legend = {name: one for name, one in legend.items() if _titled_once(name, legend)}
        if len(lines) > 1 or len(legend) > 1:
            style.legend_above(canvas, list(legend.values()), list(legend))

    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "svg")]
    style.write(into, paths)
    return paths[0]


def _fit(axes: "Axes", spreads: Sequence[Spread]) -> None:
    """Let the y axis show these means and their bars, and nothing beyond its usual margin."""
    from matplotlib import rcParams

    low = min(one.mean - (one.deviation or 0.0) for one in spreads)
    high = max(one.mean + (one.deviation or 0.0) for one in spreads)
    margin = rcParams["axes.ymargin"] * (high - low)
    axes.set_ylim(low - margin, high + margin)


def _titled_once(name: str, legend: Mapping[str, object]) -> bool:
    title = _SEEDS.sub("", name)
    return title == name or title not in legend


def _band(axes: "Axes", curve: Curve, x: Any, averaged: Averaged, line: Line) -> None:
    """Draw the mean over the seeds, and with several seeds a band from the least to the greatest."""
    values, seeds = averaged.values, ""
    if len(line.runs) > 1:
        seeds = f" ({len(line.runs)} seeds)"
        colour = style.COLOURS[curve.place % len(style.COLOURS)]
        low, high = values.min(axis=0), values.max(axis=0)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(x, values.mean(axis=0), label=curve.title + seeds, **style.line_style(curve.place))


def _make_logarithmic(axes: "Axes") -> None:
    """Give an axis of positive values a logarithmic scale, whose numbers do not overlap."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_plain())
    low, high = axes.get_ylim()
    axes.yaxis.set_minor_formatter(_plain() if high < _FEW * low else _twos_and_fives())


def _scaled(times: float) -> "Callable[[Any], Any]":
    return lambda x: times * x


def _plain(form: str = "g") -> "FuncFormatter":
    """Return a formatter of numbers without mathematical notation, which ``style`` turns off."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda x, _: format(x, form))


def _twos_and_fives() -> "FuncFormatter":
    """Return a formatter of the minor ticks of a logarithmic axis, of which few have room."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "25" else "")

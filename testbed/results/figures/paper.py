"""Draws a chart into a file for a paper: the same chart gives the same bytes.

Matplotlib's objects are used without pyplot, so that nothing is drawn on a screen and no figure is
kept alive.
"""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from testbed.errors import TestbedError
from testbed.results.figures import style
from testbed.results.figures.chart import (
    GREY,
    Across,
    Axis,
    Chart,
    Panel,
    Plot,
    Series,
    without_seeds,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

_COLUMN, _PAGE = 3.4, 9.6
"""Widths, inches: of a paper's column, which is that of a plot, and the most of several."""
_LEGEND_LINE, _REMARK_LINE = 0.145, 0.12
_MARKED = 8
"""Markers on each curve, for any number of points."""
_FEW_TICKS = 40
"""Maximum number of ticks with the usual width; above it, all are thinner."""
_WORDS = 45
"""Characters of an axis's words above which they are turned."""
_INK = "#444444"
_PLACED = re.compile(r'\b(?:d|x|y|width|height|transform)="[^"]*"')
_DECIMALS = re.compile(r"(?<!scale\()-?\b\d+\.\d{2,}")
"""A number with two decimals or more, in points; a scale keeps all of its decimals."""
_POLYGON = re.compile(r"\b[ML] \S+ \S+ \n(?:L \S+ \S+ \n)+")
"""Places that lines go to one after the other, in a path."""


def write_all(charts: Mapping[str, Chart], folder: Path) -> list[Path]:
    """Write each chart as SVG and PNG, under its name in a folder; return the paths.

    Raises:
        TestbedError: a file cannot be written.
    """
    found = []
    for name, chart in charts.items():
        drawn = _settled(chart)
        found += [_save(drawn, folder / f"{name}.{suffix}") for suffix in ("svg", "png")]
    return found


def write(chart: Chart, path: Path, *, outlined: bool = True) -> Path:
    """Draw a chart, save it in the format of the path's suffix, and return the path.

    Args:
        outlined: letters in an SVG are outlines, which look alike on every host; otherwise they are
            text, which can be searched and compared, and makes half as large a file.

    Raises:
        TestbedError: the suffix is not .svg, .png or .pdf, or the file cannot be written.
    """
    if path.suffix not in {".svg", ".png", ".pdf"}:
        raise TestbedError(f"{path} cannot be drawn: let its name end in .svg, .png or .pdf")
    return _save(_settled(chart), path, outlined=outlined)


def as_svg(chart: Chart) -> str:
    """Return a chart as the content of an SVG file."""
    return _svg(_settled(chart), outlined=True)


def _settled(chart: Chart) -> "Figure":
    """Draw a chart, with its layout fixed at round numbers: solved again, their last digits differ."""
    with style.look():
        drawn = figure(chart)
        drawn.draw_without_rendering()
        drawn.set_layout_engine("none")
        for axes in drawn.axes:
            left, bottom, width, height = np.round(axes.get_position().bounds, 6).tolist()
            axes.set_position((left, bottom, width, height))
    return drawn


def _save(drawn: "Figure", path: Path, *, outlined: bool = True) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".svg":
            path.write_text(_svg(drawn, outlined=outlined), encoding="utf-8")
            return path
        with style.look():
            dated = {"CreationDate": None} if path.suffix == ".pdf" else {}
            drawn.savefig(path, dpi=300, metadata=dated)
    except OSError as error:
        raise TestbedError(f"the figure {path} cannot be written: {error.strerror}") from error
    return path


def _svg(drawn: "Figure", *, outlined: bool) -> str:
    """Return a figure as SVG, without what makes the file a third larger and no eye sees.

    That is the indentation, the decimals of a place beyond a tenth of a point (of an outlined letter, a
    hundredth), and the letter that says of each place of a polygon but the first that it is one.
    """
    digits = 2 if outlined else 1

    def rounded(number: re.Match[str]) -> str:
        return f"{float(number[0]):.{digits}f}".rstrip("0").rstrip(".")

    file = io.StringIO()
    with style.look(outlined=outlined):
        drawn.savefig(file, format="svg", metadata={"Date": None})
    flush = re.sub(r"\n +", "\n", file.getvalue())
    short = _PLACED.sub(lambda found: _DECIMALS.sub(rounded, found[0]), flush)
    return _POLYGON.sub(lambda found: found[0].replace(" \nL ", "\n"), short)


def figure(chart: Chart) -> "Figure":
    """Draw a chart and return Matplotlib's figure."""
    from matplotlib.figure import Figure

    columns, plots = chart.columns, chart.plots
    rows = [plots[i : i + columns] for i in range(0, len(plots), columns)]
    # One grid for all panels, so that axes line up; a plot with fewer than its row has a taller last.
    deepest = [max(row, key=lambda plot: len(plot.panels)).panels for row in rows]
    heights = [panel.height for panels in deepest for panel in panels]
    with style.look():
        canvas = Figure(figsize=(min(_COLUMN * columns, _PAGE), sum(heights)), layout="constrained")
        grid = canvas.add_gridspec(len(heights), columns, height_ratios=heights)
        drawn, first = [], 0
        for row, panels in zip(rows, deepest, strict=True):
            for column, plot in enumerate(row):
                ends = [*range(first + 1, first + len(plot.panels)), first + len(panels)]
                specs = [grid[first + i : end, column] for i, end in enumerate(ends)]
                drawn.append(_draw_plot(canvas, specs, plot))
            first += len(panels)
        _hide_repeated_labels(drawn, columns)
        _legend_above(canvas, [axes for upright in drawn for axes in upright])
        _remarks_below(canvas, chart.remarks)
    return canvas


def _draw_plot(canvas: "Figure", places: "Sequence[SubplotSpec]", plot: Plot) -> "list[Axes]":
    """Draw the panels, from above; no panel but the first, and no line, widens the x axis."""
    main = canvas.add_subplot(places[0])
    found = [main, *(canvas.add_subplot(place, sharex=main) for place in places[1:])]
    for axes, panel in zip(found, plot.panels, strict=True):
        for series in panel.series:
            _draw_series(axes, series)
        _stack(axes, [series for series in panel.series if series.kind == "stack"])
        if axes is main:
            _scale(axes, "x", plot.x)
            limits = axes.get_xlim()
        _scale(axes, "y", panel.y)
        for line in panel.lines:
            _draw_across(axes, line)
        axes.set_xlim(limits)
        _name_what_is_outside(axes, panel)
        if panel.nothing:
            axes.text(0.5, 0.5, panel.nothing, ha="center", va="center", transform=axes.transAxes)
    main.set_title(plot.title, fontsize=8)
    for axes in found[:-1]:
        axes.tick_params(labelbottom=False)
    found[-1].set_xlabel(plot.x.label)
    if plot.x.above is not None:
        label, times = plot.x.above
        functions = (lambda x: times * x, lambda x: x / times)
        main.secondary_xaxis("top", functions=functions).set_xlabel(label)
    return found


def _draw_series(axes: "Axes", series: Series) -> None:
    x, y, colour = series.x, series.y, style.colour_of(series.look)
    look = style.line_style(series.look)
    area: dict[str, Any] = {"color": colour, "linewidth": 0}
    match series.kind:
        case "steps":
            axes.step(x, y, where="post", label=series.name, **look)
        case "points":
            axes.plot(x, y, ".", label=series.name, color=colour, alpha=0.5)
        case "ticks":
            thin: dict[str, Any] = {
                "markeredgewidth": 1.0 if len(x) <= _FEW_TICKS else 0.5,
                "markersize": 6.5,
            }
            axes.plot(x, y, "|", label=series.name, color=colour, zorder=3, **thin)
        case "spans":
            butt: dict[str, Any] = {"solid_capstyle": "butt", "linewidth": 5.5}
            axes.plot(x, y, color=colour, alpha=0.5, zorder=2, **butt)
        case "star":
            face, edge = ("white", colour) if series.hollow else (colour, "black")
            star: dict[str, Any] = {"markerfacecolor": face, "markeredgecolor": edge}
            star |= {"markersize": 9, "markeredgewidth": 1 if series.hollow else 0.5}
            axes.plot(x, y, "*", zorder=4, clip_on=False, **star)
        case "boxes":
            _draw_boxes(axes, series)
        case "line":
            if series.band is not None:
                axes.fill_between(x, *series.band, alpha=0.2, **area)
            if series.markers and isinstance(series.look, int):
                every = max(1, len(x) // _MARKED)
                # Staggered, so that markers of close curves do not overlap.
                look |= {
                    "marker": style.marker(series.look),
                    "markevery": (series.look % every, every),
                }
            if series.errors is None:
                axes.plot(x, y, label=series.name, **look)
            else:
                axes.errorbar(x, y, series.errors, capsize=2, label=series.name, **look)


def _stack(axes: "Axes", stack: Sequence[Series]) -> None:
    if stack:
        look: dict[str, Any] = {
            "labels": [one.name for one in stack],
            "colors": [one.look for one in stack],
        }
        axes.stackplot(stack[0].x, *(one.y for one in stack), step="post", linewidth=0, **look)


def _draw_boxes(axes: "Axes", series: Series) -> None:
    """Draw quartiles and median, whiskers to the extremes; the value of a single one is a point."""
    colour = style.colour_of(series.look)
    parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
    look: dict[str, Any] = {part: {"color": colour} for part in parts}
    for x in np.unique(series.x):
        values = series.y[series.x == x]
        if len(values) > 1:
            axes.boxplot(
                [values], positions=[x], whis=(0, 100), widths=0.6, showfliers=False, **look
            )
    axes.plot(series.x, series.y, ".", markersize=5, alpha=0.7, color=colour)
    above: dict[str, Any] = {
        "transform": axes.get_xaxis_transform(),
        "ha": "center",
        "color": colour,
    }
    axes.text((series.x.min() + series.x.max()) / 2, 1.02, series.name, **above)


def _draw_across(axes: "Axes", line: Across) -> None:
    low, high = sorted(axes.get_xlim() if line.way == "x" else axes.get_ylim())
    if not low <= line.at <= high:
        return  # its words would be as far outside, with no room left for the axes
    look = style.line_style(line.look) | ({"linestyle": (0, (1.5, 2))} if line.dotted else {})
    draw = axes.axvline if line.way == "x" else axes.axhline
    draw(line.at, linewidth=0.7, zorder=1, **look)
    if line.words and line.way == "x":
        words: dict[str, Any] = {"xytext": (-2, 3), "rotation": 90, "ha": "right", "va": "bottom"}
        words |= {"xycoords": ("data", "axes fraction"), "fontsize": 6, "color": _INK}
        axes.annotate(line.words, (line.at, 0), textcoords="offset points", **words)
    elif line.words:
        # Right of the plot, where no curve can be.
        words = {"xytext": (3, 0), "va": "center", "fontsize": 7, "annotation_clip": False}
        words |= {"xycoords": ("axes fraction", "data")}
        axes.annotate(line.words, (1, line.at), textcoords="offset points", **words)


def _scale(axes: "Axes", which: Literal["x", "y"], axis: Axis) -> None:
    """Give an axis its scale, its ends and its ticks; what is drawn until now determines the ends."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    own = axes.xaxis if which == "x" else axes.yaxis
    if axis.ticks and which == "x":
        axes.margins(x=0.05)
    if axis.log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=axis.log)
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    if axis.within is not None:
        low, high = max(low, axis.within[0]), min(high, axis.within[1])
    low, high = low if axis.low is None else axis.low, high if axis.high is None else axis.high
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    if axis.ticks is not None:
        words = list(axis.ticks.values())
        turned = 90 if sum(map(len, words)) + 2 * len(words) > _WORDS and which == "x" else 0
        own.set_ticks(list(axis.ticks), words, rotation=turned)
        own.set_ticks([], minor=True)
    elif axis.log:
        number = style.short_bytes if axis.unit else "{:g}".format
        style.logarithmic(axes, which, axis.log, number)
    elif axis.unit:
        style.unit_axis(own, axis.unit)
    elif axis.whole:
        own.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=True))
        own.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    if which == "y":
        axes.set_ylabel(axis.label)
        if not axis.ticks and axis.ticks is not None:
            axes.set_ylabel(axis.label, rotation=0, ha="right", va="center")
            axes.grid(visible=False)
            axes.spines["left"].set_visible(False)


def _name_what_is_outside(axes: "Axes", panel: Panel) -> None:
    """Write below or above which edge the curves are that have no point inside the axes."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    outside: dict[str, list[str]] = {"below": [], "above": []}
    for series in panel.series:
        x, y = series.x, series.y
        y = y[np.isfinite(x) & np.isfinite(y) & (x >= left) & (x <= right)]
        if series.kind == "line" and len(y) and not ((y >= low) & (y <= high)).any():
            outside["below" if y.max() < low else "above"].append(without_seeds(series.name))
    for where, at, align in (("below", 0.02, "bottom"), ("above", 0.98, "top")):
        if names := outside[where]:
            words: dict[str, Any] = {"ha": "center", "va": align, "fontsize": 6, "color": GREY}
            axes.text(0.5, at, f"{where}: {', '.join(names)}", transform=axes.transAxes, **words)


def _hide_repeated_labels(drawn: "Sequence[Sequence[Axes]]", columns: int) -> None:
    """Leave out the label of y that the plot on the left has, and of x that the one below has."""
    for i, upright in enumerate(drawn):
        if i % columns and upright[0].get_ylabel() == drawn[i - 1][0].get_ylabel():
            upright[0].yaxis.label.set_visible(False)
        if i + columns < len(drawn):
            below = drawn[i + columns][-1].get_xlabel()
            if upright[-1].get_xlabel() == below:
                upright[-1].xaxis.label.set_visible(False)


def _legend_above(canvas: "Figure", drawn: "Sequence[Axes]") -> None:
    """Put a legend above the plots, in as many columns as fit, and make the figure taller by it.

    No corner of the plot is free of curves in every experiment. Each name is there once, curves first.
    Where a name is wider than the figure, all are smaller, with their lines.
    """
    legend: dict[str, Artist] = {}
    for axes in drawn:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            legend.setdefault(name, handle)
    if not legend:
        return
    names = sorted(legend, key=lambda name: getattr(legend[name], "get_marker", str)() == "|")
    available = canvas.get_figwidth() * canvas.dpi
    size = style.STYLE["legend.fontsize"]
    # Twice with one column, the second time with smaller letters.
    for columns in (*range(min(len(names), 4), 0, -1), 1):
        shown = canvas.legend(
            [legend[name] for name in names],
            names,
            loc="outside upper center",
            ncols=columns,
            columnspacing=1.2,
            fontsize=size,
        )
        width = shown.get_window_extent().width
        if width <= available or size < style.STYLE["legend.fontsize"]:
            break
        shown.remove()
        if columns == 1:
            size *= available / width
    lines = -(-len(names) // columns)
    canvas.set_figheight(canvas.get_figheight() + _LEGEND_LINE * (lines - 1))


def _remarks_below(canvas: "Figure", remarks: Sequence[str]) -> None:
    """Write small sentences below the plots, and make the figure taller by them."""
    width = round(21 * canvas.get_figwidth())
    lines = [line for remark in remarks for line in wrap(remark, width)]
    if lines:
        canvas.supxlabel("\n".join(lines), fontsize=6, color=_INK, x=0.02, ha="left")
        canvas.set_figheight(canvas.get_figheight() + _REMARK_LINE * len(lines))

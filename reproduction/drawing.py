"""Draws the figures on the paper's axes: moving averages, their mean over seeds, a band of extremes."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from reproduction.baseline import pickled_ingress
from reproduction.measures import Line
from reproduction.paper import GOAL, Part
from testbed.results.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawn: TypeAlias = Mapping[int, Line]
"""The lines that have points, by their place in the part, which determines the colour."""
_GB = 1e9
_PANEL = 3.2
"""Width of one of several panels, inches."""


def draw_part(part: Part, lines: Mapping[str, Line], folder: Path) -> Path | None:
    """Draw a part's figure as PNG and SVG; return the PNG's path, None if no line has a point.

    Raises:
        TestbedError: a file cannot be written.
    """
    drawn = {
        place: line for place, line in enumerate(lines.values()) if len(line.averaged.iteration)
    }
    if not drawn:
        return None
    own = {"fig1": _fig1, "table2": _table2, "fig4": _fig4}
    draw = own.get(part.name, _fig3)
    paths = [folder / f"{part.name}.{suffix}" for suffix in ("png", "svg")]
    style.write(lambda figure: draw(figure, drawn), paths)
    return paths[0]


def _fig1(figure: "Figure", lines: Drawn) -> None:
    axes = figure.subplots()
    for i, line in lines.items():
        _plot(axes, i, line, line.averaged.wire_bytes / _GB)
    axes.set_xlabel("PS ingress on the wire (GB)")
    _accuracy_axis(axes, lines.values())
    axes.set_xlim(left=0)
    # The upper axis has the paper's bytes for the same pushes.
    (averaged,) = (line.averaged for line in lines.values())
    times = pickled_ingress(float(averaged.iteration[-1])) / float(averaged.wire_bytes[-1])
    above = axes.secondary_xaxis("top", functions=(_scaled(times), _scaled(1 / times)))
    above.set_xlabel("the same pushes as pickled floats, modelled (GB)")


def _scaled(times: float) -> "Callable[[Any], Any]":
    return lambda x: times * x


def _fig3(figure: "Figure", lines: Drawn) -> None:
    from matplotlib.ticker import FuncFormatter

    left, right = _panels(figure)
    for i, line in lines.items():
        _plot(left, i, line, line.averaged.iteration)
        _plot(right, i, line, line.averaged.wire_bytes / _GB)
    _iterations_axis(left, lines.values())
    right.set_xscale("log")
    right.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    right.set_xlabel("PS ingress on the wire (GB)")
    for axes in (left, right):
        axes.axhline(GOAL, color="#777777", linewidth=0.6, linestyle=(0, (2, 2)), zorder=1)
        _accuracy_axis(axes, lines.values())
    right.set_ylabel("")
    style.legend_above(figure, *left.get_legend_handles_labels())


def _table2(figure: "Figure", lines: Drawn) -> None:
    axes = figure.subplots()
    for i, line in lines.items():
        _plot(axes, i, line, line.averaged.iteration)
    _iterations_axis(axes, lines.values())
    _accuracy_axis(axes, lines.values())
    style.legend_above(figure, *axes.get_legend_handles_labels())


def _fig4(figure: "Figure", lines: Drawn) -> None:
    kinds = ("one-0.01", "three-0.01", "one-0.001", "three-0.001")
    for axes, images in zip(_panels(figure), ("60000", "12000"), strict=True):
        shown = [line for line in lines.values() if line.series.name.startswith(images)]
        for line in shown:
            name = line.series.name.partition("-")[2]
            title = line.series.title.partition(", ")[2].removeprefix("000 images, ")
            _plot(axes, kinds.index(name), line, line.averaged.iteration, title)
        axes.set_title(f"{images[:2]},000 images", fontsize=8)
        _iterations_axis(axes, lines.values())
        if shown:
            _accuracy_axis(axes, shown)
        else:
            style.nothing_to_draw(axes, "no run yet")
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        found, names = axes.get_legend_handles_labels()
        handles |= dict(zip(names, found, strict=True))
    style.legend_above(figure, list(handles.values()), list(handles))


def _panels(figure: "Figure") -> "tuple[Axes, Axes]":
    figure.set_size_inches(2 * _PANEL, style.HEIGHT)
    left, right = figure.subplots(1, 2)
    return left, right


def _plot(axes: "Axes", i: int, line: Line, x: Any, title: str | None = None) -> None:
    accuracy = line.averaged.accuracy
    seeds = f" ({len(line.runs)} seeds)" if len(line.runs) > 1 else ""
    if len(line.runs) > 1:
        axes.fill_between(
            x,
            accuracy.min(axis=0),
            accuracy.max(axis=0),
            color=style.COLOURS[i % len(style.COLOURS)],
            alpha=0.2,
            linewidth=0,
        )
    axes.plot(
        x, accuracy.mean(axis=0), label=(title or line.series.title) + seeds, **style.line_style(i)
    )


def _accuracy_axis(axes: "Axes", lines: Iterable[Line]) -> None:
    """Show accuracies from a little below the lowest run's after a twentieth of the run, to 100."""
    start = [line.averaged.accuracy[:, len(line.averaged.iteration) // 20] for line in lines]
    axes.set_ylim(max(0.0, min(float(values.min()) for values in start) - 1), 100)
    axes.set_ylabel("test accuracy (%)")


def _iterations_axis(axes: "Axes", lines: Iterable[Line]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlim(0, max(int(line.averaged.iteration[-1]) for line in lines))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.set_xlabel("iteration (updates applied)")

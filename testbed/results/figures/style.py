"""The look of figures, and writing them: the same runs give the same bytes.

Matplotlib's objects are used without pyplot, so that nothing is drawn on a screen and no figure is
kept alive. A curve keeps its colour, marker and dashes in every figure; all three change from curve to
curve, so that neither colour blindness nor a black-and-white print merges two curves.
"""

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from testbed.errors import TestbedError
from testbed.quantities import as_bytes

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Draw: TypeAlias = "Callable[[Figure], None]"
"""A function that draws into an empty figure of the size of one column."""

# Okabe and Ito's palette, without its yellow (too pale for a line), its black last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# No star among them: it marks where an accuracy is reached.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (5, 1.5, 1.2, 1.5)),
    (0, (9, 1.5, 1.2, 1.5, 1.2, 1.5)),
)
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same letters on every host
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "svg.hashsalt": "testbed",  # otherwise the ids in an SVG are random
    "svg.fonttype": "path",
    "text.parse_math": False,  # a dollar in a name is a dollar
}
COLUMN = 3.4
"""Width of a paper's column, inches."""
HEIGHT = 2.6
"""Height of the plot in it, inches; legends and remarks add to it."""
_LEGEND_LINE = 0.145
_STEPS: tuple[tuple[float, ...], ...] = ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10)))
"""Multiples of the powers of ten that have numbers on a logarithmic axis, from few to many."""
_FEWEST = 3
"""The fewest numbers from which an axis can be read."""
_REMARK_LINE = 0.12


def line_style(i: int) -> dict[str, Any]:
    """Return the colour and dashes of the curve at place ``i``."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": _DASHES[i % len(_DASHES)]}


def marker(i: int) -> str:
    """Return the marker of the curve at place ``i``."""
    return _MARKERS[i % len(_MARKERS)]


@contextlib.contextmanager
def look() -> Iterator[None]:
    """Give what is drawn or saved in the body the look of figures."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def drawn(draw: Draw) -> "Figure":
    """Return a new figure of one column's width, drawn."""
    from matplotlib.figure import Figure

    with look():
        figure = Figure(figsize=(COLUMN, HEIGHT), layout="constrained")
        draw(figure)
    return figure


def write(draw: Draw, paths: Iterable[Path]) -> None:
    """Draw a figure and save it in the format of each path's suffix.

    Raises:
        NoRunError: a journal cannot be read.
        TestbedError: a suffix is not .svg, .png or .pdf, or a file cannot be written.
    """
    for path in (paths := tuple(paths)):
        if path.suffix not in {".svg", ".png", ".pdf"}:
            raise TestbedError(f"{path} cannot be drawn: let its name end in .svg, .png or .pdf")
    with look():
        figure = drawn(draw)
        for path in paths:
            date = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, dpi=300, metadata={date: None} if date else {})
            except OSError as error:
                raise TestbedError(
                    f"the figure {path} cannot be written: {error.strerror}"
                ) from error


def as_svg(draw: Draw) -> bytes:
    """Return a drawn figure as the content of an SVG file.

    Raises:
        NoRunError: a journal cannot be read.
    """
    content = io.BytesIO()
    with look():
        drawn(draw).savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def legend_above(figure: "Figure", handles: "Sequence[Artist]", labels: Sequence[str]) -> None:
    """Put a legend above the plots, in as many columns as fit, and make the figure taller by it.

    No corner of the plot is free of curves in every experiment.
    """
    if not labels:
        return
    available = figure.get_figwidth() * figure.dpi
    for columns in range(min(len(labels), 4), 0, -1):
        legend = figure.legend(
            handles, labels, loc="outside upper center", ncols=columns, columnspacing=1.2
        )
        if columns == 1 or legend.get_window_extent().width <= available:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * (-(-len(labels) // columns) - 1))


def remarks_below(figure: "Figure", remarks: Sequence[str]) -> None:
    """Write small sentences below the plots, and make the figure taller by them."""
    width = round(23 * figure.get_figwidth())
    lines = [line for remark in remarks for line in wrap(remark, width)]
    if lines:
        figure.supxlabel("\n".join(lines), fontsize=6, color="#444444", x=0.02, ha="left")
        figure.set_figheight(figure.get_figheight() + _REMARK_LINE * len(lines))


def nothing_to_draw(axes: "Axes", why: str) -> None:
    """Write the reason in the middle of an empty plot."""
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes)


def bytes_axis(axis: "Axis", suffix: str = "") -> None:
    """Label a linear axis in bytes."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{short_bytes(x)}{suffix}"))


def logarithmic(
    axes: "Axes",
    which: Literal["x", "y"],
    base: float = 10,
    number: Callable[[float], str] = "{:g}".format,
) -> None:
    """Make an axis logarithmic, with numbers at three ticks or more.

    Matplotlib writes the numbers of such an axis in mathematical notation, which ``STYLE`` turns off.
    Call it when everything is drawn: the ticks follow from the limits.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axis: Axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=base)
    low, high = axis.get_view_interval()
    choices = [LogLocator(base, steps) for steps in _STEPS if base == 10 or steps == (1,)]
    for locator in (*choices, MaxNLocator(5)):
        axis.set_major_locator(locator)
        if sum(low <= tick <= high for tick in locator.tick_values(low, high)) >= _FEWEST:
            break
    axis.set_major_formatter(FuncFormatter(lambda x, _: number(x)))
    axis.set_minor_formatter(NullFormatter())


def short_bytes(count: float) -> str:
    """Return ``1e6`` as ``1 MB``: like ``as_bytes``, without zeros after the point."""
    number, unit = as_bytes(count).split()
    return f"{float(number):g} {unit}"

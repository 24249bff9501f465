"""The look of figures: a curve's colour, dashes and marker, letters and lines, and numbers on axes.

A curve keeps its look in every figure, and all three change from curve to curve, so that neither
colour blindness nor a black-and-white print merges two curves.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from testbed.number_text import as_bytes, as_energy
from testbed.results.figures.chart import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

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
    # The first comes with Matplotlib: the same letters on every host. Where an SVG has them as text
    # and a reader lacks it, the second is as wide.
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
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
    "axes.xmargin": 0.02,
    "path.simplify_threshold": 0.3,  # points: no eye sees less in a curve as wide as ours
    "svg.hashsalt": "testbed",  # otherwise the ids in an SVG are random
    "text.parse_math": False,  # a dollar in a name is a dollar
}
_STEPS: tuple[tuple[float, ...], ...] = ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10)))
"""Multiples of the powers of ten that have numbers on a logarithmic axis, from few to many."""
_FEWEST = 3
"""The fewest numbers from which an axis can be read."""


def colour_of(look: Look) -> str:
    """Return a curve's colour."""
    return look if isinstance(look, str) else COLOURS[look % len(COLOURS)]


def line_style(look: Look) -> dict[str, Any]:
    """Return a curve's colour and dashes; a colour alone is that of a solid line."""
    dashes = "-" if isinstance(look, str) else _DASHES[look % len(_DASHES)]
    return {"color": colour_of(look), "linestyle": dashes}


def marker(place: int) -> str:
    """Return the marker of the curve at a place."""
    return _MARKERS[place % len(_MARKERS)]


@contextlib.contextmanager
def look(*, outlined: bool = True) -> Iterator[None]:
    """Give what is drawn or saved in the body the look of figures; letters are outlines, or text."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE | {"svg.fonttype": "path" if outlined else "none"}):
        yield


def unit_axis(axis: "Axis", unit: Literal["B", "B/s", "J"]) -> None:
    """Label a linear axis in bytes, bytes per second or joules."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    written = {"B": short_bytes, "B/s": lambda x: f"{short_bytes(x)}/s", "J": as_energy}[unit]
    axis.set_major_formatter(FuncFormatter(lambda x, _: written(x)))


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

"""A chart as data: its plots, their axes and panels, and the series and lines in them.

A chart is made once from what it shows. ``paper`` draws it into a file, and the report's page draws it
in a browser; neither computes anything that a reader could take for a result.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Look: TypeAlias = int | str
"""The place of a curve, which has a colour, dashes and a marker of its own; or a colour."""
Kind: TypeAlias = Literal["line", "steps", "stack", "points", "ticks", "spans", "star", "boxes"]
GREY = "#777777"
HEIGHT, LOW = 2.6, 1.85
"""Heights of a panel, inches: of one by itself, and of one of several."""
NONE = np.empty(0)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis.

    Attributes:
        label: empty for none.
        unit: ``B``, ``B/s`` or ``J``, which numbers have with a prefix; empty for plain numbers.
        whole: True for whole numbers, such as iterations.
        log: the base of a logarithmic axis, 0 for a linear one.
        low, high: its ends; None for where the series end.
        within: ends that it never passes, however the series end.
        ticks: by their places the words of the only ticks; without any, the axis is not drawn.
        above: in a file, the label of a second axis above, and by what a number is multiplied there.
    """

    label: str = ""
    unit: Literal["", "B", "B/s", "J"] = ""
    whole: bool = False
    log: int = 0
    low: float | None = None
    high: float | None = None
    within: tuple[float, float] | None = None
    ticks: Mapping[float, str] | None = None
    above: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Points that are drawn in one way.

    Attributes:
        name: in the legend, where each name is once; empty for none.
        x, y: the points, shape (points,). Of steps and stacks, y holds from its x to the next.
        look: of the curve; ticks, spans and stacks have a colour.
        kind: a line; steps; an area on those before it (``stack``); points; short upright lines
            (``ticks``); thick lines through pairs with NaN between (``spans``); stars; box plots, one
            for each x, with the name above them.
        markers: True for the marker of the curve on some of a line's points.
        band: the lower and the upper edge of a band around a line, shape (points,).
        errors: half the lengths of bars at the points, shape (points,).
        hollow: True for the outline of a star.
        texts: what the page says of each point under the mouse, besides x and y; empty for nothing.
    """

    name: str
    x: Floats
    y: Floats
    look: Look
    kind: Kind = "line"
    markers: bool = False
    band: tuple[Floats, Floats] | None = None
    errors: Floats | None = None
    hollow: bool = False
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Across:
    """A straight line through a panel.

    Attributes:
        way: the axis that ``at`` is a value of: an upright line has an x.
        words: beside it.
    """

    way: Literal["x", "y"]
    at: float
    look: Look = GREY
    dotted: bool = False
    words: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """Series over one y axis.

    Attributes:
        height: inches; on the page, its share of the plot.
        nothing: why there is nothing to draw; written in the middle.
    """

    y: Axis
    series: tuple[Series, ...]
    lines: tuple[Across, ...] = ()
    height: float = HEIGHT
    nothing: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels over one x axis, of which the first determines its ends."""

    x: Axis
    panels: tuple[Panel, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Plots in rows of ``columns``, with one legend, and remarks in whole sentences below."""

    plots: tuple[Plot, ...]
    columns: int = 1
    remarks: tuple[str, ...] = field(default=())


_WIDE = 20
"""The ratio of the greatest to the least value from which on a quality's axis is logarithmic."""
_SEEDS = re.compile(r" \(\d+ seeds\)$")
"""The end of the name of a curve that is the mean of several."""


def without_seeds(name: str) -> str:
    """Return the name of a curve without the number of seeds."""
    return _SEEDS.sub("", name)


def values_axis(label: str, series: tuple[Series, ...], unit: Literal["", "B", "B/s"] = "") -> Axis:
    """Return the y axis of some values, logarithmic where a linear one would hide the small ones.

    Perplexities begin at thousands, and end at a few; a compressed update has a hundredth of the bytes.
    """
    y = np.concatenate([NONE, *(one.y for one in series)])
    wide = len(y) and y.min() > 0 and y.max() / y.min() >= _WIDE
    return Axis(label, unit, log=10 if wide else 0, low=0 if unit and not wide else None)

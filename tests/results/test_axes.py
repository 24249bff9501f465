"""Logarithmic axes: numbers that can be read, and no markup in any figure's text."""

import re
from pathlib import Path
from typing import Literal

import pytest
from matplotlib.figure import Figure

from testbed.results.figures import style

REPOSITORY = Path(__file__).parents[2]
FIGURES = sorted((REPOSITORY / "docs").rglob("*.svg"))
_TEXT = re.compile(r"<!-- (.*?) -->")
"""Matplotlib writes letters as outlines, and the text as a comment before them."""
_MARKUP = re.compile(r"[$\\{}]")


@pytest.mark.parametrize(("which", "base"), [("x", 2), ("y", 10)])
@pytest.mark.parametrize(("low", "quotient"), [(3e-5, 1.2), (1.7, 3.1), (4e6, 40), (0.9, 1e9)])
def test_a_logarithmic_axis_has_three_numbers_and_no_markup(
    which: Literal["x", "y"], base: int, quotient: float, low: float
) -> None:
    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        ends = [low, quotient * low]
        axes.plot(*((ends, [0, 1]) if which == "x" else ([0, 1], ends)))
        style.logarithmic(axes, which, base)

    drawn = style.drawn(draw)
    drawn.draw_without_rendering()
    (axes,) = drawn.axes
    axis = axes.xaxis if which == "x" else axes.yaxis
    bottom, top = axis.get_view_interval()
    numbers = [
        float(tick.label1.get_text())
        for tick in axis.get_major_ticks()
        if bottom <= tick.get_loc() <= top
    ]
    assert len(numbers) >= 3
    assert len(set(numbers)) == len(numbers), "two ticks have one number"
    shown = _TEXT.findall(style.as_svg(draw).decode())
    assert len(shown) >= 3 and not [text for text in shown if _MARKUP.search(text)]


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_no_committed_figure_has_markup_in_its_text(path: Path) -> None:
    shown = _TEXT.findall(path.read_text(encoding="utf-8"))
    assert not [text for text in shown if _MARKUP.search(text)]

"""Logarithmic axes: numbers that can be read, and no markup in any figure's text."""

import re
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import numpy as np
import pytest

from testbed.results.figures import paper, style
from testbed.results.figures.chart import Across, Axis, Chart, Panel, Plot, Series

REPOSITORY = Path(__file__).parents[2]
FIGURES = sorted((REPOSITORY / "docs").rglob("*.svg"))
_TEXT = re.compile(r"<!-- (.*?) -->|<text[^>]*>(?!<)(.*?)</text>")
"""Where letters are outlines, Matplotlib writes the text as a comment before them."""
_MARKUP = re.compile(r"[$\\{}]")


def _texts(drawing: str) -> list[str]:
    return [as_comment or text for as_comment, text in _TEXT.findall(drawing)]


@pytest.mark.parametrize(("which", "base"), [("x", 2), ("y", 10)])
@pytest.mark.parametrize(("low", "quotient"), [(3e-5, 1.2), (1.7, 3.1), (4e6, 40), (0.9, 1e9)])
def test_a_logarithmic_axis_has_three_numbers_and_no_markup(
    which: Literal["x", "y"], base: int, quotient: float, low: float
) -> None:
    ends, plain = np.array([low, quotient * low]), np.array([0.0, 1.0])
    points = (ends, plain) if which == "x" else (plain, ends)
    x, y = (Axis(log=base * (which == one)) for one in "xy")
    chart = Chart((Plot(x, (Panel(y, (Series("", *points, 0),)),)),))
    drawn = paper.figure(chart)
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
    shown = _texts(paper.as_svg(chart))
    assert len(shown) >= 3 and not [text for text in shown if _MARKUP.search(text)]


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_no_committed_figure_has_markup_in_its_text(path: Path) -> None:
    shown = _texts(path.read_text(encoding="utf-8"))
    assert not [text for text in shown if _MARKUP.search(text)]


@pytest.mark.parametrize("outlined", [True, False], ids=["outlined", "text"])
def test_places_in_a_drawing_are_rounded_and_its_text_and_scales_are_not(
    outlined: bool, tmp_path: Path
) -> None:
    """A tick at 0.125 keeps its number, and the outline of a letter its size."""
    ticks = Axis(ticks={0.125: "0.125", 1 / 3: "0.3333"})
    ends = np.array([0.125, 1 / 3])
    chart = Chart((Plot(ticks, (Panel(Axis(), (Series("", ends, ends, 0),)),)),))
    drawing = paper.write(chart, tmp_path / "a.svg", outlined=outlined).read_text("utf-8")
    assert {"0.125", "0.3333"} <= set(_texts(drawing))
    assert ('transform="scale(0.015625)"' in drawing) is outlined
    assert not re.search(r"^[ML] -?\d+\.\d{3}", drawing, re.MULTILINE)
    assert not re.search(r"translate\([^)]*\.\d{3}", drawing)
    assert ElementTree.fromstring(drawing).tag.endswith("svg")


@pytest.mark.parametrize("way", ["x", "y"])
def test_a_line_outside_an_axis_takes_no_room_from_it(way: Literal["x", "y"]) -> None:
    """A goal of 97 % where all curves begin at 99 % was far below, and Matplotlib laid nothing out."""
    ends = np.array([99.0, 100.0])

    def place(*lines: Across) -> list[float]:
        panel = Panel(Axis(), (Series("name", ends, ends, 0),), lines=lines)
        drawn = paper.figure(Chart((Plot(Axis(), (panel,)),)))
        drawn.draw_without_rendering()
        return list(drawn.axes[0].get_position().bounds)

    assert place(Across(way, 1.0, words="goal"), Across(way, 900.0, words="goal")) == place()
    assert len(place(Across(way, 99.5, words="goal"))) == 4


@pytest.mark.parametrize("length", [3, 60, 80])
def test_a_legend_is_no_wider_than_its_figure(length: int) -> None:
    ends = np.array([0.0, 1.0])
    series = tuple(Series(f"{i} {'name ' * length}"[:length], ends, ends, i) for i in range(6))
    with style.look():
        drawn = paper.figure(Chart((Plot(Axis(), (Panel(Axis(), series),)),)))
        (legend,) = drawn.legends
        drawn.set_dpi(300)  # as it is saved: letters have whole pixels
        assert len(legend.get_texts()) == 6
        assert legend.get_window_extent().width <= 1.01 * drawn.get_figwidth() * drawn.dpi

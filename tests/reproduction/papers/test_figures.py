"""The committed records of all papers, drawn: what a reader needs to tell one curve from another."""

from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.text import Text

from reproduction.drawing import chart
from reproduction.measures import lines_of
from reproduction.paper import Paper, Part, load_paper
from reproduction.records import Records
from testbed.results.figures import paper as drawer

PAPERS = {name: load_paper(name) for name in ("adacomp", "ako", "dbw", "gap-aware")}
SCALES = [(name, scale) for name, paper in PAPERS.items() for scale in paper.scales]
COMMITTED = [
    (name, scale.name)
    for name, scale in SCALES
    if (PAPERS[name].pages / PAPERS[name].suffix(scale, "") / "records").is_dir()
]


def look(handle: Any) -> tuple[str, str]:
    """Return a curve's colour and dashes, with or without bars."""
    line = handle[0] if isinstance(handle, tuple) else handle
    return to_hex(line.get_color()), str(line._unscaled_dash_pattern)


def parts_of(paper: Paper, scale: str) -> list[Part]:
    folder = paper.pages / paper.suffix(paper.scale(scale), "")
    measured = [one.measured(folder) for one in paper.measurements]
    return [*paper.parts_of(paper.scale(scale)), *measured]


@pytest.mark.parametrize(("name", "scale"), COMMITTED)
def test_curves_are_told_apart_and_text_has_no_markup(name: str, scale: str) -> None:
    paper = PAPERS[name]
    records = Records(paper.pages / paper.suffix(paper.scale(scale), ""))
    drawn = 0
    for part in parts_of(paper, scale):
        seeds = range(1, 6)
        lines = lines_of(part.series, paper.scale(scale), seeds, records)
        found = chart(part.panels, lines)
        if found is None:
            continue
        drawn += 1
        canvas = drawer.figure(found)
        canvas.draw_without_rendering()
        looks: dict[str, tuple[str, str]] = {}
        for axes in canvas.axes:
            handles, titles = axes.get_legend_handles_labels()
            for handle, title in zip(handles, titles, strict=True):
                told = title.partition(" (")[0]
                assert looks.setdefault(told, look(handle)) == look(handle), (part.name, title)
            _check_outside(axes, part.name)
        assert len(set(looks.values())) == len(looks), (
            f"{part.name}: two curves look alike: {looks}"
        )
        texts = [text.get_text() for text in canvas.findobj(Text)]
        assert not [text for text in texts if "$" in text or "\\" in text], part.name
        assert canvas.get_figwidth() <= 10, f"{part.name} is too wide for a page"
    assert drawn


def _check_outside(axes: Axes, part: str) -> None:
    """Check that every title of a panel is of a curve in it, or said to be outside."""
    said = " ".join(text.get_text() for text in axes.texts)
    low, high = axes.get_ylim()
    for handle, title in zip(*axes.get_legend_handles_labels(), strict=True):
        line: Any = handle[0] if isinstance(handle, tuple) else handle
        y = line.get_ydata()
        inside = ((y >= low) & (y <= high)).any()
        assert inside or title.partition(" (")[0] in said, (part, title)

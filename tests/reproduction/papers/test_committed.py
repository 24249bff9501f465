"""The committed pages and claims of all papers, made again of their committed records."""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.text import Text

from reproduction import claims_file, pages, record_files
from reproduction.claims import Claim
from reproduction.drawing import Panel, chart
from reproduction.driver import Order
from reproduction.measures import Line, Lines
from reproduction.paper import Paper, Part, load_paper
from reproduction.record import Record
from reproduction.record_files import read as as_committed
from reproduction.series import Scale
from testbed.results.figures import paper as drawer
from testbed.results.figures.chart import Chart

PAPERS = {name: load_paper(name) for name in ("adacomp", "ako", "dbw", "gap-aware")}
COMMITTED = [
    (name, scale.name)
    for name, paper in PAPERS.items()
    for scale in paper.scales
    if (paper.pages / paper.suffix(scale, "") / "records").is_dir()
]


class _Asked(dict[str, Any]):
    """The diagnostics of a record, which note whose names are asked for."""

    def __init__(self, values: Mapping[str, Any], names: set[str]) -> None:
        super().__init__(values)
        self._names = names

    def get(self, name: str, default: Any = None) -> Any:
        self._names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self._names.add(name)
        return super().__getitem__(name)


@dataclass
class Made:
    """Pages that are made again, once for all tests.

    Attributes:
        folder: where they are made; they are committed in ``committed``.
        pages: the paths of those that are made.
        records: those that were read, by name.
        asked: the names of diagnostics that pages have asked for.
        parts: the parts with their lines, in the pages' order.
        charts: what is drawn for a page, by its name.
    """

    paper: Paper
    scale: Scale
    folder: Path
    pages: list[Path] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    parts: list[tuple[Part, Lines]] = field(default_factory=list)
    charts: dict[str, Chart] = field(default_factory=dict)

    @property
    def committed(self) -> Path:
        return self.paper.pages / self.paper.suffix(self.scale, "")

    def read(self, folder: Path) -> dict[str, Record]:
        """Return records that note which of their diagnostics are asked for."""
        self.records = as_committed(folder)
        return {
            name: replace(one, diagnostics=replace(told, values=_Asked(told.values, self.asked)))
            for name, one in self.records.items()
            for told in (one.diagnostics,)
        }

    def draw(self, panels: Sequence[Panel], lines: Lines, stem: Path) -> Path | None:
        """Note a page's chart; that figures can be written is tested in test_drawing."""
        found = chart(panels, lines)
        if found is None:
            return None
        self.charts[stem.name] = found
        return stem.with_suffix(".svg")


@pytest.fixture(scope="module", params=COMMITTED, ids="-".join)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Made]:
    """The pages of a paper at a scale, made again of the committed records."""
    name, of_scale = request.param
    paper = PAPERS[name]
    scale = paper.scale(of_scale)
    made = Made(paper, scale, tmp_path_factory.mktemp("pages"))
    shutil.copytree(made.committed / "records", made.folder / "records")
    order = Order(
        *(paper, paper.parts_of(scale), scale, scale.seeds, "simulation", made.folder / "runs"),
        measurements=paper.measurements,
    )
    one_page = pages._page

    def page(checked: pages.Checked, *rest: Any) -> str:
        made.parts.append((checked.part, checked.lines))
        return one_page(checked, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_files, "read", made.read)
        patch.setattr(pages, "draw", made.draw)
        patch.setattr(pages, "_page", page)
        made.pages, _ = pages.write_pages(order, made.folder)
    yield made
    shutil.rmtree(made.folder)


def test_the_committed_pages_and_claims_are_those_of_the_committed_records(made: Made) -> None:
    made_by = re.compile("page made by .*")
    for path in made.pages:
        page = (made.committed / path.name).read_text()
        assert made_by.sub("", path.read_text()) == made_by.sub("", page), path.name
    of = made.paper.name, made.scale.name
    rows = [row for row in claims_file.read(claims_file.FILE) if (row.paper, row.scale) == of]
    assert claims_file.read(made.folder / "claims.csv") == rows
    assert rows or made.scale is not made.paper.scales[0]


def test_the_committed_records_have_what_the_pages_ask_for_and_no_more(made: Made) -> None:
    """Neither other diagnostics nor other columns."""
    kept, exact = set[str](), set[str]()
    for name, record in made.records.items():
        for column in made.paper.unshown(record.spec):
            assert np.isnan(getattr(record.evaluations, column)).all(), (name, column)
        kept.update(record.diagnostics.values)
        exact.update(record.evaluations.exact)
    assert made.records
    declared = set(made.paper.diagnostics or ())
    assert kept <= declared
    if made.scale is made.paper.scales[0]:
        assert made.asked - exact == declared


def test_all_claims_are_of_committed_records() -> None:
    assert {(row.paper, row.scale) for row in claims_file.read(claims_file.FILE)} <= set(COMMITTED)


def named(value: object, lines: Mapping[str, Line]) -> Iterator[Line]:
    """Return the lines that an attribute of a claim names, at any depth."""
    if isinstance(value, str):
        yield from [lines[value]] if value in lines else []
    elif isinstance(value, Mapping):
        yield from (line for one in value.values() for line in named(one, lines))
    elif isinstance(value, tuple):
        yield from (line for one in value for line in named(one, lines))


def compared(claim: Claim, lines: Mapping[str, Line]) -> list[Line]:
    names = getattr(type(claim), "__dataclass_fields__", {})
    found = [line for name in names for line in named(getattr(claim, name), lines)]
    return list({line.series.name: line for line in found}.values())


def test_no_claim_compares_a_run_with_itself(made: Made) -> None:
    for part, lines in made.parts:
        for claim in (*part.claims, *part.claims_at_its_scale):
            runs = [run for line in compared(claim, lines) for run in line.runs]
            ends = [
                (run.seed, run.result.parameters_sha256, tuple(run.evaluations.time.tolist()))
                for run in runs
                if run.result.parameters_sha256 and np.isfinite(run.evaluations.time).all()
            ]
            assert len(set(ends)) == len(ends), (part.name, claim)


def look(handle: Any) -> tuple[str, str]:
    """Return a curve's colour and dashes, with or without bars."""
    line = handle[0] if isinstance(handle, tuple) else handle
    return to_hex(line.get_color()), str(line._unscaled_dash_pattern)


def test_curves_are_told_apart_and_text_has_no_markup(made: Made) -> None:
    """No two curves of a figure look alike, and no figure is wider than a page."""
    assert made.charts
    for part, found in made.charts.items():
        canvas = drawer.figure(found)
        canvas.draw_without_rendering()
        looks: dict[str, tuple[str, str]] = {}
        for axes in canvas.axes:
            handles, titles = axes.get_legend_handles_labels()
            for handle, title in zip(handles, titles, strict=True):
                told = title.partition(" (")[0]
                assert looks.setdefault(told, look(handle)) == look(handle), (part, title)
            _check_outside(axes, part)
        assert len(set(looks.values())) == len(looks), f"{part}: two curves look alike: {looks}"
        texts = [text.get_text() for text in canvas.findobj(Text)]
        assert not [text for text in texts if "$" in text or "\\" in text], part
        assert canvas.get_figwidth() <= 10, f"{part} is too wide for a page"


def _check_outside(axes: Axes, part: str) -> None:
    """Check that every title of a panel is of a curve in it, or said to be outside."""
    said = " ".join(text.get_text() for text in axes.texts)
    low, high = axes.get_ylim()
    for handle, title in zip(*axes.get_legend_handles_labels(), strict=True):
        line: Any = handle[0] if isinstance(handle, tuple) else handle
        y = line.get_ydata()
        inside = ((y >= low) & (y <= high)).any()
        assert inside or title.partition(" (")[0] in said, (part, title)

"""Figures: the legend that panels share, and axes that leave out runs that learnt nothing."""

from pathlib import Path

import pytest
from matplotlib.axes import Axes

from reproduction.drawing import UPDATES, Against, Panel, Sweep, chart
from reproduction.measures import Line, lines_of
from reproduction.papers.gap_aware.lines import FIG2
from reproduction.papers.gap_aware.scales import TINY
from reproduction.records import Records
from reproduction.runs import Folder, Setting, of_lines
from testbed.results.figures.paper import figure
from tests.reproduction.conftest import WriteRun, spec_of

FINAL = {"ga-8": 87.0, "ga-16": 85.0, "dana-8": 89.0, "dana-16": 10.0}
CURVES: dict[str, dict[float, str]] = {
    "GA": {8: "ga-8", 16: "ga-16"},
    "DANA": {8: "dana-8", 16: "dana-16"},
}
SEEDS = (1, 2)


@pytest.fixture
def lines(tmp_path: Path, write_run: WriteRun) -> dict[str, Line]:
    """Two seeds of GA and DANA, the second one higher by a point."""
    series = [one for one in FIG2 if one.name in FINAL]
    for one in series:
        for seed in SEEDS:
            spec = spec_of(one, TINY, seed).model_copy(update={"engine": "simulation"})
            write_run(spec, [10.0, FINAL[one.name] + seed - 1])
    records = Records(tmp_path / "recorded")
    records.take(of_lines(series, Setting(TINY, SEEDS)), Folder(tmp_path / "runs"))
    return lines_of(series, TINY, SEEDS, records)


def drawn(curves: dict[str, dict[float, str]], lines: dict[str, Line], chance: float) -> Axes:
    found = chart([Sweep("N", curves, Line.last, "accuracy (%)", chance=chance)], lines)
    assert found is not None
    [axes] = figure(found).axes
    return axes


def test_runs_that_learnt_nothing_do_not_stretch_the_axis(lines: dict[str, Line]) -> None:
    low, high = drawn(CURVES, lines, chance=15).get_ylim()
    assert 84 < low < 85 and 89.5 < high < 91
    low, _ = drawn(CURVES, lines, chance=0).get_ylim()
    assert low < 11
    collapsed = drawn({"DANA": {16: "dana-16"}}, lines, chance=15)
    low, high = collapsed.get_ylim()
    assert low < 10.5 < high, "where nothing has learnt, the axis shows it"


def test_a_system_is_in_the_legend_once(lines: dict[str, Line]) -> None:
    def legend(*panels: Panel) -> list[str]:
        found = chart(panels, lines)
        assert found is not None
        return [text.get_text() for text in figure(found).legends[0].get_texts()]

    sweep = Sweep("N", {"GA": CURVES["GA"]}, Line.last, "accuracy (%)")
    against = Against(UPDATES, curves={"ga-16": "GA", "dana-16": "DANA"})
    assert legend(sweep, against) == ["GA", "DANA (2 seeds)"]
    assert legend(against) == ["GA (2 seeds)", "DANA (2 seeds)"]

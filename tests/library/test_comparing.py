"""Comparisons: the numbers and the figure of ``testbed compare``."""

from pathlib import Path

import numpy as np
import pytest

import testbed
from testbed.errors import SpecError, TestbedError
from testbed.results.figures.chart_files import write_figure
from tests.library.conftest import Simulated


def test_the_table_has_a_row_for_each_run(simulated: Simulated) -> None:
    comparison = testbed.compare(simulated.runs, accuracy=50)
    table = comparison.table()
    assert table["name"].tolist() == ["asgd", "adacomp-0.01"]
    assert table["wire_ratio"].tolist()[0] == 1
    assert table["best_accuracy"].tolist() == [r.summary.best_accuracy for r in simulated.runs]
    assert str(comparison).splitlines()[1].startswith("asgd ")
    assert "wire to 50 %" in str(comparison)
    shown = comparison._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<td>adacomp-0.01</td><td>1</td><td>completed</td>" in shown


@pytest.mark.parametrize("against", ["wire", "iteration", "time"])
def test_the_figure_is_that_of_the_report(
    simulated: Simulated, tmp_path: Path, against: str
) -> None:
    figure = testbed.compare(simulated.runs, accuracy=50).figure(against)  # type: ignore[arg-type]
    path = figure.save(tmp_path / "one.svg")
    recorded = [run.recorded for run in simulated.runs]
    theirs = write_figure(recorded, tmp_path / "other.svg", against, goal=50)  # type: ignore[arg-type]
    assert path.read_bytes() == theirs.read_bytes()
    assert figure._repr_svg_().encode() == theirs.read_bytes()
    assert len(figure.matplotlib().axes[0].lines) >= 2
    with pytest.raises(TestbedError, match=r"\.svg, \.png or \.pdf"):
        figure.save(tmp_path / "one.gif")


def test_time_is_that_of_the_runs_clock(simulated: Simulated) -> None:
    axes = testbed.compare(simulated.runs, accuracy=50).figure("time").matplotlib().axes[0]
    for line, run in zip(axes.lines, simulated.runs, strict=False):
        assert np.asarray(line.get_xdata()).tolist() == run.evaluations()["time"].to_pylist()


def test_an_axis_that_there_is_not_is_refused(simulated: Simulated) -> None:
    with pytest.raises(TestbedError, match=r"figure\('seconds'\): the axes are payload, message,"):
        testbed.compare(simulated.runs).figure("seconds")  # type: ignore[arg-type]


def test_runs_come_in_any_form_and_each_counts_once(simulated: Simulated) -> None:
    one, other = simulated.runs
    comparison = testbed.compare(one, str(other.directory), simulated.runs, baseline="adacomp-0.01")
    assert [row["name"] for row in comparison.records()] == ["asgd", "adacomp-0.01"]
    assert comparison.records()[1]["wire_ratio"] == 1
    with pytest.raises(SpecError, match="at least one"):
        testbed.compare()

"""Runs that are compared by another quantity than accuracy: tables and figures name and turn it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from testbed.library.comparing import compare as compare_in_library
from testbed.results.figures import quality_chart as quality_figure
from testbed.results.figures.chart_files import write_figures
from testbed.results.figures.paper import figure as drawn
from testbed.results.reading.curves import curves_of, quality_of
from testbed.results.reading.quality import ACCURACY, LOSS, Quality
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables import comparison as tables
from testbed.results.tables.reaching import reaching
from tests.results.conftest import WriteRun, evaluations_table

PERPLEXITY = {"name": "perplexity", "unit": "", "better": "lower"}
SPAN = {"name": "within", "unit": "px", "better": "higher"}


def falling(speed: float, least: float, *, accuracy: bool = True) -> dict[str, Any]:
    """Return the evaluations and the manifest's entry of a run whose perplexity falls from 2,000."""
    table = evaluations_table(200, 1_000_000, speed)
    values = least + (2000 - least) * np.exp(-table.column("iteration").to_numpy() / speed)
    table = table.append_column("perplexity", pa.array(values))
    return {"evaluations": table if accuracy else without_classes(table), "measure": PERPLEXITY}


def of_another() -> dict[str, Any]:
    """Return the evaluations and the manifest's entry of a run with a measure that rises."""
    table = evaluations_table(200, 1_000_000, 40)
    return {"evaluations": table.append_column("within", table.column("accuracy")), "measure": SPAN}


def without_classes(table: pa.Table) -> pa.Table:
    place = table.column_names.index("accuracy")
    return table.set_column(place, "accuracy", pa.array([np.nan] * len(table)))


@pytest.fixture
def two(write_run: WriteRun) -> list[RecordedRun]:
    """Runs whose perplexity ends at about 13.5 and 4."""
    slow, fast = falling(40, 0.0), falling(10, 4.0)
    return [
        RecordedRun.load(write_run("asgd", **slow)),
        RecordedRun.load(write_run("fast", **fast)),
    ]


def test_the_table_has_the_measure_in_place_of_the_accuracy(two: list[RecordedRun]) -> None:
    table = tables.compare(two)
    assert table.headings[4:6] == ("best perplexity", "final perplexity")
    assert not any("%" in heading for heading in table.headings)
    assert [cells[4] for cells in table.cells] == ["13.48", "4"]
    # By default the goal is what all of them reach.
    assert table.headings[-1] == "wire to 13.5"
    slow, fast = (row.wire_bytes_to_goal for row in table.rows)
    assert slow is not None and fast is not None and fast < slow / 2
    records = tables.records(table)
    assert records["perplexity"] == 13.5 and "accuracy" not in records
    assert records["runs"][1]["wire_bytes_to_perplexity"] == fast


def test_a_lower_value_reaches_a_goal(two: list[RecordedRun]) -> None:
    rows = reaching(curves_of(two), 10).rows
    assert [row.reached for row in rows] == [0, 1]
    value = rows[1].value
    assert value is not None and 4 < value <= 10
    assert rows[0].best == pytest.approx(13.48, abs=0.01)
    assert reaching(curves_of(two), 10).headings[0] == "to reach perplexity 10"


def test_figures_draw_and_name_the_measure(two: list[RecordedRun], tmp_path: Path) -> None:
    names = {path.stem for path in write_figures(two, tmp_path)}
    assert {"perplexity-versus-ingress", "perplexity-versus-iteration"} < names
    assert not any(name.startswith("accuracy") for name in names)

    figure = drawn(
        quality_figure.chart(curves_of(two), "iteration", True, reaching(curves_of(two)))
    )
    axes = figure.axes[0]
    assert axes.get_ylabel() == "test perplexity (lower is better)"
    assert axes.get_yscale() == "log"  # from 2,000 to 4
    measured = two[0].evaluations.measured
    assert measured is not None
    assert list(axes.lines[0].get_ydata()) == list(measured)  # type: ignore[arg-type]
    assert "\N{BLACK STAR} 13.5" in {text.get_text() for text in axes.texts}


def test_runs_of_different_measures_are_compared_by_what_they_share(write_run: WriteRun) -> None:
    one = RecordedRun.load(write_run("asgd", **falling(40, 4.0)))
    plain = RecordedRun.load(write_run("plain"))
    regression = RecordedRun.load(write_run("line", **falling(40, 4.0, accuracy=False)))
    loss = RecordedRun.load(
        write_run("own-loss", evaluations=without_classes(evaluations_table(200, 1_000, 40)))
    )
    assert quality_of([one, regression]) == Quality("perplexity")
    assert quality_of([one, plain]) == ACCURACY
    assert quality_of([loss]) == LOSS
    assert quality_of([one, plain, loss]) == LOSS
    table = tables.compare([one, plain])
    assert table.headings[4:8] == ("best perplexity", "final perplexity", "best %", "final %")
    # What the figure draws is known of both.
    assert [cells[4:8].count("\N{EM DASH}") for cells in table.cells] == [0, 2]
    both = tables.compare([one, RecordedRun.load(write_run("other", **of_another()))])
    assert both.headings[4:10:2] == ("best perplexity", "best within (px)", "best %")


def test_a_measure_of_which_more_is_better_has_its_unit(write_run: WriteRun) -> None:
    run = RecordedRun.load(write_run("asgd", **of_another()))
    (row,) = reaching(curves_of([run]), 50).rows
    assert row.reached == 1
    figure = drawn(quality_figure.chart(curves_of([run]), "wire", False))
    assert figure.axes[0].get_ylabel() == "test within (px, higher is better)"
    assert tables.compare([run]).headings[4] == "best within (px)"


def test_a_run_that_goes_on_has_its_measure(
    write_run: WriteRun, this_process: dict[str, Any]
) -> None:
    """Also of the evaluations that only curve.csv has yet."""
    run = RecordedRun.load(write_run("asgd", ended="running", **falling(40, 4.0), **this_process))
    (run.directory / "evaluations.arrows").unlink()
    assert run.evaluations.measured is not None
    assert len(run.evaluations.measured) == len(run.evaluations) > 1
    assert run.score.final == run.evaluations.measured[-1]


def test_a_goal_of_accuracy_is_refused_for_other_runs(two: list[RecordedRun]) -> None:
    with pytest.raises(Exception, match="compared by perplexity, not accuracy"):
        compare_in_library(*(run.directory for run in two), accuracy=97)
    comparison = compare_in_library(*(run.directory for run in two), goal=5)
    assert json.loads(json.dumps(comparison.records()))[0]["wire_bytes_to_perplexity"] is None


def test_a_goal_is_rounded_to_the_worse_side() -> None:
    assert Quality("perplexity").rounded(29.641) == 29.7
    assert Quality("within", "%", "higher").rounded(29.678) == 29.6
    assert LOSS.rounded(0.0012341) == 0.00124

"""The numbers that a run's algorithm itself reported: the table in the command line and the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from testbed.cli import app
from testbed.number_text import UNKNOWN
from testbed.results.figures.chart_files import write_figures
from testbed.results.figures.diagnostics_chart import POINTS, exact_beside, thinned
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.report import write_report
from testbed.results.tables.diagnostics import HEADINGS, diagnostic_rows

DECLARED = [
    {"name": "gap", "meaning": "Mean gap of the update's entries, <1 at least>."},
    {"name": "gain", "meaning": "Estimated decrease of the loss."},
]


@pytest.fixture
def directory(write_run: Any) -> Path:
    folder: Path = write_run(count=4, diagnostics=DECLARED)
    columns = {
        "iteration": np.arange(1, 5),
        "gap": np.array([1.0, 2.0, 4.0, 3.0]),
        "gain": np.array([np.nan, np.nan, 0.25, np.nan]),
    }
    parquet.write_table(pa.table(columns), folder / "diagnostics.parquet")
    return folder


def test_the_table_has_the_last_and_mean_of_the_known_values(directory: Path) -> None:
    gap, gain = diagnostic_rows(RecordedRun.load(directory))
    assert (gap.last, gap.mean, gap.least, gap.greatest) == (3.0, 2.5, 1.0, 4.0)
    assert (gain.last, gain.mean, gain.least, gain.greatest) == (0.25,) * 4
    assert gap.cells == ("gap", "3", "2.5", "1", "4", DECLARED[0]["meaning"])
    assert len(gap.cells) == len(HEADINGS)


def test_a_run_without_any_update_yet_has_unknown_values(directory: Path) -> None:
    (directory / "diagnostics.parquet").unlink()
    gap, _ = diagnostic_rows(RecordedRun.load(directory))
    assert (gap.last, gap.mean) == (None, None)
    assert gap.cells[1:5] == (UNKNOWN,) * 4


def test_show_and_the_report_have_the_table(directory: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["show", str(directory)])
    assert "Estimated decrease of the loss." in shown.stdout
    told = json.loads(CliRunner().invoke(app, ["show", str(directory), "--json"]).stdout)
    assert told[0]["diagnostics"][0] == {
        "name": "gap",
        "last": 3.0,
        "mean": 2.5,
        "least": 1.0,
        "greatest": 4.0,
        "meaning": DECLARED[0]["meaning"],
    }
    page = write_report([RecordedRun.load(directory)], tmp_path / "report.html").read_text()
    assert '<h2 id="diagnostics">Diagnostics</h2>' in page
    assert "&lt;1 at least&gt;" in page


def test_runs_of_algorithms_without_diagnostics_have_no_table(
    write_run: Any, tmp_path: Path
) -> None:
    run = RecordedRun.load(write_run())
    assert diagnostic_rows(run) == ()
    assert "Diagnostics" not in write_report([run], tmp_path / "report.html").read_text()


def test_figure_and_report_draw_diagnostics_beside_exact_values(
    write_run: Any, tmp_path: Path
) -> None:
    evaluations = pa.table(
        {
            **{name: [0, 2, 4] for name in ("iteration", "payload_bytes", "message_bytes")},
            "wire_bytes": [0, 2, 4],
            **{name: [0.0, 1.0, 2.0] for name in ("time", "accuracy", "loss")},
            "gradient_norm": [5.0, 6.0, 7.0],
        }
    )
    norm = {"name": "norm", "meaning": "The estimate.", "estimates": "gradient_norm"}
    folder = write_run(
        count=4, diagnostics=[norm], exact=["gradient_norm"], evaluations=evaluations
    )
    estimates = {"iteration": np.arange(1, 5), "norm": np.array([np.nan, 4.0, 8.0, np.nan])}
    parquet.write_table(pa.table(estimates), folder / "diagnostics.parquet")
    run = RecordedRun.load(folder)
    # The version of iteration 4 has no update after it.
    at, exact = exact_beside(run, run.manifest.diagnostics[0])
    assert (at.tolist(), exact.tolist()) == ([1, 3], [5.0, 6.0])
    x, y = thinned(run.diagnostics["norm"])
    assert (x.tolist(), y.tolist()) == ([2.0, 3.0], [4.0, 8.0])
    assert len(thinned(np.arange(1e4))[0]) == POINTS
    names = {path.name for path in write_figures([run], tmp_path / "figures")}
    assert "diagnostics.svg" in names
    page = write_report([run], tmp_path / "report.html").read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    [plot] = data["charts"]["diagnostics"]["plots"]
    estimated, computed = plot["panels"][0]["series"]
    assert [data["arrays"][one] for one in (estimated["x"], estimated["y"])] == [[2, 3], [4, 8]]
    assert [data["arrays"][one] for one in (computed["x"], computed["y"])] == [[1, 3], [5, 6]]
    assert 'id="chart-diagnostics"' in page
    assert "exact values" in page

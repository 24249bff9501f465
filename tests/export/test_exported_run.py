"""What is exported of a run is what its directory says."""

import json
from pathlib import Path

import pytest

import testbed
from testbed.errors import TestbedError
from testbed.export import exporting
from testbed.export.exported_run import ExportedRun
from testbed.results.reading.recorded_run import RecordedRun
from tests.export.conftest import SMALL, columns, grown


def test_options_have_the_keys_of_set(runs: list[RecordedRun]) -> None:
    options = ExportedRun(runs[1]).options
    assert options["algorithms.0.momentum"] == 0.5
    assert options["training.updates"] == 60
    assert options["waiting.mean"] == "10ms"
    assert options["seed"] == 1
    assert options["engine"] == "simulation"
    summary = json.loads((runs[1].directory / "summary.json").read_text())
    assert options["parameters_sha256"] == summary["parameters_sha256"]
    assert "training.clip" not in options  # null


def test_results_and_tables_are_those_of_the_directory(runs: list[RecordedRun]) -> None:
    run = ExportedRun(runs[1])
    summary = json.loads((runs[1].directory / "summary.json").read_text())
    assert run.results["best_accuracy"] == summary["best_accuracy"]
    assert run.results["ingress.wire_bytes"] == summary["ingress"]["wire_bytes"]
    evaluations, diagnostics, ingress = run.tables
    assert {name: one.tolist() for name, one in evaluations.columns.items()} == columns(runs[1])
    own = columns(runs[1], "diagnostics")
    assert {name: one.tolist() for name, one in diagnostics.values.items()} == {
        name: own[name] for name in own if name != "iteration"
    }
    [rates] = ingress.values.values()
    assert rates.sum() == sum(columns(runs[1], "updates")["message_bytes"])  # all within one second


def test_a_report_on_an_update_has_the_time_of_the_push_that_made_it(tmp_path: Path) -> None:
    """Pushes that came too late for an update have its number, and a later time."""
    synchronous = testbed.Experiment.parse(SMALL).with_(
        algorithms=[{"name": "sync-sgd", "wait_for": 2}],
        waiting__distribution="exponential",
        evaluation__every=5,
    )
    run = testbed.simulate(synchronous, out=tmp_path, progress=False).only.recorded
    assert not all(run.pushes.column("applied").to_pylist())
    evaluations, diagnostics, _ = ExportedRun(run).tables
    evaluated = evaluations.steps["iteration"][1:]
    assert diagnostics.time[evaluated - 1].tolist() == evaluations.time[1:].tolist()


def test_the_digest_tells_a_run_that_has_grown_from_itself(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    run, same = ExportedRun(runs[0]), ExportedRun(RecordedRun.load(runs[0].directory))
    earlier = ExportedRun(grown(runs[0], tmp_path))
    assert run.digest == same.digest != earlier.digest
    assert run.identity == earlier.identity != ExportedRun(runs[1]).identity


def test_a_missing_library_is_named_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exporting, "_installed", lambda module: module != "alembic")
    with pytest.raises(TestbedError, match=r"pip install 'testbed\[mlflow\]'"):
        exporting.destination("mlflow", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()

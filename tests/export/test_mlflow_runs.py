"""Runs of MLflow: in a folder, and on a real server, which a real Chromium shows."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.errors import TestbedError
from testbed.export.exporting import destination
from testbed.results.reading.recorded_run import RecordedRun
from tests.chromium import chromium, chromium_needed, watched
from tests.export.conftest import columns, grown, server, what

if TYPE_CHECKING:  # not for the processes that carry out other tests: it takes seconds
    from mlflow import MlflowClient

pytestmark = pytest.mark.skipif(find_spec("mlflow") is None, reason="MLflow is not installed")
SERVER = Path(__file__).parents[2] / "build" / "mlflow"
"""Where `make test` puts what the server needs besides the client."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not SERVER.is_dir():
        pytest.skip("MLflow's server is not installed: make build/mlflow/.installed")
    folder = tmp_path_factory.mktemp("mlflow")
    command: list[str | Path] = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        *("--artifacts-destination", folder / "artifacts"),
    ]
    path = os.pathsep.join([str(SERVER), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with server(command, "/health", PYTHONPATH=path, **quiet) as running:
        yield running


def check(client: "MlflowClient", run: RecordedRun, folder: Path) -> None:
    """Check that a server or a database has a run once, with all that was exported."""
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], f"tags.`testbed.run` = '{run.id}'")
    [only] = found
    assert only.info.run_name == f"{run.algorithm}, seed 1"
    assert only.info.status == "FINISHED"
    assert only.data.params["training.updates"] == "60"
    assert only.data.metrics["result/best_accuracy"] == run.summary.best_accuracy
    table = columns(run)
    for step in ("iteration", "wire_bytes"):
        history = client.get_metric_history(only.info.run_id, f"accuracy/by_{step}")
        history.sort(key=lambda one: one.step)
        assert [one.step for one in history] == table[step]
        assert [one.value for one in history] == table["accuracy"]
    path = client.download_artifacts(only.info.run_id, "spec.yaml", str(folder))
    assert Path(path).read_bytes() == (run.directory / "spec.yaml").read_bytes()


def test_a_folder_has_each_run_once(
    runs: list[RecordedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setattr("testbed.export.mlflow_runs.POINTS", 4)
    folder = tmp_path / "out"
    out = destination("mlflow", str(folder))
    assert what([grown(runs[1], tmp_path)], out) == ["written"]
    assert what(runs, out) == ["written", "replaced"]
    assert what(runs, out) == ["unchanged"] * 2
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    for run in runs:
        check(client, run, tmp_path)
    [found] = client.search_runs(["1"], f"tags.`testbed.run` = '{runs[1].id}'")
    thinned = client.get_metric_history(found.info.run_id, "diagnostics/delay")
    own = columns(runs[1], "diagnostics")
    assert sorted(one.step for one in thinned) == [1, 21, 40, 60]
    assert {own["delay"][one.step - 1] == one.value for one in thinned} == {True}


@chromium_needed
@pytest.mark.exercises("Chromium")
@pytest.mark.exercises("MLflow")
def test_a_server_has_and_shows_each_run_once(
    runs: list[RecordedRun], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    out = destination("mlflow", None)
    run = runs[1]
    assert what([grown(run, tmp_path)], out) == ["written"]
    assert what([run], out, figures=True) == ["replaced"]
    assert what([run], out, figures=True) == ["unchanged"]
    from mlflow import MlflowClient

    client = MlflowClient(address)
    check(client, run, tmp_path)
    [found] = client.search_runs(["1"], f"tags.`testbed.run` = '{run.id}'")
    with chromium() as browser:
        page = watched(browser.new_context(), [], [])
        page.goto(f"{address}/#/experiments/1/runs")
        page.wait_for_selector(f"text={run.algorithm}, seed 1 >> visible=true")
        own = f"{address}/#/experiments/1/runs/{found.info.run_id}"
        page.goto(f"{own}/model-metrics")
        page.wait_for_selector("text=by_wire_bytes >> visible=true")
        page.goto(f"{own}/artifacts/figures/accuracy-versus-ingress.png")
        page.wait_for_function(
            "[...document.images].some((one) => one.naturalWidth > 500)", timeout=60_000
        )


def test_a_server_that_does_not_answer_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TestbedError, match=r"http://127\.0\.0\.1:9 does not take the runs"):
        destination("mlflow", "http://127.0.0.1:9")

"""A small run from the experiment file to its report, and the commands that read it afterwards."""

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

WORKERS, UPDATES, PARAMETERS = 5, 200, 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
RUN_FILES = {
    "spec.yaml",
    "manifest.json",
    "updates.parquet",
    "evaluations.parquet",
    "curve.csv",
    "events.jsonl",
    "faults.jsonl",
    "summary.json",
    "utilisation.parquet",
    "traffic",
    "parameters.npy",
    "processes.log",
}


@dataclass
class Finished:
    """An execution of two algorithms that has completed."""

    command: CommandLine
    status: int
    output: str
    errors: str

    @property
    def execution(self) -> Path:
        (report,) = self.command.out.glob("*/*/report.html")
        return report.parent


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    command = CommandLine(tmp_path_factory.mktemp("finished"))
    both = SMALL | {"algorithms": ["asgd", {"name": "adacomp", "ratio": 0.01}]}
    started = command.start_run(both, report=True)
    try:
        started.until_training()
        traces = started.traces()
        assert len(traces.processes) == 1 + 3 + WORKERS + 2
        assert len(traces.networks) == 1 + WORKERS + 2
        status = started.wait()
        traces.assert_gone()
        yield Finished(command, status, started.output.read_text(), started.said)
    finally:
        command.close()


def read(path: Path) -> Any:
    return json.loads(path.read_bytes())


@pytest.fixture(params=["asgd", "adacomp-0.01"])
def directory(finished: Finished, request: pytest.FixtureRequest) -> Path:
    return finished.execution / str(request.param)


def test_the_command_prints_its_progress_and_the_results(finished: Finished) -> None:
    assert finished.status == 0, finished.errors
    table = finished.output.splitlines()
    assert table[0].startswith("run ")
    assert [line.split()[0] for line in table[1:3]] == ["asgd", "adacomp-0.01"]
    assert table[-1] == f"report: {finished.execution / 'report.html'}"
    assert "asgd (1/2): training" in finished.errors
    assert re.search(r"adacomp-0\.01 \(2/2\): .*200/200 updates", finished.errors)
    assert "\x1b" not in finished.output + finished.errors
    assert "\r" not in finished.output + finished.errors


def test_the_run_directory_has_every_file(finished: Finished, directory: Path) -> None:
    assert {path.name for path in directory.iterdir()} == RUN_FILES
    in_execution = {path.name for path in finished.execution.iterdir()}
    assert in_execution == {"experiment.yaml", "report.html", "figures", "asgd", "adacomp-0.01"}
    assert {path.suffix for path in (finished.execution / "figures").iterdir()} == {".svg", ".png"}
    assert (directory / "processes.log").read_text() == ""
    page = (finished.execution / "report.html").read_text()
    assert "adacomp-0.01" in page
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(?!data:)', page)


def test_every_device_has_its_processor_time_and_its_bytes(directory: Path) -> None:
    devices = {
        row["device"]: row for row in pq.read_table(directory / "utilisation.parquet").to_pylist()
    }
    assert list(devices) == [*(f"worker-{number}" for number in range(WORKERS)), "server"]
    of_pushes = pq.read_table(directory / "updates.parquet").to_pydict()
    for row in devices.values():
        # A group counts where one can be made; elsewhere the processes do.
        assert row["cpu_source"] in ("control group", "process")
        assert row["cpu_window"] > 0
        assert 0 < row["cpu_seconds"] < 1.5 * row["cpu_window"]
        assert row["cpu_utilisation"] == row["cpu_seconds"] / row["cpu_window"]
        assert row["bytes_source"] == "counted"
        assert row["uplink_utilisation"] is None  # no rate limits it
    for number in range(WORKERS):
        mine = np.array(of_pushes["worker"]) == number
        pushed = int(np.array(of_pushes["message_bytes"])[mine].sum())
        assert pushed < devices[f"worker-{number}"]["sent_bytes"] < 2 * pushed + 100_000
    remarks = read(directory / "summary.json")["utilisation"]["remarks"]
    assert all("no control group" in one for one in remarks)


def test_the_numbers_in_the_run_directory_agree(directory: Path) -> None:
    summary, manifest = read(directory / "summary.json"), read(directory / "manifest.json")
    assert (manifest["ended"], manifest["reason"]) == ("completed", None)
    assert (summary["ended"], summary["reason"]) == ("completed", None)
    assert summary["updates"] == UPDATES
    assert summary["workers_lost"] == 0
    assert manifest["finished"] >= manifest["started"]
    ingress = summary["ingress"]

    updates = pq.read_table(directory / "updates.parquet").to_pydict()
    assert updates["iteration"] == list(range(1, UPDATES + 1))
    assert set(updates["worker"]) == set(range(WORKERS))
    assert sum(updates["payload_bytes"]) == ingress["payload_bytes"]
    assert sum(updates["message_bytes"]) <= ingress["message_bytes"]
    staleness = np.array(updates["iteration"]) - 1 - np.array(updates["base_version"])
    assert updates["staleness"] == staleness.tolist()
    assert np.all(np.diff(updates["time"]) >= 0)

    with (directory / "curve.csv").open(newline="") as file:
        curve = list(csv.DictReader(file))
    evaluations = pq.read_table(directory / "evaluations.parquet").to_pylist()
    assert [{key: float(text) for key, text in row.items()} for row in curve] == evaluations
    assert [row["iteration"] for row in evaluations] == list(range(0, UPDATES + 1, 50))
    last = evaluations[-1]
    assert last["accuracy"] == summary["final_accuracy"]
    assert max(row["accuracy"] for row in evaluations) == summary["best_accuracy"]
    assert {key: last[key] for key in ingress} == ingress
    assert ingress["wire_bytes"] > ingress["message_bytes"] > ingress["payload_bytes"]

    parameters = np.load(directory / "parameters.npy")
    assert (parameters.dtype, parameters.shape) == (np.float32, (PARAMETERS,))
    digest = hashlib.sha256(parameters.astype("<f4").tobytes()).hexdigest()
    assert digest == summary["parameters_sha256"]


def test_training_learns_and_adacomp_sends_fewer_bytes(finished: Finished) -> None:
    dense = read(finished.execution / "asgd" / "summary.json")
    assert dense["ingress"]["payload_bytes"] == 4 * PARAMETERS * UPDATES
    assert dense["best_accuracy"] > 50  # of ten classes
    # 1 % of the values as index and value are about 2 % of the bytes.
    sparse = read(finished.execution / "adacomp-0.01" / "summary.json")
    share = sparse["ingress"]["payload_bytes"] / dense["ingress"]["payload_bytes"]
    assert 0.01 < share < 0.025


def test_ls_and_show_list_the_runs(finished: Finished) -> None:
    listed = finished.command.do("ls", "--json")
    assert listed.returncode == 0, listed.stderr
    (execution,) = json.loads(listed.stdout)
    assert Path(execution["directory"]) == finished.execution
    shown = finished.command.do("show", "small", "--json")
    assert shown.returncode == 0, shown.stderr
    for told in (execution["runs"], json.loads(shown.stdout)):
        assert {run["run"].split("/")[-1]: run["ended"] for run in told} == {
            "asgd": "completed",
            "adacomp-0.01": "completed",
        }


def test_compare_draws_the_runs(finished: Finished) -> None:
    compared = finished.command.do("compare", finished.execution, "--out", "figure.svg")
    assert compared.returncode == 0, compared.stderr
    # The same table that the run printed.
    assert compared.stdout.splitlines()[:3] == finished.output.splitlines()[:3]
    assert "<svg" in (finished.command.folder / "figure.svg").read_text()


def test_report_writes_the_same_files_again(finished: Finished) -> None:
    execution = finished.execution
    before = {path: path.stat().st_mtime_ns for path in (execution / "figures").iterdir()}
    (execution / "report.html").unlink()
    result = finished.command.do("report", execution)
    assert result.returncode == 0, result.stderr
    assert (execution / "report.html").exists()
    after = {path: path.stat().st_mtime_ns for path in (execution / "figures").iterdir()}
    assert after.keys() == before.keys()
    assert all(after[path] > before[path] for path in before)


def test_two_runs_at_once_do_not_interfere(command: CommandLine) -> None:
    both = [command.start_run(SMALL, "--json", report=True) for _ in range(2)]
    assert [started.wait() for started in both] == [0, 0], [started.said for started in both]
    # Nothing but the JSON is on the standard output.
    told = [json.loads(started.output.read_text()) for started in both]
    assert told[0]["directory"] != told[1]["directory"]
    for execution in told:
        (summary,) = execution["runs"]
        assert summary["ended"] == "completed"
        assert summary["ingress"]["payload_bytes"] == 4 * PARAMETERS * UPDATES
        assert read(Path(execution["directory"]) / "asgd" / "summary.json") == summary
        assert Path(execution["report"]).exists()
    assert len(list(command.out.glob("small/*"))) == 2

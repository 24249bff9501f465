"""Reading of run directories, complete or cut off."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from testbed.errors import TestbedError
from testbed.results.reading.distinct_names import distinct_names
from testbed.results.reading.finding import find, resolve
from testbed.results.reading.recorded_run import KILLED, RecordedRun
from testbed.results.tables.comparison import compare
from tests.results.conftest import EVERY, WriteRun, evaluations_table, updates_table, write_stream


def test_a_completed_run_is_read(write_run: WriteRun) -> None:
    run = RecordedRun.load(write_run("asgd", count=200, payload=1000))
    assert run.id == "quickstart/20261121-074500-1/asgd"
    assert (run.ended, run.summary.reconstructed) == ("completed", False)
    assert run.pushes.num_rows == 200
    assert run.evaluations.iteration.tolist() == list(range(0, 201, EVERY))
    assert run.evaluations.first_reaching(0) == 0
    assert run.evaluations.first_reaching(99) is None
    assert run.evaluations.diverged_at is None
    assert [event.level for event in run.events] == ["info", "warning"]


def test_a_running_and_a_killed_run_differ_only_in_their_process(
    write_run: WriteRun, this_process: dict[str, Any], killed_process: dict[str, Any]
) -> None:
    alive = RecordedRun.load(write_run("a", ended="running", **this_process))
    killed = RecordedRun.load(write_run("b", ended="running", **killed_process))
    assert (alive.ended, alive.summary.reason) == ("running", None)
    assert (killed.ended, killed.summary.reason) == ("interrupted", KILLED)
    for run in (alive, killed):
        assert run.summary.reconstructed
        assert run.summary.updates == 200
        assert run.summary.ingress.payload_bytes == 200 * 1_000_000
        assert run.summary.best_accuracy == pytest.approx(float(run.evaluations.accuracy.max()))


def test_updates_per_second_of_a_killed_run_are_by_the_hosts_clock(
    write_run: WriteRun, killed_process: dict[str, Any]
) -> None:
    directory = write_run("asgd", ended="running", clock="virtual", **killed_process)
    assert RecordedRun.load(directory).summary.updates_per_second is None  # no journal has it
    table = updates_table(40, 100)
    host_time = pa.array(np.linspace(0.1, 8.0, 40))
    write_stream(directory / "updates.arrows", table.append_column("host_time", host_time), 40)
    (directory / "evaluations.arrows").unlink()
    (directory / "curve.csv").unlink()
    summary = RecordedRun.load(directory).summary
    assert (summary.updates, summary.host_seconds, summary.updates_per_second) == (40, 8.0, 5.0)


def test_a_killed_run_of_programs_has_rounds_and_no_payload(
    write_run: WriteRun, killed_process: dict[str, Any]
) -> None:
    run = RecordedRun.load(
        write_run("flower", ended="running", programs={"job": ["server"]}, **killed_process)
    )
    ingress = run.summary.ingress
    assert (ingress.payload_bytes, ingress.message_bytes) == (None, None)
    assert ingress.wire_bytes == run.evaluations.wire_bytes[-1]
    assert "rounds" in compare([run]).headings


def test_a_stream_cut_off_anywhere_gives_its_complete_batches(tmp_path: Path) -> None:
    from testbed.results.reading.journals import read_updates

    table = updates_table(40, 100)
    path = tmp_path / "updates.arrows"
    ends = write_stream(path, table, batch=10)
    data = path.read_bytes()
    assert len(ends) == 4
    cuts = {0, 1, 7, 8, 100, len(data) - 1, len(data)}
    cuts |= {end + shift for end in ends for shift in (-9, -1, 0, 1, 9)}
    cuts |= set(range(ends[0], ends[1], 37))
    for cut in sorted(c for c in cuts if c <= len(data)):
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends)
        read = read_updates(tmp_path)
        assert read.num_rows == 10 * whole, f"cut at {cut} of {len(data)}, batches end at {ends}"
        assert read.column("iteration").to_pylist() == list(range(1, 10 * whole + 1))


def test_the_curve_in_text_is_read_if_the_stream_has_less(
    write_run: WriteRun, killed_process: dict[str, Any]
) -> None:
    directory = write_run("asgd", ended="running", **killed_process)
    (directory / "evaluations.arrows").write_bytes(b"")
    text = (directory / "curve.csv").read_text()
    (directory / "curve.csv").write_text(text.rstrip("\n")[:-3])  # the last line is cut off
    assert RecordedRun.load(directory).evaluations.iteration.tolist() == list(range(0, 191, EVERY))


def test_a_diverged_run_has_a_best_accuracy_and_no_final_one(write_run: WriteRun) -> None:
    table = evaluations_table(100, 1000)
    loss = table.column("loss").to_numpy().copy()
    accuracy = table.column("accuracy").to_numpy().copy()
    loss[5:], accuracy[8:] = np.inf, np.nan
    table = table.set_column(3, "loss", pa.array(loss)).set_column(
        2, "accuracy", pa.array(accuracy, from_pandas=False)
    )
    run = RecordedRun.load(write_run("asgd", count=100, evaluations=table))
    assert run.evaluations.diverged_at == 50
    assert run.summary.best_accuracy == pytest.approx(float(accuracy[7]))
    assert run.summary.final_accuracy is None


def test_a_run_without_any_evaluation_is_read(write_run: WriteRun) -> None:
    run = RecordedRun.load(write_run("asgd", evaluations=evaluations_table(0, 1)[:0]))
    assert len(run.evaluations) == 0
    assert run.summary.best_accuracy is None


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (None, "holds no manifest.json"),
        ("{", "cannot be read"),
        ("{}", "format: field required"),
        ('{"format": 2}', "no run's manifest"),
    ],
)
def test_a_folder_that_is_no_run_is_refused_with_the_reason(
    tmp_path: Path, manifest: str | None, reason: str
) -> None:
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(TestbedError, match=reason):
        RecordedRun.load(tmp_path)


def test_a_newer_format_is_refused(write_run: WriteRun) -> None:
    directory = write_run("asgd")
    told = json.loads((directory / "manifest.json").read_text()) | {"format": 2}
    (directory / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(TestbedError, match="reads format 1"):
        RecordedRun.load(directory)


def test_runs_are_found_by_each_of_their_names(
    write_run: WriteRun, three: Path, runs_root: Path
) -> None:
    older = write_run("asgd", "other/20261120-000000-1", started="2026-11-20T00:00:00+00:00")
    assert [e.id for e in find(runs_root)] == [
        "other/20261120-000000-1",
        "quickstart/20261121-074500-1",
    ]
    labels = ["asgd", "comp-asgd-0.01", "adacomp-0.01"]
    for name in ("quickstart", "quickstart/20261121-074500-1", str(three), "latest"):
        assert [run.algorithm for run in resolve(name, runs_root)] == labels
    for name in ("quickstart/20261121-074500-1/asgd", str(three / "asgd")):
        assert [run.id for run in resolve(name, runs_root)] == ["quickstart/20261121-074500-1/asgd"]
    (run,) = resolve("other", runs_root)
    assert run.directory == older.resolve()
    with pytest.raises(TestbedError, match="nearest names are quickstart"):
        resolve("quickstrat", runs_root)


def test_one_broken_run_does_not_hide_the_others(three: Path, runs_root: Path) -> None:
    (three / "asgd" / "manifest.json").write_text("{")
    (execution,) = find(runs_root)
    assert [run.algorithm for run in execution.runs] == ["comp-asgd-0.01", "adacomp-0.01"]
    assert len(execution.unreadable) == 1


def test_runs_get_distinct_names(write_run: WriteRun) -> None:
    one = RecordedRun.load(write_run("asgd"))
    two = RecordedRun.load(write_run("asgd", "quickstart/20261121-080000-2", seed=2))
    three = RecordedRun.load(write_run("asgd", "quickstart/20261121-090000-2", seed=2))
    assert distinct_names([one]) == ("asgd",)
    assert distinct_names([one, two]) == ("asgd, seed 1", "asgd, seed 2")
    assert distinct_names([two, three]) == (two.id, three.id)


def test_reading_starts_no_threads(write_run: WriteRun) -> None:
    """Arrow's threads abort a process that ends while they free what was read."""
    program = """
import os, sys
from pathlib import Path
from pyarrow import parquet
from testbed.results.reading.journals import read_evaluations, read_updates
before = set(os.listdir("/proc/self/task"))
assert read_updates(Path(sys.argv[1])).num_rows and read_evaluations(Path(sys.argv[1])).num_rows
print(len(set(os.listdir("/proc/self/task")) - before))
"""
    command = [sys.executable, "-c", program, str(write_run())]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "0\n"

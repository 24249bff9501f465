"""A run directory is valid at any moment, and complete at the end."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.faults.fault import Fault
from testbed.results.faults import read_faults
from testbed.telemetry.records import UPDATE
from testbed.telemetry.run_log import CURVE_COLUMNS, RunLog


def rows(first: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    made = np.zeros(count, UPDATE)
    made["iteration"] = np.arange(first, first + count)
    made["loss"] = 0.5
    return made


def row(iteration: int) -> dict[str, float]:
    return dict.fromkeys(CURVE_COLUMNS, 1) | {"iteration": iteration, "accuracy": 97.5}


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "run", "name: x\n", {"experiment": "x"})


def test_what_is_written_can_be_read_before_the_end(log: RunLog) -> None:
    log.updates(rows(1, 3))
    log.updates(rows(4, 2))
    log.evaluation(row(5))
    log.event(1.23456, "warning", "something", "worker-1")
    stream = pa.ipc.open_stream(str(log.directory / "updates.arrows"))
    batches = []
    with pytest.raises((StopIteration, pa.ArrowInvalid)):
        while True:
            batches.append(stream.read_next_batch())
    assert [v for b in batches for v in b.column("iteration").to_pylist()] == [1, 2, 3, 4, 5]
    assert (log.directory / "curve.csv").read_text().splitlines() == [
        "iteration,time,accuracy,loss,payload_bytes,message_bytes,wire_bytes",
        "5,1,97.5,1,1,1,1",
    ]
    manifest = json.loads((log.directory / "manifest.json").read_text())
    assert (manifest["ended"], manifest["finished"]) == ("running", None)
    (event,) = (log.directory / "events.jsonl").read_text().splitlines()
    assert json.loads(event) == {
        "time": 1.235,
        "level": "warning",
        "device": "worker-1",
        "event": "something",
    }


def test_the_end_makes_parquet_and_leaves_nothing_half_done(log: RunLog) -> None:
    log.updates(rows(1, 3))
    log.evaluation(row(3))
    vector = np.array([1.5, -2.0], np.float32)
    assert log.parameters(vector) == hashlib.sha256(vector.astype("<f4").tobytes()).hexdigest()
    log.close("completed", None, {"updates": 3})
    table = pq.read_table(log.directory / "updates.parquet")
    assert table.column_names == list(UPDATE.names or ())
    assert table["iteration"].to_pylist() == [1, 2, 3]
    assert pq.read_table(log.directory / "evaluations.parquet")["accuracy"].to_pylist() == [97.5]
    assert sorted(p.name for p in log.directory.iterdir()) == [
        "curve.csv",
        "evaluations.parquet",
        "events.jsonl",
        "faults.jsonl",
        "manifest.json",
        "parameters.npy",
        "spec.yaml",
        "summary.json",
        "traffic",
        "updates.parquet",
    ]
    assert json.loads((log.directory / "summary.json").read_text()) == {"updates": 3}
    assert json.loads((log.directory / "manifest.json").read_text())["ended"] == "completed"


def test_an_earlier_run_is_never_overwritten(log: RunLog) -> None:
    with pytest.raises(FileExistsError):
        RunLog(log.directory, "", {})


def test_faults_are_written_told_and_counted_once_for_each_device(tmp_path: Path) -> None:
    heard: list[Any] = []
    log = RunLog(tmp_path / "run", "name: x\n", {"experiment": "x"}, heard.append)
    freeze = Fault(0, "freeze", 2.0)
    records = [
        (freeze.record("begin", (3, 4), 1.0, 7), ["worker-3", "worker-4"]),
        (freeze.record("end", (3, 4), 3.0, 9), ["worker-3", "worker-4"]),
        (freeze.record("begin", (3,), 5.0, 11), ["worker-3"]),
        (Fault(1, "kill", 0.0).record("begin", (-1,), 6.0, 12), ["server"]),
    ]
    for record, names in records:
        log.fault(record, names, 0.25)
    assert heard == [record for record, _ in records]
    assert log.struck == {"freeze": 2, "kill": 1}
    lines = (log.directory / "faults.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {
        "fault": "freeze",
        "phase": "begin",
        "rule": 0,
        "devices": ["worker-3", "worker-4"],
        "time": 1.0,
        "iteration": 7,
        "duration": 2.0,
        "host_time": 0.25,
    }
    strikes = read_faults(log.directory)  # before the end, as after a kill
    assert [(s.kind, s.device, s.ended is None) for s in strikes] == [
        ("freeze", "worker-3", False),
        ("freeze", "worker-4", False),
        ("freeze", "worker-3", True),
        ("kill", "server", True),
    ]

"""The run log: a run directory is valid at any moment, and complete at the end."""

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.faults.fault import Fault
from testbed.results.reading.journals import read_columns
from testbed.results.reading.recorded_faults import read_faults
from testbed.runs.outcome import RunOutcome
from testbed.telemetry.entries import (
    Diagnoses,
    EvaluationMade,
    FaultChanged,
    Noted,
    RunEntry,
    Updates,
)
from testbed.telemetry.evaluation_log import CURVE_COLUMNS
from testbed.telemetry.run_log import COUNTER_COLUMNS, Kept, RunLog
from testbed.telemetry.update_rows import UPDATE


def rows(first: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    made = np.zeros(count, UPDATE)
    made["iteration"] = np.arange(first, first + count)
    made["loss"] = 0.5
    return made


def row(iteration: int) -> dict[str, float]:
    return dict.fromkeys(CURVE_COLUMNS, 1) | {"iteration": iteration, "accuracy": 97.5}


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    began = time.monotonic() - 5
    return RunLog(tmp_path / "run", "name: x\n", {"experiment": "x"}, began=began)


def test_what_is_shown_of_an_event_has_no_effect_on_a_terminal(tmp_path: Path) -> None:
    shown: list[tuple[str, str]] = []
    log = RunLog(tmp_path / "run", "", {}, show=lambda level, text: shown.append((level, text)))
    log.take(Noted("warning", "it said \x1b]0;title\x07 and\nmore\x1b[2J", "worker-1"))
    assert shown == [("warning", r"worker-1: it said \x1b]0;title\x07 and" + "\n" + r"more\x1b[2J")]
    (line,) = (log.directory / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["event"] == "it said \x1b]0;title\x07 and\nmore\x1b[2J"


def test_records_can_be_read_before_the_run_ends(log: RunLog) -> None:
    log.take(Updates(rows(1, 3), 0))
    log.take(Updates(rows(4, 2), 0))
    log.take(EvaluationMade(row(5)))
    log.take(Noted("warning", "something", "worker-1"))
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
    written = json.loads(event)
    assert 5 <= written.pop("time") < 15
    assert written == {
        "level": "warning",
        "kind": "remark",
        "device": "worker-1",
        "event": "something",
    }


def test_closing_the_log_writes_parquet_and_removes_the_streams(log: RunLog) -> None:
    log.take(Updates(rows(1, 3), 0))
    log.take(EvaluationMade(row(3)))
    vector = np.array([1.5, -2.0], np.float32)
    log.parameters(vector)
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


# -- resuming


def kept(log: RunLog, updates: int, evaluations: int) -> Kept:
    """Return what a run keeps that is resumed after so many updates and evaluations."""
    directory = log.directory
    return Kept(
        json.loads((directory / "manifest.json").read_text()),
        {
            "updates": read_columns(directory, "updates", UPDATE.names or ()).slice(0, updates),
            "evaluations": read_columns(directory, "evaluations", CURVE_COLUMNS).slice(
                0, evaluations
            ),
            "counters": read_columns(directory / "traffic", "counters", COUNTER_COLUMNS),
        },
        (directory / "faults.jsonl").read_text().splitlines()[:1],
        {"version": updates},
    )


def going(log: RunLog) -> RunLog:
    log.take(Updates(rows(1, 3), 0))
    log.take(EvaluationMade(row(3)))
    log.take(Updates(rows(4, 3), 0))
    log.take(EvaluationMade(row(6)))
    log.take(Noted("info", "before"))
    log.take(FaultChanged(Fault(0, "freeze").record("begin", [1], 1.0, 7), ["worker-1"], 1.0))
    log.take(FaultChanged(Fault(1, "kill").record("begin", [2], 2.0, 7), ["worker-2"], 2.0))
    return log


@pytest.mark.parametrize("ended", [False, True])
def test_a_resumed_run_continues_from_the_rows_that_are_kept(log: RunLog, ended: bool) -> None:
    going(log)
    if ended:
        log.parameters(np.zeros(3, np.float32))
        log.close("interrupted", "Ctrl-C", {"updates": 6})
    else:  # killed in the middle of a line
        with (log.directory / "events.jsonl").open("a") as file:
            file.write('{"time": 2, "lev')
    before, began = kept(log, 4, 1), time.monotonic() - 2
    outcome, manifest = RunOutcome(), {"experiment": "x"}
    again = RunLog(log.directory, "", manifest, kept=before, readers=[outcome], began=began)
    assert again.counts == {"updates": 4, "evaluations": 1, "faults": 1}
    assert (outcome.updates, outcome.message_bytes) == (4, before.updates["message_bytes"].sum())
    assert (len(outcome.losses), outcome.struck) == (1, {"freeze": {"worker-1"}})
    assert not (log.directory / "summary.json").exists()
    assert not (log.directory / "updates.parquet").exists()
    manifest = json.loads((log.directory / "manifest.json").read_text())
    assert (manifest["ended"], manifest["finished"]) == ("running", None)
    assert [one["version"] for one in manifest["resumed"]] == [4]
    again.take(Updates(rows(5, 2), 0))
    again.take(EvaluationMade(row(6) | {"measured": None}))
    again.take(Noted("info", "after"))
    again.close("completed", None, {})
    updates = pq.read_table(log.directory / "updates.parquet")
    assert updates.column("iteration").to_pylist() == [1, 2, 3, 4, 5, 6]
    evaluations = pq.read_table(log.directory / "evaluations.parquet")
    assert evaluations.column("iteration").to_pylist() == [3, 6]
    curve = (log.directory / "curve.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in curve] == ["iteration", "3", "6"]
    events = (log.directory / "events.jsonl").read_text().splitlines()
    assert json.loads(events[0])["event"] == "before"
    last = json.loads(events[-1])
    assert last["event"] == "after"
    assert 2 <= last["time"] - json.loads(events[0])["time"] < 12
    (fault,) = (log.directory / "faults.jsonl").read_text().splitlines()
    assert json.loads(fault)["fault"] == "freeze"


@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("ended", [False, True])
def test_resuming_may_be_interrupted_at_any_moment(
    log: RunLog, monkeypatch: pytest.MonkeyPatch, step: int, ended: bool
) -> None:
    going(log)
    if ended:
        log.close("interrupted", "Ctrl-C", {"updates": 6})
    replaced: list[Path] = []
    replace = Path.replace

    def end(path: Path, target: Path) -> Path:
        if len(replaced) == step:
            raise KeyboardInterrupt
        replaced.append(target)
        return replace(path, target)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Path, "replace", end)
        RunLog(log.directory, "name: x\n", {"experiment": "x"}, kept=kept(log, 4, 1))
    again = RunLog(log.directory, "name: x\n", {"experiment": "x"}, kept=kept(log, 4, 1))
    again.close("completed", None, {})
    updates = pq.read_table(log.directory / "updates.parquet")
    assert updates.column("iteration").to_pylist() == [1, 2, 3, 4]
    assert pq.read_table(log.directory / "evaluations.parquet").num_rows == 1
    assert len((log.directory / "curve.csv").read_text().splitlines()) == 2
    assert len((log.directory / "faults.jsonl").read_text().splitlines()) == 1


class Heard:
    """A reader of the log that keeps what it is shown."""

    def __init__(self) -> None:
        self.entries: list[RunEntry] = []

    def take(self, entry: RunEntry) -> None:
        self.entries.append(entry)


def test_faults_are_written_reported_and_counted_once_per_device(tmp_path: Path) -> None:
    reader = Heard()
    log = RunLog(tmp_path / "run", "name: x\n", {"experiment": "x"}, readers=[reader])
    freeze = Fault(0, "freeze", 2.0)
    records = [
        (freeze.record("begin", (3, 4), 1.0, 7), ["worker-3", "worker-4"]),
        (freeze.record("end", (3, 4), 3.0, 9), ["worker-3", "worker-4"]),
        (freeze.record("begin", (3,), 5.0, 11), ["worker-3"]),
        (Fault(1, "kill", 0.0).record("begin", (-1,), 6.0, 12), ["server"]),
    ]
    for record, names in records:
        log.take(FaultChanged(record, names, 0.25))
    assert reader.entries == [FaultChanged(record, names, 0.25) for record, names in records]
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
    occurrences = read_faults(log.directory)  # before the run ends, as if it had been killed
    assert [(s.kind, s.device, s.ended is None) for s in occurrences] == [
        ("freeze", "worker-3", False),
        ("freeze", "worker-4", False),
        ("freeze", "worker-3", True),
        ("kill", "server", True),
    ]


def test_updates_lost_with_a_server_are_recorded_as_not_applied(log: RunLog) -> None:
    made = [rows(1, 4), rows(5, 1), rows(5, 2), rows(3, 2)]
    for part, applied in zip(made, (True, False, True, True), strict=True):
        part["applied"] = applied
    log.take(Updates(np.concatenate(made[:3]), 0))
    for version in (0, 2, 4, 6):
        log.take(EvaluationMade(row(version)))
    cut_back = log.go_back(2, 2)
    assert cut_back.lost["iteration"].tolist() == [3, 4, 5, 5, 6]
    assert cut_back.lost["applied"].tolist() == [True, True, False, True, True]
    assert cut_back.evaluations == 2
    log.take(Updates(made[3], 0))
    log.take(EvaluationMade(row(4)))
    log.close("completed", None, {})
    table = pq.read_table(log.directory / "updates.parquet")
    assert table["iteration"].to_pylist() == [1, 2, *[2] * 5, 3, 4]
    assert table["applied"].to_pylist() == [True] * 2 + [False] * 5 + [True] * 2
    assert pq.read_table(log.directory / "evaluations.parquet")["iteration"].to_pylist() == [
        0,
        2,
        4,
    ]
    curve = (log.directory / "curve.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in curve] == ["iteration", "0", "2", "4"]
    assert not list(log.directory.glob("*.partial"))


# -- diagnostics

DECLARED = {"diagnostics": [{"name": "k", "meaning": "k."}, {"name": "gap", "meaning": "G."}]}


def diagnostics(log: RunLog) -> list[tuple[int, float, float]]:
    table = read_columns(log.directory, "diagnostics", ("iteration", "k", "gap"))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def values(*iterations: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([[one, one / 2] for one in iterations], np.float64)


@pytest.fixture
def diagnosed(tmp_path: Path) -> RunLog:
    log = RunLog(tmp_path / "run", "name: x\n", {"experiment": "x"} | DECLARED)
    log.take(Diagnoses(values(1, 2, 3), 3))
    return log


def test_diagnostics_have_a_row_for_each_update_and_none_twice(diagnosed: RunLog) -> None:
    diagnosed.take(Diagnoses(values(2, 3), 3))
    diagnosed.take(Diagnoses(values(3, 4, 5), 5))
    assert diagnostics(diagnosed) == [(i, i, i / 2) for i in range(1, 6)]
    diagnosed.close("completed", None, {})
    assert (diagnosed.directory / "diagnostics.parquet").exists()
    assert diagnostics(diagnosed) == [(i, i, i / 2) for i in range(1, 6)]


def test_diagnostics_of_lost_updates_are_removed(diagnosed: RunLog) -> None:
    diagnosed.take(Updates(rows(1, 3), 0))
    diagnosed.go_back(1, 1)
    assert diagnostics(diagnosed) == [(1, 1, 0.5)]
    diagnosed.take(Diagnoses(values(20), 2))
    assert diagnostics(diagnosed) == [(1, 1, 0.5), (2, 20, 10)]


def test_a_resumed_run_goes_on_from_the_diagnostics_that_are_kept(diagnosed: RunLog) -> None:
    table = read_columns(diagnosed.directory, "diagnostics", ("iteration", "k", "gap"))
    before = kept(diagnosed, 0, 0)
    before = replace(before, tables={**before.tables, "diagnostics": table.slice(0, 2)})
    again = RunLog(diagnosed.directory, "", {"experiment": "x"} | DECLARED, kept=before)
    again.take(Diagnoses(values(3, 4), 4))
    assert [row[0] for row in diagnostics(again)] == [1, 2, 3, 4]


def test_a_missing_update_is_an_error(diagnosed: RunLog) -> None:
    with pytest.raises(ValueError, match="length"):
        diagnosed.take(Diagnoses(values(5), 5))


def test_without_a_declaration_there_is_no_file(log: RunLog) -> None:
    assert list(log.directory.glob("diagnostics*")) == []

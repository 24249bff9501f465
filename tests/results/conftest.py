"""Fixtures: run directories in the documented format, written without the code that reads them."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

WriteRun: TypeAlias = Callable[..., Path]

UPDATES = pa.schema(
    [
        ("iteration", pa.int64()),
        ("worker", pa.int32()),
        ("base_version", pa.int64()),
        ("staleness", pa.int64()),
        ("payload_bytes", pa.int64()),
        ("message_bytes", pa.int64()),
        ("loss", pa.float32()),
        ("time", pa.float64()),
    ]
)
EVALUATIONS = pa.schema(
    [
        ("iteration", pa.int64()),
        ("time", pa.float64()),
        ("accuracy", pa.float64()),
        ("loss", pa.float64()),
        ("payload_bytes", pa.int64()),
        ("message_bytes", pa.int64()),
        ("wire_bytes", pa.int64()),
    ]
)
SPLIT = ["stream", "header", "ack", "connection", "retransmitted", "arp", "other"]
ACCOUNTING = pa.schema(
    [
        ("second", pa.int32()),
        ("device", pa.string()),
        ("direction", pa.string()),
        ("frames", pa.int64()),
        ("wire_bytes", pa.int64()),
        *((f"{kind}_bytes", pa.int64()) for kind in SPLIT),
    ]
)
WORKERS = 20
EVERY = 10
GREETINGS = 5_000


def updates_table(count: int, payload: int, seed: int = 1) -> pa.Table:
    """Return updates of ``payload`` bytes and 16 of framing each, 100 a second, staleness up to 30."""
    iteration = np.arange(1, count + 1)
    staleness = np.minimum(np.random.default_rng(seed).integers(0, 31, count), iteration - 1)
    columns = [
        iteration,
        (iteration * 7 % WORKERS).astype(np.int32),
        iteration - 1 - staleness,
        staleness,
        np.full(count, payload),
        np.full(count, payload + 16),
        (2.3 * np.exp(-iteration / 50)).astype(np.float32),
        iteration / 100,
    ]
    return pa.Table.from_arrays([pa.array(c) for c in columns], schema=UPDATES)


def evaluations_table(count: int, payload: int, speed: float = 40) -> pa.Table:
    """Return an evaluation every 10 updates, the first before any; headers add 5 % on the wire."""
    iteration = np.arange(0, count + 1, EVERY)
    message = GREETINGS + iteration * (payload + 16)
    columns = [
        iteration,
        iteration / 100,
        10 + 88 * (1 - np.exp(-iteration / speed)),
        2.3 * np.exp(-iteration / speed),
        iteration * payload,
        message,
        message * 105 // 100,
    ]
    return pa.Table.from_arrays([pa.array(c) for c in columns], schema=EVALUATIONS)


def accounting_table(
    seconds: int, message: int, workers: int = WORKERS, seed: int = 1, start: int = -1
) -> pa.Table:
    """Return what a capture counts of ``message`` bytes per worker and second, from ``start`` on.

    Worker i sends i % 5 percent more than that; the server answers, the evaluator sends too, and
    one frame a second belongs to no device.
    """
    random = np.random.default_rng(seed)
    second = np.repeat(np.arange(start, start + seconds), workers)
    worker = np.tile(np.arange(workers), seconds)
    stream = (message * (1 + worker % 5 / 100) * random.uniform(0.8, 1.2, len(worker))).astype(int)
    stream[second < 0] = 0
    split = {
        "stream_bytes": stream,
        "header_bytes": stream * 66 // 1448,
        "ack_bytes": np.full(len(worker), 6_600),
        "connection_bytes": np.where(second == start, 148, 0),
        "retransmitted_bytes": np.where(random.random(len(worker)) < 0.05, 1_514, 0),
        "arp_bytes": np.where(second == start, 42, 0),
        "other_bytes": np.zeros(len(worker), dtype=np.int64),
    }
    ingress = {
        "second": second,
        "device": np.char.add("worker-", worker.astype(str)),
        "direction": np.full(len(worker), "ingress"),
        "frames": stream // 1448 + 100,
        "wire_bytes": np.sum(list(split.values()), axis=0),
        **split,
    }
    tables = [pa.table(ingress).cast(ACCOUNTING)]
    for device, direction in (("worker-3", "egress"), ("evaluator", "ingress"), (None, "ingress")):
        row: dict[str, Any] = dict.fromkeys(ACCOUNTING.names, 0)
        size = 60 if device is None else 10**9
        row |= {"frames": 1, "wire_bytes": size, "other_bytes": size}
        rows = [
            row | {"second": s, "device": device, "direction": direction}
            for s in range(start, start + seconds)
        ]
        tables.append(pa.Table.from_pylist(rows, schema=ACCOUNTING))
    return pa.concat_tables(tables)


def traffic(dropped: int = 0, **changes: Any) -> dict[str, Any]:
    """Return the ``traffic`` of a ``summary.json`` with a capture."""
    capture = {"records": 1_000, "dropped": dropped, "bytes": 1, "files": ["x"], "complete": True}
    return {"capture": capture, "reconciled": dropped == 0, "differences": [], **changes}


def write_stream(path: Path, table: pa.Table, batch: int) -> list[int]:
    """Write a table as an Arrow stream in batches of ``batch`` rows; return each batch's end."""
    ends = []
    with path.open("wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        for one in table.to_batches(max_chunksize=batch):
            stream.write_batch(one)
            sink.flush()
            ends.append(path.stat().st_size)
    return ends


def fault(
    kind: str,
    *devices: str,
    iteration: int,
    end: bool = False,
    rule: int = 0,
    duration: float | None = None,
) -> dict[str, Any]:
    """Return a line of ``faults.jsonl``; the run's clock has 100 updates a second, the host's 1,000."""
    return {
        "fault": kind,
        "phase": "end" if end else "begin",
        "rule": rule,
        "devices": list(devices),
        "time": iteration / 100,
        "iteration": iteration,
        "duration": duration,
        "host_time": iteration / 1000,
    }


def manifest(algorithm: str, ended: str, **changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "experiment": "quickstart",
        "algorithm": algorithm,
        "seed": 1,
        "started": "2026-11-21T07:45:00+00:00",
        "finished": None if ended == "running" else "2026-11-21T07:46:00+00:00",
        "ended": ended,
        "reason": None,
        "workers": WORKERS,
        "pid": 1,
        "pid_started": 0.0,
        "versions": {"testbed": "0.1.0", "python": "3.11.2", "torch": "2.13.0", "numpy": "2.3.0"},
        "commit": "0123456789abcdef",
        "host": {
            "name": "bench-3",
            "kernel": "6.1.0",
            "cpus": 2,
            "memory_bytes": 25_769_803_776,
            "cpu": "A <fast> processor",
        },
        **changes,
    }


@pytest.fixture
def runs_root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def write_run(runs_root: Path) -> WriteRun:
    """A function that writes a run and returns its directory: see ``writer_of_runs``."""
    return writer_of_runs(runs_root)


def writer_of_runs(runs_root: Path) -> WriteRun:
    """Return a function that writes runs into a folder.

    Args of the function: algorithm; execution (``experiment/time-seed``); count of
    updates; payload bytes of each; ended; evaluations (a table that replaces the usual one); speed
    (updates that 63 % of the rise in accuracy takes); accounting (a table: what a capture
    counted); traffic (of the summary); faults (lines of ``faults.jsonl``) and their rules (as
    YAML); further keywords go to the manifest.
    """

    def write(
        algorithm: str = "asgd",
        execution: str = "quickstart/20261121-074500-1",
        *,
        count: int = 200,
        payload: int = 1_000_000,
        ended: str = "completed",
        evaluations: pa.Table | None = None,
        speed: float = 40,
        accounting: pa.Table | None = None,
        traffic: dict[str, Any] | None = None,
        faults: Sequence[dict[str, Any]] = (),
        rules: str = "[]",
        **changes: Any,
    ) -> Path:
        directory = runs_root / execution / algorithm
        directory.mkdir(parents=True)
        changes["experiment"] = execution.partition("/")[0]
        told = manifest(algorithm, ended, **changes)
        (directory / "manifest.json").write_text(json.dumps(told))
        (directory / "spec.yaml").write_text(
            f"name: {told['experiment']}\nseed: {told['seed']}\nalgorithms: [{algorithm}]\n"
            f"faults: {rules}\n"
        )
        lines = "".join(json.dumps(one) + "\n" for one in faults)
        (directory / "faults.jsonl").write_text(lines)
        if accounting is not None:
            (directory / "traffic").mkdir()
            parquet.write_table(accounting, directory / "traffic" / "accounting.parquet")
        updates = updates_table(count, payload)
        if evaluations is None:
            evaluations = evaluations_table(count, payload, speed)
        _write_csv(directory / "curve.csv", evaluations)
        (directory / "events.jsonl").write_text(
            '{"time": 0.1, "level": "info", "device": null, "kind": "remark", '
            '"event": "20 workers are up"}\n'
            '{"time": 1.5, "level": "warning", "device": "worker-3", "kind": "remark", '
            '"event": "lost <its> link"}\n'
        )
        if ended == "running":
            write_stream(directory / "updates.arrows", updates, batch=64)
            write_stream(directory / "evaluations.arrows", evaluations, batch=4)
            return directory
        parquet.write_table(updates, directory / "updates.parquet")
        parquet.write_table(evaluations, directory / "evaluations.parquet")
        accuracies = evaluations.column("accuracy").to_numpy()
        message = GREETINGS + count * (payload + 16)
        summary = {
            "experiment": told["experiment"],
            "algorithm": algorithm,
            "seed": told["seed"],
            "ended": ended,
            "reason": told["reason"],
            "updates": count,
            "best_accuracy": float(np.nanmax(accuracies))
            if np.isfinite(accuracies).any()
            else None,
            "final_accuracy": float(accuracies[-1]) if len(accuracies) else None,
            "ingress": {
                "payload_bytes": count * payload,
                "message_bytes": message,
                "wire_bytes": message * 105 // 100,
            },
            "updates_per_second": 100.0,
            "setup_seconds": 1.25,
            "training_seconds": count / 100,
            "workers_lost": 0,
            "parameters_sha256": "ab" * 32,
            "versions": told["versions"],
            **({} if traffic is None else {"traffic": traffic}),
        }
        (directory / "summary.json").write_text(json.dumps(summary))
        np.save(directory / "parameters.npy", np.zeros(4, dtype=np.float32))
        return directory

    return write


def _write_csv(path: Path, evaluations: pa.Table) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        order = ["iteration", "time", "accuracy", "loss"]
        order += ["payload_bytes", "message_bytes", "wire_bytes"]
        order += [name for name in evaluations.column_names if name not in order]
        writer.writerow(order)
        writer.writerows([[row[name] for name in order] for row in evaluations.to_pylist()])


@pytest.fixture
def this_process() -> dict[str, Any]:
    """The manifest's fields for an orchestrator that is alive: this process."""
    return {"pid": os.getpid(), "pid_started": psutil.Process().create_time()}


@pytest.fixture
def killed_process() -> dict[str, Any]:
    """The manifest's fields for an orchestrator that was killed."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    told = {"pid": child.pid, "pid_started": psutil.Process(child.pid).create_time()}
    child.kill()
    child.communicate()
    return told


@pytest.fixture
def three(write_run: WriteRun) -> Path:
    """The directory of an execution with ASGD, Comp-ASGD and AdaComp, all completed."""
    write_run("asgd")
    write_run("comp-asgd-0.01", payload=17_000, speed=90, started="2026-11-21T07:47:00+00:00")
    directory = write_run(
        "adacomp-0.01", payload=17_000, speed=35, started="2026-11-21T07:48:00+00:00"
    )
    return directory.parent

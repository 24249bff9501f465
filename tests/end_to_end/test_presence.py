"""Devices that arrive late, leave and come back, for real and in the simulator."""

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

PATIENCE = 300.0
CLASSES: list[dict[str, Any]] = [
    {"name": "core", "number": 2},
    {"name": "late", "number": 1, "arrives": "1s"},
    {"name": "mobile", "number": 2, "leaves": "800ms", "returns": "700ms"},
]


@pytest.mark.parametrize(
    ("algorithm", "servers"),
    [
        ({"name": "sync-sgd", "wait_for": 2}, 1),
        ("asgd", 2),
        ({"name": "ako", "partitions": 2, "staleness_bound": 1}, 1),
    ],
)
def test_emulation_and_simulation_agree_to_the_bit(
    command: CommandLine, algorithm: str | dict[str, Any], servers: int
) -> None:
    times = {"compute": {"distribution": "exponential", "mean": "100ms"}, "clock": "virtual"}
    devices = {
        "devices": {"workers": 5, "servers": servers, "classes": CLASSES},
        "training": {"updates": 80},
        "evaluation": SMALL["evaluation"] | {"peer": 1},  # which is of those that are always there
    }
    found = []
    for engine in ("emulation", "simulation"):
        command.out = command.folder / engine
        changes = times | devices | {"algorithms": [algorithm], "engine": engine}
        started = command.start_run(SMALL | changes)
        assert started.wait(PATIENCE) == 0, started.said
        lines = (started.run_directory / "faults.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        for record in records:
            del record["host_time"]
        summary = started.record("summary")
        payload, message = (summary["ingress"][f"{of}_bytes"] for of in ("payload", "message"))
        found.append((summary["parameters_sha256"], payload, message, records))
        (late,) = (r for r in records if r["away"] == "not-arrived" and r["phase"] == "end")
        assert late["time"] == 1.0
        rows = pq.read_table(started.run_directory / "updates.parquet").to_pylist()
        pushed = {row["worker"] for row in rows if row["time"] < 1.0}
        assert len(pushed) == 4
        assert int(late["devices"][0].rpartition("-")[2]) not in pushed
        assert {row["worker"] for row in rows} == set(range(5))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("algorithm", "servers", "name"),
    [("asgd", 2, "worker"), ("all-to-all", 1, "peer")],
)
def test_a_file_says_who_arrives_and_leaves_by_the_wall_clock(
    command: CommandLine, algorithm: str, servers: int, name: str
) -> None:
    (command.folder / "presence.csv").write_text(
        "device,time,event\nworker-1,1,arrives\nworker-2,1,leaves\nworker-2,2,arrives\n"
        "worker-3,1.5,leaves\n"
    )
    devices = {"devices": {"workers": 5, "servers": servers, "presence": "presence.csv"}}
    waiting = {"waiting": {"distribution": "constant", "mean": "100ms"}}
    few = {"training": {"updates": 150}, "algorithms": [algorithm]}
    started = command.start_run(SMALL | devices | waiting | few)
    assert started.wait(PATIENCE) == 0, started.said
    told = [event["event"] for event in started.events()]
    for text in ("1: not there yet", "1: arrived", "2: left", "2: arrived", "3: left"):
        assert f"{name}-{text}" in told
    assert f"{name}-3: arrived" not in told
    assert started.record("summary")["traffic"]["reconciled"] is True

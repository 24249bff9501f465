"""A parameter server that is really killed and restored: the run ends as if it had not been."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.execution import execute
from testbed.experiment.load import load
from testbed.results.reading.run_files import SERVER_KILLED
from testbed.runs.watching import Unwatched
from tests.end_to_end.conftest import SMALL, CommandLine, assert_one_sentence

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

RUN: dict[str, Any] = SMALL | {
    "seed": 3,
    "clock": "virtual",
    "training": {"updates": 30},
    "waiting": {"distribution": "uniform", "mean": "100ms"},
    "evaluation": {"every": 10, "images": 100},
}
SHAPED = {"uplink": "2mbit", "downlink": "10mbit", "delay": "5ms"}
# Twice after the same checkpoint, and once after another one.
KILLS = [
    {"who": "server", "when": {"iteration": at}, "how": "kill", "lasting": "1s"}
    for at in (13, 16, 25)
]
AROUND = [
    {"when": {"probability": 0.1}, "how": "freeze", "lasting": "200ms"},
    {"when": {"mean_time": "2s"}, "how": "kill", "lasting": "100ms"},
    {"when": {"mean_time": "1500ms"}, "how": "stop-network", "lasting": "100ms"},
    {"when": {"mean_time": "900ms"}, "how": "partition", "lasting": "50ms"},
    {"when": {"iteration": 10}, "how": {"kind": "slow", "factor": 3}, "lasting": "300ms"},
]
PUSH = ("worker", "base_version", "iteration")
SYNCHRONOUS = {"name": "sync-sgd", "wait_for": 3}
CLUSTERS = {
    "clusters": [
        {"name": "a", "share": "60%", "uplink": "8mbit", "downlink": "20mbit"},
        {"name": "b", "share": "40%", "uplink": "5mbit"},
    ]
}
COMPRESSED: dict[str, Any] = {
    "algorithms": [{"name": "adacomp", "ratio": 0.05}],
    "pulls": "changed",
}
RUNS: dict[str, dict[str, Any]] = {
    "adacomp, shared, changed, everything goes wrong": {
        **COMPRESSED,
        "network": SHAPED | {"server": {"downlink": "6mbit", "uplink": "20mbit"}},
        "faults": AROUND,
    },
    "push-and-interrupt, shaped, changed": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-interrupt"}],
        "network": SHAPED,
        "pulls": "changed",
    },
    "three servers, adacomp, changed, devices are killed, too": {
        **COMPRESSED,
        "devices": {"workers": 4, "servers": 3},
        "network": SHAPED,
        "faults": AROUND[:2],
    },
    "two servers, workers that train at their own copies": {
        "algorithms": [{"name": "downpour", "push_every": 2, "fetch_every": 4}],
        "devices": {"workers": 4, "servers": 2},
        "network": SHAPED,
    },
    "a stream, error feedback, devices are killed, too": {
        "algorithms": [{"name": "adacomp", "ratio": 0.05, "error_feedback": True}],
        "partition": "stream",
        "encoding": "compact-8",
        "network": SHAPED,
        "faults": AROUND[:2],
    },
    "co-located, push-and-wait": {
        "algorithms": [SYNCHRONOUS | {"protocol": "push-and-wait"}],
        "devices": {"workers": 4, "servers": 3, "placement": "co-located"},
        "network": SHAPED,
        "costs": {"message": "4ms", "byte": "10ns", "apply": "20ns"},
    },
    "hierarchical": {
        "algorithms": [{"name": "hierarchical", "ratio": 0.1, "server": "asynchronous"}],
        "network": SHAPED | CLUSTERS,
        "pulls": "changed",
    },
}


def kills_of(servers: int) -> list[dict[str, Any]]:
    """Return the kills of the only server, or of the last and then twice of the first of several."""
    if servers == 1:
        return KILLS
    last, first = f"server-{servers - 1}", "server-0"
    return [
        kill | {"who": {"devices": [name]}}
        for kill, name in zip(KILLS, (last, first, first), strict=True)
    ]


def rows(directory: Path) -> pa.Table:
    """Return the updates, of one server after the other: reports of several come in any order."""
    table = pq.read_table(directory / "updates.parquet").drop_columns(["host_time"])
    return table.take(pa.array(np.argsort(table["server"].to_numpy(), kind="stable")))


def diagnostics(directory: Path) -> pa.Table:
    return pq.read_table(directory / "diagnostics.parquet")


def assert_same(one: pa.Table, other: pa.Table) -> None:
    """Assert that tables are equal, row by row: pytest takes minutes to compare them whole."""
    assert one.num_rows == other.num_rows
    for mine, theirs in zip(one.to_pylist(), other.to_pylist(), strict=True):
        assert repr(mine) == repr(theirs)  # a loss that was not sent is NaN, which equals nothing


def faults(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "faults.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "host_time"} for line in lines]


def emulated(command: CommandLine, content: dict[str, Any]) -> Path:
    """Carry a run out in namespaces; return its directory."""
    started = command.start_run(content)
    assert started.wait(200) == 0, started.said
    return started.run_directory


def simulated(command: CommandLine, content: dict[str, Any], name: str) -> Path:
    """Simulate a run in this process, which has loaded its libraries; return its directory."""
    spec = load(command.spec(content), ["engine=simulation"])
    execution = execute(spec, command.folder / name, lambda *_: Unwatched(), report=False)
    (summary,) = execution.summaries
    assert summary["ended"] == "completed", summary["reason"]
    return execution.directory / str(summary["algorithm"])


@pytest.mark.parametrize("name", RUNS)
def test_kills_of_the_server_do_not_change_the_results(command: CommandLine, name: str) -> None:
    undisturbed = RUN | RUNS[name]
    servers = undisturbed["devices"].get("servers", 1)
    disturbed = undisturbed | {
        "faults": [*undisturbed.get("faults", ()), *kills_of(servers)],
        "checkpoints": {"every": 10},
    }
    directory = emulated(command, disturbed)
    twin = simulated(command, disturbed, "disturbed")
    other = simulated(command, undisturbed, "undisturbed")
    events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    assert sum(one["event"].startswith("back from the checkpoint") for one in events) == 3
    assert [one for one in events if one["level"] != "info"] == []
    mine, theirs, alone = (
        json.loads((one / "summary.json").read_bytes()) for one in (directory, twin, other)
    )
    parameters = "parameters_sha256"
    assert mine[parameters] == theirs[parameters] == alone[parameters]
    assert_same(rows(directory), rows(twin))
    assert_same(rows(directory), rows(other))
    if "sync-sgd" in twin.name:
        assert_same(diagnostics(directory), diagnostics(twin))
        assert_same(diagnostics(directory), diagnostics(other))
        assert diagnostics(directory)["iteration"].to_pylist() == list(range(1, 31))
    assert faults(directory) == faults(twin)
    for key in ("payload_bytes", "message_bytes"):
        assert mine["ingress"][key] == theirs["ingress"][key]
        assert mine["ingress_after_drain"][key] == theirs["ingress_after_drain"][key]
    assert mine["final_accuracy"] == theirs["final_accuracy"]
    evaluations = pq.read_table(directory / "evaluations.parquet")
    assert evaluations.column("iteration").to_pylist() == list(range(0, 31, 10))
    # A killed server cannot report what it had received; there is no other difference.
    assert mine["traffic"]["reconciled"] is False
    assert {one["reason"] for one in mine["traffic"]["differences"]} == {SERVER_KILLED}
    of_each = mine["traffic"].get("servers", {"server": {"reconciled": False}})
    killed = {one["devices"][0] for one in faults(directory)} & of_each.keys()
    assert {name for name, one in of_each.items() if not one["reconciled"]} == killed
    assert not (directory / "checkpoints").exists()


def test_under_the_wall_clock_no_push_is_applied_twice(command: CommandLine) -> None:
    kills = [
        {"who": "server", "when": when, "how": "kill", "lasting": "300ms"}
        for when in ({"iteration": 25}, {"iteration": 28}, {"time": "4s"})
    ]
    # One worker stays frozen, two come back while the server may be away, one is cut off for 1 s.
    others = [
        {"who": {"devices": ["worker-0"]}, "when": {"iteration": 5}, "how": "freeze"},
        {"who": {"number": 2}, "when": {"probability": 0.1}, "how": "kill", "lasting": "200ms"},
        {
            "who": {"devices": ["worker-1"]},
            "when": {"iteration": 24},
            "how": "stop-network",
            "lasting": "1s",
        },
    ]
    content = RUN | COMPRESSED
    content |= {"clock": "wall", "training": {"updates": 200}, "faults": [*kills, *others]}
    content["network"] = {"uplink": "20mbit", "downlink": "50mbit"}
    directory = emulated(command, content | {"checkpoints": {"every": 20}})
    updates = rows(directory)
    applied = updates.filter(updates["applied"])
    assert applied["iteration"].to_pylist() == list(range(1, 201))
    pushes = list(zip(*(applied[name].to_pylist() for name in PUSH), strict=True))
    assert len(set(pushes)) == 200
    lost = updates.num_rows - 200
    told = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    back = [one["event"] for one in told if one["event"].startswith("back from the checkpoint")]
    # It is killed a little after updates 25 and 28, and the third time at any update.
    versions = [int(text.split(";")[0].rpartition(" ")[2]) for text in back]
    assert len(versions) == 3
    assert all(version >= 20 and version % 20 == 0 for version in versions)
    assert sum(int(text.split("; ")[1].split()[0]) for text in back) == lost >= 5
    assert [one["event"] for one in told if one["level"] != "info"] == []
    summary = json.loads((directory / "summary.json").read_bytes())
    # Lost updates had been sent all the same.
    assert summary["ingress"]["payload_bytes"] == sum(updates["payload_bytes"].to_pylist())
    evaluations = pq.read_table(directory / "evaluations.parquet")
    assert evaluations["iteration"].to_pylist() == list(range(0, 201, 10))
    for name in ("payload_bytes", "message_bytes", "wire_bytes", "time"):
        values = evaluations[name].to_pylist()
        assert values == sorted(values), name
    curve = (directory / "curve.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in curve] == list(range(0, 201, 10))
    struck = [one for one in faults(directory) if one["devices"] == ["server"]]
    assert [one["phase"] for one in struck] == ["begin", "end"] * 3
    away = [
        end["time"] - begin["time"] for begin, end in zip(struck[::2], struck[1::2], strict=True)
    ]
    assert all(0.3 <= seconds < 5 for seconds in away)
    assert {one["reason"] for one in summary["traffic"]["differences"]} == {SERVER_KILLED}


@pytest.mark.parametrize("devices", [{}, {"servers": 2, "placement": "co-located"}], ids=str)
def test_a_kill_when_training_has_just_ended_does_not_delay_the_end(
    command: CommandLine, devices: dict[str, Any]
) -> None:
    who = {"devices": ["server-0"]} if devices else "server"
    kill = {"who": who, "when": {"iteration": 20}, "how": "kill", "lasting": "300ms"}
    content = RUN | COMPRESSED
    content |= {"clock": "wall", "training": {"updates": 20}, "faults": [kill]}
    content |= {"devices": {"workers": 3, **devices}, "network": {}}
    directory = emulated(command, content | {"checkpoints": {"every": 10}})
    assert [one["phase"] for one in faults(directory)] == ["begin", "end"]
    told = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    times = {one["event"].partition(" of ")[0]: one["time"] for one in told}
    assert told[-1]["time"] - times["back from the checkpoint"] < 60
    evaluations = pq.read_table(directory / "evaluations.parquet")
    assert evaluations["iteration"].to_pylist()[-1] == 20


def test_kills_of_a_server_that_cannot_come_back_are_refused(command: CommandLine) -> None:
    content = RUN | {"faults": KILLS, "checkpoints": {}}
    result = command.do("run", command.spec(content), "--out", command.out)
    assert "comes back from a checkpoint" in assert_one_sentence(result, 2)

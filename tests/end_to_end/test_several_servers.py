"""Runs with several servers by the wall clock: slices, ledgers, and workers under faults."""

import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.conftest import SMALL, CommandLine, Started

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

SEVERAL: dict[str, Any] = SMALL | {"devices": {"workers": 5, "servers": 3}}


def assert_sound(started: Started) -> dict[str, Any]:
    """Assert that each server's ledgers agree and no update is lost or repeated; return the summary."""
    summary = started.record("summary")
    assert summary["ended"] == "completed"
    assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]
    assert all(one["reconciled"] for one in summary["traffic"]["servers"].values())
    for name, size in summary["ingress"].items():
        assert size == sum(one[name] for one in summary["servers"].values())
    rows = pushes(started)
    for index, ingress in enumerate(summary["servers"].values()):
        own = rows["server"] == index
        applied = set(rows["iteration"][own & rows["applied"]].tolist())
        assert applied == set(range(1, summary["updates"] + 1))
        assert rows["payload_bytes"][own].sum() == ingress["payload_bytes"]
    return summary


def pushes(started: Started) -> dict[str, Any]:
    """Return the columns of a run's updates as arrays."""
    table = pq.read_table(started.run_directory / "updates.parquet")
    names = ("server", "worker", "iteration", "applied", "payload_bytes", "time")
    return {name: table[name].to_numpy() for name in names}


def run(command: CommandLine, content: dict[str, Any]) -> Started:
    started = command.start_run(content)
    assert started.wait(120) == 0, started.said
    return started


def test_the_cut_does_not_change_what_one_worker_makes(command: CommandLine) -> None:
    digests = []
    for servers, allocation in ((1, "ranges"), (3, "tensors")):
        command.out = command.folder / f"runs-{servers}-{allocation}"
        one = {
            "training": {"updates": 40},
            "devices": {"workers": 1, "servers": servers, "allocation": allocation},
            "evaluation": {"every": 20},
        }
        started = run(command, SMALL | one)
        digests.append(started.record("summary")["parameters_sha256"])
        evaluated = pq.read_table(started.run_directory / "evaluations.parquet").to_pydict()
        assert evaluated["iteration"] == [0, 20, 40]
        digests.append(evaluated["accuracy"])
    assert digests[:2] == digests[2:]


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "sync-sgd"},
        {
            "name": "adacomp",
            "error_feedback": True,
            "encoding": "compact-8-zstd",
            "pulls": "changed",
        },
    ],
    ids=["all", "adacomp"],
)
def test_three_servers_share_pushes_of_whole_and_of_compressed_gradients(
    command: CommandLine, algorithm: dict[str, Any]
) -> None:
    few = {"training": {"updates": 60}, "algorithms": [algorithm]}
    summary = assert_sound(run(command, SEVERAL | few))
    assert summary["updates"] == 60
    parts = [one["payload_bytes"] for one in summary["servers"].values()]
    assert np.ptp(parts) < 0.5 * max(parts)


def test_workers_under_faults_come_back_to_every_server(command: CommandLine) -> None:
    def of(who: Any, when: int, how: Any) -> dict[str, Any]:
        return {"who": who, "when": {"iteration": when}, "how": how, "lasting": "400ms"}

    content = SEVERAL | {
        "waiting": {"distribution": "exponential", "mean": "60ms"},
        "training": {"updates": 250},
        "faults": [
            of({"devices": ["worker-0", "worker-1"]}, 40, "kill"),
            of({"devices": ["worker-2"]}, 60, "freeze"),
            of({"devices": ["worker-3"]}, 80, "partition"),
            of({"devices": ["worker-4"]}, 100, {"kind": "slow", "factor": 3}),
            of({"devices": ["worker-2"]}, 245, "kill"),  # it may come back when a server has ended
        ],
    }
    started = run(command, content)
    summary = assert_sound(started)
    assert summary["workers_lost"] == 0
    assert {"kill", "freeze", "partition", "slow"} <= summary["faults"].keys()
    rows = pushes(started)
    records = map(json.loads, (started.run_directory / "faults.jsonl").read_text().splitlines())
    ends = {
        name: one["time"] for one in records if one["phase"] == "end" for name in one["devices"]
    }
    for worker in (0, 1, 3):  # they push to all servers again
        later = (rows["worker"] == worker) & (rows["time"] > ends[f"worker-{worker}"])
        assert set(rows["server"][later]) == {0, 1, 2}

"""Several servers by the wall clock: one is killed and comes back, runs are resumed, silent workers."""

import json
import signal
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from testbed.results.reading.run_files import SERVER_KILLED
from tests.end_to_end.conftest import SMALL, CommandLine, Started
from tests.end_to_end.test_resume import until_updates
from tests.end_to_end.test_several_servers import pushes

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

SHARDS: dict[str, Any] = SMALL | {
    "devices": {"workers": 4, "servers": 3},
    "checkpoints": {"every": 20},
}


def kill(server: str, iteration: int) -> dict[str, Any]:
    who, when = {"devices": [server]}, {"iteration": iteration}
    return {"who": who, "when": when, "how": "kill", "lasting": "300ms"}


def assert_whole(started: Started, name: str = "") -> dict[str, Any]:
    """Assert that each server made each update once, and that each is counted; return the summary."""
    (path,) = started.out.glob(f"*/*/{name or '*'}/summary.json")
    summary: dict[str, Any] = json.loads(path.read_bytes())
    assert summary["ended"] == "completed", summary["reason"]
    table = pq.read_table(path.parent / "updates.parquet")
    columns = {column: table[column].to_numpy() for column in table.column_names}
    for index, of_server in enumerate(summary["servers"].values()):
        own = columns["server"] == index
        applied = columns["iteration"][own & columns["applied"]]
        assert sorted(set(applied.tolist())) == list(range(1, summary["updates"] + 1))
        assert np.all(np.diff(applied) >= 0)
        assert columns["payload_bytes"][own].sum() == of_server["payload_bytes"]
    evaluated = pq.read_table(path.parent / "evaluations.parquet").to_pydict()
    assert evaluated["iteration"] == list(range(0, summary["updates"] + 1, 50))
    assert np.all(np.diff(evaluated["payload_bytes"]) > 0)
    return summary


def test_a_killed_server_comes_back_alone(command: CommandLine) -> None:
    algorithms = [
        {"name": "adacomp", "label": "asks", "error_feedback": True, "pulls": "changed"},
        {"name": "sync-sgd", "label": "waits", "wait_for": 3, "protocol": "push-and-wait"},
        {"name": "sync-sgd", "label": "drops", "wait_for": 3, "protocol": "push-and-interrupt"},
    ]
    faults = [kill("server-1", 30), kill("server-0", 70)]
    few = {"training": {"updates": 100}}
    started = command.start_run(SHARDS | few | {"algorithms": algorithms, "faults": faults})
    assert started.wait(200) == 0, started.said
    for algorithm in algorithms:
        summary = assert_whole(started, str(algorithm["label"]))
        assert summary["faults"] == {"kill": 2}
        assert summary["workers_lost"] == 0
        traffic = summary["traffic"]
        assert {one["reason"] for one in traffic["differences"]} == {SERVER_KILLED}
        verdicts = {name: one["reconciled"] for name, one in traffic["servers"].items()}
        assert verdicts == {"server-0": False, "server-1": False, "server-2": True}


def test_all_servers_killed_at_once_come_back(command: CommandLine) -> None:
    fault = kill("server-0", 70) | {"who": {"devices": ["server-0", "server-1", "server-2"]}}
    devices = SHARDS["devices"] | {"allocation": "tensors"}
    started = command.start_run(SHARDS | {"faults": [fault], "devices": devices})
    assert started.wait(120) == 0, started.said
    assert_whole(started)
    backs = [e["event"] for e in started.events() if "back from the checkpoint" in e["event"]]
    assert len(backs) == 3


def test_an_interrupted_run_goes_on_from_each_servers_own_checkpoint(command: CommandLine) -> None:
    more = {"training": {"updates": 300}, "faults": [kill("server-2", 50)]}
    started = command.start_run(SHARDS | more)
    path = started.out
    until_updates(started, 100)
    started.process.send_signal(signal.SIGINT)
    started.wait()
    directory = started.run_directory
    versions = []
    for index in range(3):
        marks = json.loads((directory / f"checkpoints/server-{index}/marks.json").read_bytes())
        versions.append(marks[-1]["version"])
    assert min(versions) > 0
    again = command.start("resume", directory, "--no-report", out=path)
    assert again.wait(120) == 0, again.said
    summary = assert_whole(started)
    assert summary["updates"] == 300
    (resumed,) = started.record("manifest")["resumed"]
    assert resumed["version"] > 0
    told = [event["event"] for event in started.events()]
    assert any(one.startswith("resumed from the checkpoints of updates") for one in told)
    # Each server begins with what it had counted, so that no byte is counted twice or lost.
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]["differences"]
    assert not (directory / "checkpoints").exists()


def test_each_server_suspects_a_silent_worker(command: CommandLine) -> None:
    freeze = {"who": {"devices": ["worker-2"]}, "when": {"iteration": 20}, "how": "freeze"}
    content = SHARDS | {
        "algorithms": ["sync-sgd"],
        # Which take longer than the freeze, also on a fast host.
        "training": {"updates": 100},
        "waiting": {"distribution": "constant", "mean": "50ms"},
        "devices": {"workers": 4, "servers": 3, "suspect_after": "700ms"},
        "faults": [freeze | {"lasting": "2s"}],
    }
    started = command.start_run(content)
    assert started.wait(120) == 0, started.said
    summary = assert_whole(started)
    assert summary["suspected"] >= 3
    rows = pushes(started)
    for server in range(3):
        # None of them waited for the frozen worker, whose pushes then count again.
        own = rows["applied"] & (rows["server"] == server)
        times = np.sort(rows["time"][own])
        assert np.diff(times).max() < 1.9
        assert rows["time"][own & (rows["worker"] == 2)].max() > times[0] + 2

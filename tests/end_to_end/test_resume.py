"""``testbed resume``: a run that was killed or interrupted ends as the undisturbed run does.

Simulations and emulations, with and without checkpoints, and runs that cannot be resumed.
"""

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.agree import impossible_bytes

from .conftest import SMALL, CommandLine, Started, assert_one_sentence

RUN: dict[str, Any] = SMALL | {
    "engine": "simulation",
    "seed": 5,
    "training": {"updates": 400},
    "algorithms": [{"name": "adacomp", "ratio": 0.05, "error_feedback": True}],
    "waiting": {"distribution": "exponential", "mean": "10ms"},
    "evaluation": {"every": 25},
    "checkpoints": {"every": 60},
}
HOST = ["host_time"]
"""Columns that differ between any two executions."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of the undisturbed run."""
    line = CommandLine(tmp_path_factory.mktemp("undisturbed"))
    return to_the_end(line.start_run(RUN)).run_directory


def updates(directory: Path) -> pa.Table:
    return pq.read_table(directory / "updates.parquet")


def assert_same_end(directory: Path, other: Path) -> None:
    """Assert that two runs have the same files and the same results, to the bit."""
    for name in ("curve.csv", "parameters.npy", "spec.yaml"):
        assert (directory / name).read_bytes() == (other / name).read_bytes(), name
    mine, theirs = updates(directory), updates(other)
    assert mine.drop_columns(HOST).equals(theirs.drop_columns(HOST))
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        path.name for path in other.iterdir()
    )
    one, another = (json.loads((path / "summary.json").read_bytes()) for path in (directory, other))
    for key in ("ended", "updates", "ingress", "ingress_after_drain", "parameters_sha256"):
        assert one[key] == another[key], key
    for key in ("best_accuracy", "final_accuracy", "training_seconds"):
        assert one[key] == another[key], key


def to_the_end(started: Started) -> Started:
    """Wait until a command has ended well; return it."""
    assert started.wait(300) == 0, started.said
    return started


def until_updates(started: Started, count: int) -> None:
    """Wait until the run has evaluated at least ``count`` updates."""

    def reached() -> bool:
        lines = started.curve().splitlines()
        return len(lines) > 1 and int(lines[-1].split(",")[0]) >= count

    started.until(reached, f"{count} updates")


def interrupted(started: Started) -> tuple[Path, int]:
    """Interrupt a run on its way; return its directory, and the updates that it had made."""
    until_updates(started, 75)
    started.process.send_signal(signal.SIGINT)
    assert started.wait() == 128 + signal.SIGINT
    directory = started.run_directory
    return directory, json.loads((directory / "summary.json").read_bytes())["updates"]


def until_going_on(started: Started, times: int) -> None:
    """Wait until a run has been resumed at least ``times`` times."""
    path = started.run_directory
    started.until(lambda: len(manifest(path).get("resumed", ())) >= times, "going on")


def test_a_simulation_killed_repeatedly_ends_as_the_undisturbed_one(
    command: CommandLine, undisturbed: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    started = command.start_run(RUN)
    until_updates(started, draw.randrange(25, 125, 25))
    directory = started.run_directory
    started.process.kill()
    started.wait()
    for times in (1, 2):
        again = command.start("resume", "latest", "--runs", command.out, "--no-report")
        # Kill it as soon as it has begun to cut the journals, or in the middle of training.
        until_going_on(again, times)
        if draw.random() < 0.5:
            until_updates(again, draw.randrange(150, 250, 25))
        again.process.kill()
        again.wait()
    to_the_end(command.start("resume", directory, "--no-report"))
    assert_same_end(directory, undisturbed)
    resumed = manifest(directory)["resumed"]
    assert resumed
    assert all(one["version"] % 60 == 0 for one in resumed)
    host = updates(directory).column("host_time").to_numpy()
    assert np.all(np.diff(host) >= 0)  # a session's time continues that of the session before
    summary = json.loads((directory / "summary.json").read_bytes())
    assert summary["host_seconds"] == host[-1] >= resumed[-1]["host_seconds"] > 0
    assert summary["updates_per_second"] == pytest.approx(400 / host[-1])


def test_an_interrupted_simulation_repeats_no_update(
    command: CommandLine, undisturbed: Path
) -> None:
    started = command.start_run(RUN)
    directory, reached = interrupted(started)
    assert (directory / "checkpoints").is_dir()
    again = to_the_end(command.start("resume", "small", "--runs", command.out, "--no-report"))
    last = again.output.read_text().splitlines()[-1]
    assert last == f"report: none; `testbed report {directory.parent}` writes it"
    assert not (directory.parent / "report.html").exists()
    assert_same_end(directory, undisturbed)
    (resumed,) = manifest(directory)["resumed"]
    assert resumed["version"] == reached
    told = [event["event"] for event in started.events()]
    assert told == [
        "stopped by SIGINT",
        f"resumed from the checkpoint of update {reached:,}",
    ]


def test_an_interrupted_simulation_of_peers_ends_as_the_undisturbed_one(
    command: CommandLine,
) -> None:
    others = {"devices": [f"worker-{i}" for i in range(1, SMALL["devices"]["workers"])]}
    kills = {"who": others, "how": "kill", "when": {"mean_time": "2s"}, "lasting": "100ms"}
    run = RUN | {"algorithms": [{"name": "ako", "partitions": 2}], "faults": [kills]}
    undisturbed = to_the_end(command.start_run(run)).run_directory
    command.out = command.folder / "interrupted"
    started = command.start_run(run)
    directory, reached = interrupted(started)
    to_the_end(command.start("resume", directory, "--no-report"))
    assert_same_end(directory, undisturbed)
    (resumed,) = manifest(directory)["resumed"]
    assert resumed["version"] == reached
    assert "killed for 0.1 s" in (directory / "events.jsonl").read_text()


def test_a_server_that_is_killed_comes_back(command: CommandLine, undisturbed: Path) -> None:
    faults = [
        {"who": "server", "how": "kill", "when": when, "lasting": "2s"}
        for when in ({"iteration": 20}, {"iteration": 290}, {"iteration": 295})
    ]
    directory = to_the_end(command.start_run(RUN | {"faults": faults})).run_directory
    for name in ("curve.csv", "parameters.npy"):
        assert (directory / name).read_bytes() == (undisturbed / name).read_bytes(), name
    assert updates(directory).drop_columns(HOST).equals(updates(undisturbed).drop_columns(HOST))
    lines = (directory / "faults.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert [(one["phase"], one["iteration"], one["devices"]) for one in told] == [
        (phase, at, ["server"]) for at in (20, 290, 295) for phase in ("begin", "end")
    ]
    events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    told_of = [one["event"] for one in events if one["device"] == "server"]
    back = [text for text in told_of if text.startswith(("begins anew", "back from"))]
    assert back == ["begins anew", *["back from the checkpoint of update 240"] * 2]


def test_a_simulation_without_checkpoints_begins_anew_and_says_so(command: CommandLine) -> None:
    # An execution of two runs, the second of which was never begun.
    algorithms = ["asgd", "comp-asgd"]
    started = command.start_run(RUN | {"checkpoints": {}, "algorithms": algorithms})
    until_updates(started, 25)
    started.process.send_signal(signal.SIGTERM)
    assert started.wait() == 128 + signal.SIGTERM
    first = started.run_directory
    output = to_the_end(command.start("resume", first.parent, "--json")).output.read_text()
    summaries = json.loads(output)["runs"]
    assert [one["updates"] for one in summaries] == [400, 400]
    assert [path.name for path in sorted(first.parent.glob("*/summary.json"))] == [
        "summary.json"
    ] * 2
    events = [json.loads(line) for line in (first / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "resumed from the beginning: there is no checkpoint"
    assert updates(first).num_rows == 400
    assert (first.parent / "report.html").exists()


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_an_emulation_without_checkpoints_begins_anew_in_its_directory(
    command: CommandLine,
) -> None:
    content = RUN | {"engine": "emulation", "clock": "virtual", "checkpoints": {}}
    content |= {"training": {"updates": 150}, "algorithms": ["adacomp"]}
    started = command.start_run(content)
    until_updates(started, 25)
    started.process.send_signal(signal.SIGINT)
    assert started.wait(120) == 128 + signal.SIGINT
    directory = started.run_directory
    to_the_end(command.start("resume", directory, "--no-report"))
    summary = json.loads((directory / "summary.json").read_bytes())
    assert (summary["ended"], summary["updates"]) == ("completed", 150)
    assert summary["traffic"]["reconciled"]
    assert [path.name for path in (directory / "traffic").glob("earlier*")] == ["earlier-1"]
    assert (directory / "traffic" / "earlier-1" / "counters.parquet").exists()
    assert updates(directory).num_rows == 150
    assert "resumed from the beginning: there is no checkpoint" in [
        event["event"] for event in started.events()
    ]
    simulated = to_the_end(
        command.start(
            "simulate", command.spec(content), "--out", command.folder / "s", "--no-report"
        )
    )
    (other,) = (command.folder / "s").glob("*/*/*/summary.json")
    assert simulated.process.returncode == 0
    theirs = json.loads(other.read_bytes())
    assert summary["parameters_sha256"] == theirs["parameters_sha256"]


EMULATED: dict[str, Any] = RUN | {
    "engine": "emulation",
    "clock": "virtual",
    "training": {"updates": 220},
    "checkpoints": {"every": 20},
    "evaluation": {"every": 10, "images": 50},
    "algorithms": [{"name": "adacomp", "ratio": 0.05}],
    "network": {"uplink": "20Mbit", "downlink": "50Mbit"},
    "pulls": "changed",
    "waiting": {"distribution": "exponential", "mean": "100ms"},
    "faults": [
        {"when": {"probability": 0.05}, "how": "kill", "lasting": "500ms"},
        {"when": {"mean_time": "3s"}, "how": "freeze", "lasting": "1s"},
        {"who": {"devices": ["worker-4"]}, "when": {"iteration": 40}, "how": "freeze"},
        {"who": "server", "when": {"iteration": 25}, "how": "kill", "lasting": "100ms"},
        {"who": "server", "when": {"iteration": 200}, "how": "kill", "lasting": "100ms"},
    ],
}


def faults_of(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "faults.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "host_time"} for line in lines]


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_an_emulation_goes_on_from_its_checkpoint(command: CommandLine) -> None:
    """Killed, then interrupted: under the virtual clock it ends with the simulation's bits."""
    started = command.start_run(EMULATED)
    until_updates(started, 60)
    directory = started.run_directory
    started.process.kill()
    started.wait()
    again = command.start("resume", directory, "--no-report")
    until_going_on(again, 1)
    until_updates(again, 100)
    again.process.send_signal(signal.SIGTERM)
    assert again.wait(120) == 128 + signal.SIGTERM
    to_the_end(command.start("resume", directory, "--no-report"))
    versions = [one["version"] for one in manifest(directory)["resumed"]]
    assert len(versions) == 2
    assert 25 < versions[0] < versions[1] < 200
    assert all(version % 20 == 0 for version in versions)
    times = [event["time"] for event in started.events()]
    assert times == sorted(times)
    other = to_the_end(
        command.start(
            "simulate", command.spec(EMULATED), "--out", command.folder / "s", "--no-report"
        )
    )
    assert other.process.returncode == 0
    (simulated,) = (path.parent for path in (command.folder / "s").glob("*/*/*/summary.json"))
    assert updates(directory).drop_columns(HOST).equals(updates(simulated).drop_columns(HOST))
    assert faults_of(directory) == faults_of(simulated)
    curves = (pq.read_table(path / "evaluations.parquet") for path in (directory, simulated))
    one, another = (table.drop_columns(["time", "wire_bytes"]) for table in curves)
    assert one.equals(another)
    wire = pq.read_table(directory / "evaluations.parquet")["wire_bytes"].to_pylist()
    assert wire == sorted(wire)
    summaries = [json.loads((p / "summary.json").read_bytes()) for p in (directory, simulated)]
    assert len({one["parameters_sha256"] for one in summaries}) == 1
    emulated, modelled = (one["ingress_after_drain"] for one in summaries)
    assert [emulated[key] for key in ("payload_bytes", "message_bytes")] == [
        modelled[key] for key in ("payload_bytes", "message_bytes")
    ]
    # Measured in all three sessions, up to their checkpoints: repeated work is counted again.
    assert emulated["message_bytes"] < emulated["wire_bytes"] < 1.5 * modelled["wire_bytes"]
    assert not (directory / "checkpoints").exists()


SEVERAL: dict[str, dict[str, Any]] = {
    "three servers": {
        "algorithms": [{"name": "sync-sgd", "wait_for": 3, "protocol": "push-and-wait"}],
        "devices": {"workers": 4, "servers": 3},
    },
    "aggregators": {
        "algorithms": [{"name": "hierarchical", "ratio": 0.05, "server": "asynchronous"}],
        "network": {"clusters": [{"name": "a", "share": "60%"}, {"name": "b", "share": "40%"}]},
        "pulls": "changed",
    },
}


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.parametrize("name", SEVERAL)
def test_so_does_one_of_several_processes(command: CommandLine, name: str) -> None:
    content = EMULATED | {
        "pulls": "full",
        "training": {"updates": 48},
        "evaluation": {"every": 4, "images": 50},
        "checkpoints": {"every": 8},
        "faults": [EMULATED["faults"][0] | {"lasting": "200ms"}],
        **SEVERAL[name],
    }
    started = command.start_run(content)
    until_updates(started, 24)
    directory = started.run_directory
    started.process.kill()
    started.wait()
    to_the_end(command.start("resume", directory, "--no-report"))
    (resumed,) = manifest(directory)["resumed"]
    assert resumed["version"] >= 16
    assert resumed["version"] % 8 == 0
    to_the_end(
        command.start(
            "simulate", command.spec(content), "--out", command.folder / "s", "--no-report"
        )
    )
    (simulated,) = (path.parent for path in (command.folder / "s").glob("*/*/*/summary.json"))
    # The reports of several servers reach the journal in any order.
    by_server = [("server", "ascending"), ("time", "ascending"), ("worker", "ascending")]
    mine, theirs = (
        updates(path).drop_columns(HOST).sort_by(by_server).to_pylist()
        for path in (directory, simulated)
    )
    assert len(mine) == len(theirs)
    for one, another in zip(mine, theirs, strict=True):
        assert repr(one) == repr(another)
    assert faults_of(directory) == faults_of(simulated)
    curves = (pq.read_table(path / "evaluations.parquet") for path in (directory, simulated))
    first, second = (table.drop_columns(["time", "wire_bytes"]) for table in curves)
    assert first.equals(second)
    emulated, modelled = (
        json.loads((path / "summary.json").read_bytes()) for path in (directory, simulated)
    )
    assert emulated["parameters_sha256"] == modelled["parameters_sha256"]
    assert emulated["traffic"]["reconciled"] is True
    for key in ("payload_bytes", "message_bytes"):
        assert emulated["ingress_after_drain"][key] == modelled["ingress_after_drain"][key]
    wire = pq.read_table(directory / "evaluations.parquet")["wire_bytes"].to_pylist()
    assert wire == sorted(wire)


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_devices_that_are_away_at_the_checkpoint_come_back(command: CommandLine) -> None:
    """Most are away, so that one that is started too early shows."""
    some = {"name": "some", "number": 5, "leaves": "300ms", "returns": "2s"}
    several = SEVERAL["aggregators"]
    content = EMULATED | {
        "training": {"updates": 40},
        "pulls": "full",
        "evaluation": {"every": 4, "images": 50},
        "checkpoints": {"every": 4},
        "waiting": {"distribution": "exponential", "mean": "100ms"},
        "faults": [],
        **several,
    }
    core = {"name": "core", "number": 3}
    content["devices"] = {"workers": 8, "classes": [core, some]}
    started = command.start_run(content)
    until_updates(started, 12)
    directory = started.run_directory
    started.process.kill()
    started.wait()
    to_the_end(command.start("resume", directory, "--no-report"))
    to_the_end(
        command.start(
            "simulate", command.spec(content), "--out", command.folder / "s", "--no-report"
        )
    )
    (simulated,) = (path.parent for path in (command.folder / "s").glob("*/*/*/summary.json"))
    assert faults_of(directory) == faults_of(simulated)
    emulated, modelled = (
        json.loads((path / "summary.json").read_bytes()) for path in (directory, simulated)
    )
    assert emulated["parameters_sha256"] == modelled["parameters_sha256"]
    assert not [
        event for event in started.events() if "training has begun without it" in event["event"]
    ]


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_under_the_wall_clock_lasting_faults_hold_after_a_resume(command: CommandLine) -> None:
    faults = [
        {"who": {"devices": ["worker-0"]}, "when": {"iteration": 20}, "how": "kill"},
        {"who": {"devices": ["worker-1"]}, "when": {"iteration": 30}, "how": "freeze"},
        {"who": {"devices": ["worker-2"]}, "when": {"time": "100ms"}, "how": "freeze"},
    ]
    content = EMULATED | {"clock": "wall", "faults": faults, "training": {"updates": 160}}
    started = command.start_run(content)
    until_updates(started, 80)
    started.process.send_signal(signal.SIGINT)
    assert started.wait(120) == 128 + signal.SIGINT
    directory = started.run_directory
    struck = faults_of(directory)
    again = to_the_end(command.start("resume", directory, "--json", "--no-report"))
    (summary,) = json.loads(again.output.read_text())["runs"]
    (resumed,) = manifest(directory)["resumed"]
    assert resumed["version"] % 20 == 0
    assert resumed["version"] >= 60
    # All three are lost for good and struck once: earlier faults are not carried out again.
    assert faults_of(directory) == struck
    assert summary["faults"] == {"kill": 1, "freeze": 2}
    rows = updates(directory).to_pydict()
    applied = [v for v, yes in zip(rows["iteration"], rows["applied"], strict=True) if yes]
    assert applied == list(range(1, 161))
    later = Counter(
        worker
        for worker, version in zip(rows["worker"], rows["iteration"], strict=True)
        if version > resumed["version"]
    )
    # A worker is frozen again as soon as training has begun: a push may leave it before that.
    assert {worker for worker, pushes in later.items() if pushes > 1} == {3, 4}
    assert later[0] == 0
    assert np.all(np.diff(rows["time"]) >= 0)
    assert rows["time"][-1] - rows["time"][0] < 120
    evaluations = pq.read_table(directory / "evaluations.parquet")
    assert evaluations["iteration"].to_pylist() == list(range(0, 161, 10))
    for name in ("payload_bytes", "message_bytes", "wire_bytes", "time"):
        values = evaluations[name].to_pylist()
        assert values == sorted(values), name
    assert summary["traffic"]["reconciled"]


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_under_the_wall_clock_aggregators_begin_anew(command: CommandLine) -> None:
    content = SMALL | {
        "training": {"updates": 40},
        "algorithms": [{"name": "hierarchical"}],
        "network": {"clusters": [{"name": "a", "share": "50%"}, {"name": "b", "share": "50%"}]},
        "waiting": {"distribution": "constant", "mean": "50ms"},
        "evaluation": {"every": 20, "images": 50},
        "checkpoints": {"every": 4},
    }
    started = command.start_run(content)
    until_updates(started, 12)
    started.process.send_signal(signal.SIGINT)
    assert started.wait(120) == 128 + signal.SIGINT
    directory = started.run_directory
    to_the_end(command.start("resume", directory, "--no-report"))
    summary = json.loads((directory / "summary.json").read_bytes())
    assert (summary["ended"], summary["updates"]) == ("completed", 40)
    assert manifest(directory)["resumed"][0]["version"] > 0
    assert impossible_bytes(summary) == []
    # Their counters do not know of the session before.
    assert all("wire_bytes" not in one for one in summary["aggregators"].values())


def test_runs_that_cannot_be_resumed_are_refused(command: CommandLine, undisturbed: Path) -> None:
    runs = undisturbed.parents[2]
    told = assert_one_sentence(command.do("resume", "latest", "--runs", runs), 2)
    assert "is complete: there is nothing to resume" in told
    started = command.start_run(RUN | {"training": {"updates": 100_000}})
    until_updates(started, 100)
    told = assert_one_sentence(command.do("resume", "latest", "--runs", command.out), 2)
    assert f"still running, as process {started.process.pid}" in told
    os.kill(started.process.pid, signal.SIGKILL)
    started.wait()
    path = started.run_directory / "manifest.json"
    whole = manifest(path.parent)
    path.write_text(json.dumps(whole | {"code": "another"}))
    told = assert_one_sentence(command.do("resume", "latest", "--runs", command.out), 2)
    assert "written by other code than this (testbed " in told
    path.write_text(json.dumps(whole | {"versions": whole["versions"] | {"torch": "0.1"}}))
    told = assert_one_sentence(command.do("resume", "latest", "--runs", command.out), 2)
    assert "written with torch 0.1, and here is" in told
    path.write_text(json.dumps(whole | {"host": whole["host"] | {"cpu": "Z80"}}))
    told = assert_one_sentence(command.do("resume", "latest", "--runs", command.out), 2)
    assert "was begun on a processor Z80, and here is" in told
    told = assert_one_sentence(command.do("resume", "nothing", "--runs", command.out), 2)
    assert "there is no run 'nothing'" in told


def manifest(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "manifest.json").read_bytes())
    return content

"""Faults of namespaces, links and processes in real runs under the wall clock."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from testbed.doctor.attempts import missing_disciplines
from testbed.experiment.load import load
from testbed.faults.schedule import Schedule
from testbed.nodes.computing_turns import holds_turn
from testbed.planning.plan import plan
from tests.end_to_end.conftest import SMALL, CommandLine, Started, assert_one_sentence

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]

FAULTY: dict[str, Any] = SMALL | {
    "training": {"updates": 600},
    "devices": {"workers": 8},
    "waiting": {"distribution": "constant", "mean": "20ms"},
    "evaluation": {"every": 200},
}
QUICK = 20.0
"""Seconds within which a run ends after its last update: it does not wait for lost devices."""


def of(worker: int, when: dict[str, Any], how: Any, lasting: str | None = None) -> dict[str, Any]:
    rule = {"who": {"devices": [f"worker-{worker}"]}, "when": when, "how": how}
    return rule | ({"lasting": lasting} if lasting else {})


def faults(started: Started) -> list[dict[str, Any]]:
    lines = (started.run_directory / "faults.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_sound(started: Started) -> dict[str, Any]:
    """Assert that a run's ledgers agree and no update is lost or repeated; return its summary."""
    summary = started.record("summary")
    assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]
    rows = pq.read_table(started.run_directory / "updates.parquet").to_pydict()
    applied = [i for i, yes in zip(rows["iteration"], rows["applied"], strict=True) if yes]
    assert applied == list(range(1, summary["updates"] + 1))  # none lost, none applied twice
    account = pq.read_table(started.run_directory / "traffic" / "accounting.parquet").to_pydict()
    sums: Counter[str] = Counter()
    for i, direction in enumerate(account["direction"]):
        for name in ("payload_bytes", "stream_bytes", "framing_bytes"):
            assert account[name][i] >= 0
            sums[name] += account[name][i] * (direction == "ingress")
    assert sums["payload_bytes"] + sums["framing_bytes"] == sums["stream_bytes"]
    assert sums["payload_bytes"] == summary["ingress_after_drain"]["payload_bytes"]
    return summary


def assert_quick(started: Started) -> None:
    events = started.events()
    began = next(one["time"] for one in events if one["event"] == "training begins")
    last = started.record("summary")["host_seconds"] + began
    assert events[-1]["time"] < last + QUICK


def test_every_kind_of_fault_begins_ends_and_is_recorded(command: CommandLine) -> None:
    rules = [
        of(0, {"time": "0.5s"}, "freeze", "500ms"),
        of(1, {"time": "0.6s"}, "kill", "300ms"),
        of(2, {"time": "0.7s"}, "stop-network", "800ms"),
        of(2, {"time": "0.9s"}, "kill", "200ms"),  # while no packet can report its end
        {
            "who": {"devices": ["worker-3", "worker-4"]},
            "when": {"iteration": 100},
            "how": "partition",
            "lasting": "300ms",
        },
        of(5, {"iteration": 150}, {"kind": "slow", "factor": 4, "uplink": "20Mbit"}, "500ms"),
        of(6, {"iteration": 200}, "freeze"),
        of(4, {"iteration": 250}, "stop-network"),
        of(3, {"iteration": 300}, "partition"),
        of(1, {"iteration": 570}, "kill", "200ms"),
    ]
    started = command.start_run(FAULTY | {"faults": rules}, report=True)
    started.until_training()
    traces = started.traces()
    assert started.wait(120) == 0, started.said
    traces.assert_gone()
    summary = assert_sound(started)
    assert summary["ended"] == "completed" and summary["workers_lost"] == 0
    assert_quick(started)
    assert not [one for one in started.events() if one["level"] != "info"]
    told = faults(started)
    begun = {one["rule"]: one for one in told if one["phase"] == "begin"}
    assert sorted(begun) == list(range(len(rules)))
    for rule, one in begun.items():
        given = rules[rule]
        assert one["devices"] == given["who"]["devices"]
        kind = given["how"] if isinstance(given["how"], str) else given["how"]["kind"]
        assert one["fault"] == kind
        if "time" in given["when"]:
            assert abs(one["time"] - float(given["when"]["time"][:-1])) < 0.5
        else:
            assert one["iteration"] == given["when"]["iteration"]
    ended = {one["rule"]: one["time"] for one in told if one["phase"] == "end"}
    for rule in (0, 1, 2, 3, 4, 5):
        assert ended[rule] - begun[rule]["time"] == pytest.approx(begun[rule]["duration"], abs=0.3)
    assert {6, 7, 8}.isdisjoint(ended)
    # A worker lost for good pushes at most what was on its way; one that came back pushes again.
    rows = pq.read_table(started.run_directory / "updates.parquet").to_pydict()
    by = {
        w: [t for t, o in zip(rows["time"], rows["worker"], strict=True) if o == w]
        for w in range(8)
    }
    for worker, rule in ((6, 6), (4, 7), (3, 8)):
        assert sum(t > begun[rule]["time"] + 0.2 for t in by[worker]) <= 1
    for worker, rule in ((0, 0), (1, 1), (2, 2), (2, 3), (5, 5)):
        assert by[worker][-1] > ended[rule]
        if rule not in (5,):
            assert sum(begun[rule]["time"] + 0.2 < t < ended[rule] for t in by[worker]) <= 1


def test_the_same_devices_are_struck_after_the_same_pushes(command: CommandLine) -> None:
    content = FAULTY | {
        "training": {"updates": 400},
        "faults": [
            {"when": {"probability": 0.03}, "how": "freeze", "lasting": "100ms"},
            {"when": {"probability": 0.01}, "how": "kill", "lasting": "100ms"},
            {"when": {"probability": 0.01}, "how": "stop-network", "lasting": "50ms"},
            {"when": {"probability": 0.01}, "how": {"kind": "slow", "factor": 3}},
            {"when": {"probability": 0.002}, "how": "freeze"},
        ],
    }
    seen = []
    for again in ("a", "b"):
        out = command.folder / again
        how = ("--out", out, "--no-report")
        started = command.start("run", command.spec(content), *how, out=out)
        assert started.wait(120) == 0, started.said
        assert_sound(started)
        seen.append(_struck(started))
    planned = plan(load(command.folder / "spec.yaml"))[0].settings
    schedule = Schedule(planned.faults.rules, planned.seed, planned.workers)
    for worker in range(8):
        first, second = (one[worker] for one in seen)
        # The host's speed decides how many pushes a worker makes.
        assert first[: len(second)] == second[: len(first)]
        for pushes, rule in first:
            assert rule in [fault.rule for fault in schedule.after_push(worker, pushes)]
    assert sum(map(len, seen[0].values())) > 10


def _struck(started: Started) -> dict[int, list[tuple[int, int]]]:
    """Return for each worker its faults: how many of its pushes were applied before, and the rule."""
    rows = pq.read_table(started.run_directory / "updates.parquet").to_pydict()
    found: dict[int, list[tuple[int, int]]] = {worker: [] for worker in range(8)}
    for one in faults(started):
        if one["phase"] == "begin":
            worker = int(one["devices"][0].removeprefix("worker-"))
            both = zip(rows["worker"], rows["iteration"], strict=True)
            pushes = sum(w == worker and i <= one["iteration"] for w, i in both)
            found[worker].append((pushes, one["rule"]))
    return found


def test_a_run_ends_when_every_worker_is_lost(command: CommandLine) -> None:
    rules = [
        of(0, {"time": "0.3s"}, "kill"),
        of(1, {"time": "0.3s"}, "freeze"),
        of(2, {"time": "0.4s"}, "stop-network"),
        of(3, {"time": "0.5s"}, "partition"),
    ]
    content = FAULTY | {"devices": {"workers": 4}, "faults": rules}
    started = command.start_run(content | {"training": {"updates": 100_000}})
    assert started.wait(120) == 1
    assert assert_sound(started)["ended"] == "failed"
    assert_quick(started)
    assert "testbed: asgd failed: no further update was possible" in started.said


def test_corrupt_faults_are_refused_where_the_kernel_lacks_netem(command: CommandLine) -> None:
    content = FAULTY | {"faults": [of(0, {"time": "0.1s"}, {"kind": "corrupt", "share": "1%"})]}
    if "netem" not in missing_disciplines():
        started = command.start_run(content)
        assert started.wait(120) == 0, started.said
        return
    result = command.do("run", command.spec(content), "--out", command.out)
    assert "sch_netem" in assert_one_sentence(result, 1)
    assert not Path(command.out).exists() or not list(Path(command.out).glob("*/*/*"))


def test_a_frozen_worker_holds_no_turn_at_computing(command: CommandLine) -> None:
    """Most workers, which compute all the time, are frozen; the others must get every turn."""
    count, frozen = 15, 10
    rules = [of(number, {"time": f"{1 + number / 10}s"}, "freeze") for number in range(frozen)]
    content = SMALL | {
        "model": "cnn",
        "training": {"updates": 100_000},
        "devices": {"workers": count},
        "waiting": {"distribution": "constant", "mean": "0s"},
        "faults": rules,
    }
    started = command.start_run(content)
    started.until_training()
    nodes = started.nodes()
    started.until(lambda: len(faults(started)) == frozen, "all faults")
    time.sleep(0.5)  # the last fault is reported before it has taken effect
    for number in range(frozen):
        with Path(f"/proc/{nodes[f'worker-{number}'].pid}/ns/net").open() as network:
            assert not holds_turn(network.fileno()), f"worker-{number}"
    before = started.curve()
    started.until(lambda: started.curve() != before, "another evaluation")


def test_a_run_accepts_a_trace_of_five_thousand_faults(command: CommandLine) -> None:
    """The faults as sent to the agent and the roles are longer than a packet of a channel."""
    rows = [f"worker-{i % 8},{3600 + i}" for i in range(5_000)]  # too late for so short a run
    trace = command.folder / "outages.csv"
    trace.write_text("\n".join(["device,time", *rows]) + "\n")
    rule = {"when": {"trace": str(trace)}, "how": "freeze", "lasting": "1s"}
    spec = FAULTY | {"training": {"updates": 60}, "faults": [rule]}
    started = command.start_run(spec)
    assert started.wait() == 0, started.said
    assert started.record("manifest")["ended"] == "completed"
    assert assert_sound(started)["updates"] == 60

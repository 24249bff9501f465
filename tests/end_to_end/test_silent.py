"""Runs whose workers fall silent: they go on, report it, and take back workers that return."""

import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from bench.agree import SPEC
from tests.end_to_end.agreement import pairs
from tests.end_to_end.conftest import SMALL, CommandLine

pytestmark = [
    pytest.mark.real,
    pytest.mark.exercises("namespaces"),
]


def test_emulation_and_simulation_suspect_the_same_at_the_same_moments(tmp_path: Path) -> None:
    spec: dict[str, Any] = yaml.safe_load(SPEC.read_text())
    spec["training"]["updates"] = 20
    spec["devices"]["suspect_after"] = "100ms"
    classes = [{"share": "75%", "factor": 1}, {"share": "25%", "factor": 8}]
    spec["compute"]["classes"] = classes
    spec["algorithms"] = [
        {"name": "sync-sgd", "wait_for": 7, "protocol": "push-and-wait", "pulls": "changed"},
        {"name": "sync-sgd", "protocol": "push-and-interrupt"},
        {"name": "adacomp", "ratio": 0.01},
    ]
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    for pair in pairs(path, tmp_path):
        assert pair.emulated["ended"] == "completed"
        assert pair.differences() == [], pair.emulated["algorithm"]
        assert pair.emulated["suspected"] >= pair.emulated["welcomed"] > 0
        for count in ("suspected", "welcomed"):
            assert pair.emulated[count] == pair.simulated[count]


def test_a_stopped_worker_is_left_out_and_welcomed_back(command: CommandLine) -> None:
    spec = SMALL | {
        "training": {"updates": 100_000},
        "algorithms": ["sync-sgd"],
        "devices": {"workers": 4, "suspect_after": "1s"},
        "evaluation": {"every": 20, "images": 100},
    }
    started = command.start_run(spec)
    started.until_training()
    nodes = started.nodes()

    def events(device: str, text: str) -> list[dict[str, Any]]:
        return [e for e in started.events() if e["device"] == device and text in e["event"]]

    for device in ("worker-1", "worker-3"):
        nodes[device].send_signal(signal.SIGSTOP)
    started.until(lambda: events("worker-1", "is suspected"), "worker-1 is suspected")
    started.until(lambda: events("worker-3", "is suspected"), "worker-3 is suspected")
    lines = len(started.curve().splitlines())
    started.until(lambda: len(started.curve().splitlines()) > lines + 2, "training goes on")
    assert not events("worker-1", "welcomed back")
    nodes["worker-1"].send_signal(signal.SIGCONT)
    started.until(lambda: events("worker-1", "welcomed back"), "worker-1 is welcomed")
    lines = len(started.curve().splitlines())
    started.until(lambda: len(started.curve().splitlines()) > lines + 2, "and takes part")
    started.interrupt()
    assert started.wait() == 128 + signal.SIGINT
    rows = pq.read_table(started.run_directory / "updates.parquet").to_pydict()
    summary = started.record("summary")
    # On a busy host more workers may be suspected.
    assert summary["suspected"] >= 2
    assert summary["welcomed"] >= 1
    own = [i for i, worker in enumerate(rows["worker"]) if worker == 1]
    dropped = [i for i in own if not rows["applied"][i]]
    assert dropped
    assert any(i > dropped[0] and rows["applied"][i] for i in own)
    last = max(i for i, worker in enumerate(rows["worker"]) if worker == 3)
    assert rows["iteration"][-1] > rows["iteration"][last] + 40


def test_the_end_of_a_run_does_not_wait_for_a_suspected_worker(command: CommandLine) -> None:
    spec = SMALL | {
        "training": {"updates": 150},
        "waiting": {"distribution": "constant", "mean": "30ms"},
        "algorithms": ["sync-sgd"],
        "devices": {"workers": 4, "suspect_after": "500ms"},
        "evaluation": {"every": 20, "images": 100},
    }
    started = command.start_run(spec)
    started.until_training()
    started.nodes()["worker-2"].send_signal(signal.SIGSTOP)
    assert started.wait() == 0, started.said
    summary = started.record("summary")
    assert summary["ended"] == "completed"
    assert (summary["updates"], summary["suspected"]) == (150, 1)
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]
    ends = [e for e in started.events() if "is killed" in e["event"]]
    assert [e["device"] for e in ends] == ["worker-2"]
    training = summary["setup_seconds"] + summary["training_seconds"]
    assert ends[0]["time"] < training + 15


def test_a_worker_stopped_by_hand_is_killed_soon_after_training(command: CommandLine) -> None:
    spec = SMALL | {"training": {"updates": 400}, "evaluation": {"every": 100, "images": 100}}
    started = command.start_run(spec)
    started.until_training()
    started.nodes()["worker-2"].send_signal(signal.SIGSTOP)
    assert started.wait() == 0, started.said
    summary = started.record("summary")
    assert (summary["ended"], summary["updates"]) == ("completed", 400)
    assert summary["traffic"]["reconciled"] is True, summary["traffic"]
    texts = [e["event"] for e in started.events() if e["device"] == "worker-2"]
    # The limit for stopped workers applies, not that for workers that may be computing, twice.
    assert "it did not end within 5 s of the training's end and is killed" in texts
    assert not [text for text in texts if "still connected" in text]

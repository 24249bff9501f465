"""Runs with the fork server of many devices: a new interpreter, in place of a forked process."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.end_to_end.conftest import ENDLESS, REPOSITORY, CommandLine, Started

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

EXPERIMENT: dict[str, Any] = {
    "name": "many",
    "dataset": "digits",
    "model": "mlp",
    "clock": "virtual",
    "training": {"updates": 120, "learning_rate": 0.02},
    # The first is executed by the process that plans, and then says of 1 device that it is many.
    "plugins": ["many.py", "rules.py"],
    "compute": {"distribution": "exponential", "mean": "100ms"},
    "evaluation": {"every": 20, "images": 100},
    "checkpoints": {"every": 10},
}
KILLED: dict[str, dict[str, Any]] = {
    "a server, and workers": {
        "algorithms": ["rules:Momentum"],
        "devices": {"workers": 4},
        "pulls": "changed",
        "faults": [
            {"who": "server", "when": {"iteration": 25}, "how": "kill", "lasting": "1s"},
            {"when": {"mean_time": "2s"}, "how": "kill", "lasting": "100ms"},
        ],
    },
    "peers": {
        "algorithms": [{"name": "ako", "partitions": 2}],
        "devices": {"workers": 4},
        "faults": [
            {
                "who": {"devices": ["worker-2"]},
                "when": {"mean_time": "2s"},
                "how": "kill",
                "lasting": "100ms",
            }
        ],
    },
}


def _files_in_memory(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/maps").read_text()


def _until_evaluated(started: Started) -> None:
    started.until(lambda: len(started.curve().splitlines()) > 1, "an evaluation")


@pytest.mark.parametrize("killed", KILLED)
def test_the_fork_server_of_many_devices_changes_no_bit(
    command: CommandLine, tmp_path: Path, killed: str
) -> None:
    shutil.copy(REPOSITORY / "examples" / "plugin" / "rules.py", tmp_path)
    sets = "from testbed.planning import node_plan\n\nnode_plan.ANEW_FROM = 1\n"
    (tmp_path / "many.py").write_text(sets)
    path = tmp_path / "many.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT | KILLED[killed]))
    found: list[dict[str, Any]] = []
    for verb in ("run", "simulate"):
        out = tmp_path / verb
        started = command.start(verb, path, "--out", out, "--no-report", out=out)
        if verb == "run":
            _until_evaluated(started)
            assert "matplotlib" in _files_in_memory(started.agent)
            assert "matplotlib" not in _files_in_memory(started.fork_server)
        assert started.wait(120) == 0, started.said
        (file,) = (tmp_path / verb).glob("*/*/*/summary.json")
        found.append(json.loads(file.read_bytes()))
        assert '"kill"' in (file.parent / "faults.jsonl").read_text()
    emulated, simulated = found
    assert emulated["parameters_sha256"] == simulated["parameters_sha256"]
    assert emulated["faults"] == simulated["faults"]


IDLE: dict[str, tuple[str, dict[str, Any]]] = {
    "one server": ("server", {}),
    "two servers": ("server-0", {"devices": {"workers": 4, "servers": 2}}),
    "orders of a clock": ("server", {"clock": "virtual"}),
    "peers": ("peer-0", {"algorithms": [{"name": "all-to-all", "staleness_bound": 0}]}),
    "peers with orders": ("coordinator", {"algorithms": ["all-to-all"], "clock": "virtual"}),
}
"""For each kind of devices that compute the one without which the others wait, and the experiment."""


@pytest.mark.parametrize("kind", IDLE)
def test_a_device_that_waits_does_not_wake(command: CommandLine, kind: str) -> None:
    """With thousands of devices, one wake-up of each per second takes all processors."""
    awaited, changes = IDLE[kind]
    started = command.start_run(ENDLESS | {"devices": {"workers": 4}} | changes)
    started.until_training()
    nodes = {node.name(): node for node in started.fork_server.children()}
    nodes[awaited].suspend()
    time.sleep(2.5)
    waiting = [node for name, node in nodes.items() if name.startswith(("worker", "peer"))]
    waiting = [node for node in waiting if node.name() != awaited]
    woken = [-node.num_ctx_switches().voluntary for node in waiting]
    time.sleep(3)
    woken = [n + node.num_ctx_switches().voluntary for n, node in zip(woken, waiting, strict=True)]
    nodes[awaited].resume()
    assert woken == [0] * len(waiting) and len(waiting) >= 3


def test_a_device_whose_programs_sleep_wakes_less_and_less(command: CommandLine) -> None:
    """It looks for ports that they have opened after 1, 3 and 7 s, and then every 8 to 10 s."""
    napping = {"nap": {"on": "workers", "run": "sleep 100"}}
    started = command.start_run({"name": "nap", "programs": napping, "devices": {"workers": 2}})
    started.until(lambda: "nap 2/2" in started.said, "two naps")
    time.sleep(8)
    names = "worker-0", "worker-1"
    keepers = [node for node in started.fork_server.children() if node.name() in names]
    woken = [-keeper.num_ctx_switches().voluntary for keeper in keepers]
    time.sleep(6)
    woken = [n + node.num_ctx_switches().voluntary for n, node in zip(woken, keepers, strict=True)]
    assert len(woken) == 2 and max(woken) <= 2

"""A run over the hosts of a real Ray cluster: three nodes, each in namespaces of its own.

The two nodes beside the orchestrator's see neither the testbed's code nor the data.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import testbed
from bench.hosts import TESTBED
from bench.ray_nodes import RayNode, ray_cluster
from testbed.errors import HostError
from testbed.nodes import run_names
from testbed.nodes.forked_process import ForkedCommand
from testbed.ray_cluster import ray_hosts
from tests.end_to_end.conftest import until
from tests.sweeps.test_cluster import write_dataset

SPEC: dict[str, Any] = {
    "name": "spread",
    "model": "mlp",
    "clock": "virtual",
    "training": {"batch_size": 10, "updates": 40},
    "algorithms": ["asgd"],
    "devices": {"workers": 6},
    "network": {"uplink": "20mbit", "downlink": "50mbit"},
    "compute": {"mean": "20ms"},
    "evaluation": {"every": 20, "images": 100},
}


class RayRun:
    """A command with ``--hosts ray`` on the first node."""

    def __init__(self, head: RayNode, folder: Path, *arguments: str) -> None:
        self.log = folder / f"{'-'.join(arguments[:2])}.log".replace("/", "-")
        self.process = head.popen(*TESTBED, *arguments, "--hosts", "ray", log=self.log)

    def said(self) -> str:
        return self.log.read_text()


def left(node: RayNode) -> list[str]:
    """Return what agents of runs have left on a node: processes and folders."""
    parts = (run_names.TITLES, "NodeAgent", "ray_cluster.node_agent")
    own = [line for line in node.commands().values() if any(part in line for part in parts)]
    return [*own, *map(str, node.files("testbed-*", "/var/tmp"))]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda: time.sleep(100), "has started no agents within 0 s"),
        (lambda: None, "the process that drives Ray has died"),
    ],
)
def test_a_cluster_that_does_not_answer_is_not_waited_for(
    body: Callable[[], None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_hosts, "_ANSWER", 0.4)
    driver = ForkedCommand("driver", body)
    with pytest.raises(HostError, match=reason):
        ray_hosts._started(driver, "ray", [])
    assert driver.status is not None
    driver.finish(0)


@pytest.mark.real
@pytest.mark.exercises("namespaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="links between hosts need root")
@pytest.mark.timeout(900)
def test_nodes_of_a_cluster_are_hosts_of_a_run_and_keep_nothing(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
    write_dataset(tmp_path / "data")
    spec = SPEC | {"dataset": str(tmp_path / "data")}
    (tmp_path / "spread.yaml").write_text(yaml.safe_dump(spec))
    long = spec | {"training": {"batch_size": 10, "updates": 1_000_000}}
    (tmp_path / "long.yaml").write_text(yaml.safe_dump(long))
    with ray_cluster(tmp_path, [tmp_path / "data"]) as cluster:
        spread_and_ended([*cluster.nodes.values()], tmp_path, spec)


def spread_and_ended(nodes: list[RayNode], tmp_path: Path, spec: dict[str, Any]) -> None:
    """Plan, carry out and end runs on nodes."""
    head, *others = nodes

    def nothing_is_left() -> None:
        until(lambda: [left(one) for one in nodes] == [[], [], []], "empty nodes", 60)

    def planned() -> bool:
        plan = RayRun(head, tmp_path, "plan", "spread.yaml")
        plan.process.wait(120)
        return "host 10.98.0.3: 2 workers (worker-4..5)" in plan.said()

    until(planned, "a plan for three hosts", 200)
    nothing_is_left()

    done = RayRun(head, tmp_path, "run", "spread.yaml", "--out", "done", "--no-report")
    assert done.process.wait(200) == 0, done.said()
    (path,) = tmp_path.glob("done/*/*/*/summary.json")
    summary = json.loads(path.read_bytes())
    one_host = testbed.simulate(
        testbed.Experiment.parse(yaml.safe_dump(spec | {"engine": "simulation"})),
        out=tmp_path / "alone",
        progress=False,
    )
    expected = json.loads((one_host.directory / "asgd" / "summary.json").read_bytes())
    assert summary["parameters_sha256"] == expected["parameters_sha256"]
    assert summary["ingress"]["message_bytes"] == expected["ingress"]["message_bytes"]
    assert summary["traffic"]["reconciled"], summary["traffic"]["differences"]
    nothing_is_left()

    def trains(name: str) -> RayRun:
        run = RayRun(head, tmp_path, "run", "long.yaml", "--out", name, "--no-report")
        until(lambda: "asgd: training, " in run.said(), "training", 120)
        assert all("NodeAgent" in " ".join(left(one)) for one in others)
        return run

    run = trains("actor")
    (actor,) = (one for one, line in others[1].commands().items() if "NodeAgent" in line)
    actor.kill()
    assert run.process.wait(60) == 1, run.said()
    assert "host 10.98.0.3" in run.said().splitlines()[-1]
    nothing_is_left()

    run = trains("interrupted")
    entered = tmp_path / "entered.log"
    command = ("exec", "worker-5", "--", "hostname")
    assert head.popen(*TESTBED, *command, log=entered).wait(60) == 0, entered.read_text()
    assert entered.read_text() == "worker-5\n"
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(60) == 130, run.said()
    nothing_is_left()

    run = trains("killed")
    run.process.send_signal(signal.SIGKILL)
    run.process.wait(20)
    nothing_is_left()

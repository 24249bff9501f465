"""Whole runs with several servers, each in a network namespace of its own."""

import csv
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import CommandLine
from tests.standalone.test_roles import isolated

REPOSITORY = Path(__file__).parents[2]
SPEC = """\
name: alone
dataset: digits
model: mlp
training: {updates: %d}
algorithms: [asgd]
devices: {workers: %d, servers: %d}
evaluation: {every: 10}
waiting: {distribution: constant, mean: 10ms}
"""
# The port of all servers is the same: each further one has a network of its own, on a bridge to that of
# the first. Of each role, ROLE-I.log has what it printed and ROLE-I.status its exit status.
SCRIPT = """\
python=$0 workers=$1 further=$2
ip link set lo up
ip link add bridge type bridge
ip address add 10.9.0.1/24 dev bridge
ip link set bridge up
for i in $(seq $further); do
    (
        unshare --net sh -c '
            while ! ip address add 10.9.0.1'$i'/24 dev eth0 2> /dev/null; do sleep 0.05; done
            ip link set eth0 up
            exec "$0" -m testbed.standalone shard --server 10.9.0.1' "$python" > shard-$i.log 2>&1 &
        echo $! > shard-$i.pid
        while [ "$(readlink /proc/$!/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
        ip link add port-$i master bridge type veth peer name eth0 netns $!
        ip link set port-$i up
        wait $!
        echo $? > shard-$i.status
    ) &
done
for role in evaluator-1 $(seq --format=worker-%.0f $workers); do
    (
        "$python" -m testbed.standalone ${role%-*} --server 10.9.0.1 > $role.log 2>&1
        echo $? > $role.status
    ) &
done
"$python" -m testbed.standalone server spec.yaml --results results
status=$?
wait
exit $status
"""


def start(folder: Path, workers: int, servers: int) -> subprocess.Popen[str]:
    environment = os.environ | {
        "TESTBED_SECRET": secrets.token_hex(16),
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [*isolated(), "sh", "-c", SCRIPT, sys.executable, str(workers), str(servers - 1)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def results(folder: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    (directory,) = (path.parent for path in folder.glob("results/*/*/*/curve.csv"))
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_bytes())
    with (directory / "curve.csv").open(newline="") as file:
        return summary, list(csv.DictReader(file))


def statuses(folder: Path) -> dict[str, int]:
    return {path.stem: int(path.read_text()) for path in folder.glob("*.status")}


def logs(folder: Path) -> str:
    return "\n".join(f"{path.stem}: {path.read_text()}" for path in sorted(folder.glob("*.log")))


OWN = """\
import numpy as np
from torch import nn


def plane(slopes: list[float]):
    x = np.random.default_rng(1).standard_normal((200, len(slopes))).astype(np.float32)
    y = (x @ np.array(slopes, np.float32))[:, None]
    return x[:150], y[:150], x[150:], y[150:]


def linear(inputs):
    return nn.Linear(inputs.image[0], inputs.classes)


def squares(outputs, targets):
    return (outputs - targets).square().mean()
"""


@pytest.mark.real
def test_two_servers_and_code_of_ones_own_end_with_the_parameters_of_a_simulation_with_one(
    tmp_path: Path,
) -> None:
    """An algorithm, a dataset whose targets are no classes, a model and a loss.

    The first server holds the model's weight, and the further one its bias.
    """
    shutil.copy(REPOSITORY / "examples" / "plugin" / "rules.py", tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    spec = SPEC.replace("[asgd]", "[{name: 'rules:Momentum', beta: 0.5}]")
    spec = spec.replace("servers: %d", "servers: %d, allocation: tensors")
    spec = spec.replace("digits", "{name: 'own:plane', slopes: [1, -2, 3]}")
    spec = spec.replace("mlp", "own:linear") + "loss: own:squares\nplugins: [rules.py, own.py]\n"
    (tmp_path / "spec.yaml").write_text(spec % (30, 1, 2))
    process = start(tmp_path, workers=1, servers=2)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said + logs(tmp_path)
    assert statuses(tmp_path) == {"shard-1": 0, "evaluator-1": 0, "worker-1": 0}
    summary, curve = results(tmp_path)
    assert (summary["ended"], summary["updates"], summary["workers_lost"]) == ("completed", 30, 0)
    assert [int(row["iteration"]) for row in curve] == [0, 10, 20, 30]
    assert (summary["final_accuracy"], summary["best_accuracy"]) == (None, None)
    assert float(curve[-1]["loss"]) < float(curve[0]["loss"]) / 2
    assert f"update 30 of 30: loss {float(curve[-1]['loss']):.4g}, ingress" in said
    # Whole gradients, cut into two: four bytes for each of the three weights, and for the bias.
    each = [summary["servers"][f"server-{i}"] for i in range(2)]
    assert [one["payload_bytes"] for one in each] == [30 * 4 * 3, 30 * 4]
    for key in ("payload_bytes", "message_bytes"):
        assert sum(one[key] for one in each) == summary["ingress"][key] == int(curve[-1][key])
    assert said.count("worker greeted: 1 of 1") == said.count("training begins") == 1
    assert said.count("waiting for 1 further servers, workers and the evaluator") == 1

    (tmp_path / "one.yaml").write_text("engine: simulation\n" + spec % (30, 1, 1))
    where = ("--out", tmp_path / "one")
    alone = CommandLine(tmp_path).do("simulate", tmp_path / "one.yaml", *where, "--no-report")
    assert alone.returncode == 0, alone.stderr
    (path,) = tmp_path.glob("one/*/*/*/summary.json")
    assert summary["parameters_sha256"] == json.loads(path.read_bytes())["parameters_sha256"]


@pytest.mark.real
def test_a_further_server_that_dies_ends_the_run_on_every_side(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC % (1_000_000, 2, 3))
    process = start(tmp_path, workers=2, servers=3)
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("update 20"):
            break
    (number,) = (
        i for i in (1, 2) if "admitted as server 1" in (tmp_path / f"shard-{i}.log").read_text()
    )
    os.kill(int((tmp_path / f"shard-{number}.pid").read_text()), signal.SIGKILL)
    rest, _ = process.communicate(timeout=90)
    said += rest
    assert process.returncode == 1, said + logs(tmp_path)
    summary, _ = results(tmp_path)
    left = f"server-1: its connection from 10.9.0.1{number} ended before training was over"
    assert (summary["ended"], summary["reason"]) == ("failed", left)
    assert f"\nfailed: {left}\n" in said
    assert "Traceback" not in said + logs(tmp_path)
    found = statuses(tmp_path)
    assert found.pop(f"shard-{number}") == 128 + signal.SIGKILL
    assert found == {f"shard-{3 - number}": 1, "evaluator-1": 1, "worker-1": 1, "worker-2": 1}
    for name in found:
        last = (tmp_path / f"{name}.log").read_text().splitlines()[-1]
        assert last == f"testbed: the run failed: {left}", logs(tmp_path)

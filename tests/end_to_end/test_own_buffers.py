"""Buffers that each worker keeps for itself: emulation and simulation agree, and runs are resumed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bench.agree import carry_out, pairs
from tests.end_to_end.conftest import CommandLine

CENTRED = """
import torch
from torch import nn


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(784))

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.mean.copy_(0.8 * self.mean + 0.2 * x.detach().mean(0))
        return x - self.mean


def centred(inputs):
    return nn.Sequential(Centred(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.Linear(16, 10))
"""


def spec(folder: Path, **changes: Any) -> Path:
    (folder / "centred.py").write_text(CENTRED)
    content = {
        "name": "own-buffers",
        "plugins": ["centred.py"],
        "dataset": "digits",
        "model": {"name": "centred:centred", "buffers": "per-worker"},
        "training": {"updates": 30},
        "clock": "virtual",
        "algorithms": ["asgd"],
        "devices": {"workers": 4},
        "compute": {"distribution": "exponential", "mean": "100ms"},
        "evaluation": {"every": 30, "images": 100},
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return path


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_each_worker_keeps_its_own_in_namespaces_and_in_the_simulator(tmp_path: Path) -> None:
    interrupting = {"name": "sync-sgd", "wait_for": 2, "protocol": "push-and-interrupt"}
    kill = {"who": {"number": 1}, "when": {"time": "300ms"}, "how": "kill", "lasting": "200ms"}
    found = pairs(spec(tmp_path, algorithms=[interrupting, "asgd"], faults=[kill]), tmp_path)
    assert len(found) == 2
    for pair in found:
        assert pair.emulated["ended"] == "completed"
        assert pair.emulated["faults"] == {"kill": 1}
        assert pair.differences() == [], pair.emulated["algorithm"]


@pytest.mark.real
@pytest.mark.exercises("namespaces")
def test_workers_have_them_again_when_their_server_was_killed(tmp_path: Path) -> None:
    kill = {"who": "server", "when": {"iteration": 17}, "how": "kill", "lasting": "100ms"}
    undisturbed = pairs(spec(tmp_path), tmp_path / "undisturbed")
    found = pairs(spec(tmp_path, checkpoints={"every": 10}, faults=[kill]), tmp_path / "killed")
    (alone,), (pair,) = undisturbed, found
    digests = {one["parameters_sha256"] for one in (pair.emulated, pair.simulated, alone.simulated)}
    assert len(digests) == 1
    assert pair.emulated["faults"] == {"kill": 1}


def simulated(path: Path, out: Path) -> Path:
    """Simulate in this process: another would import again what finds out about such a model."""
    carry_out("simulate", path, out, ())
    (directory,) = (one.parent for one in out.glob("*/*/*/manifest.json"))
    return directory


def test_a_resumed_run_goes_on_with_the_buffers_of_its_workers(
    command: CommandLine, tmp_path: Path
) -> None:
    without = spec(tmp_path, model={"name": "centred:centred"})
    other = np.load(simulated(without, tmp_path / "none") / "parameters.npy")
    path = spec(tmp_path, checkpoints={"every": 20})
    directory = simulated(path, tmp_path / "own")
    before = np.load(directory / "parameters.npy")
    assert not np.array_equal(before, other)  # so that the buffers mean something
    (directory / "summary.json").unlink()
    file = directory / "manifest.json"
    ended = {"ended": "running", "pid": 1 << 22}
    file.write_text(json.dumps(json.loads(file.read_bytes()) | ended))
    done = command.do("resume", directory, "--no-report")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(directory / "parameters.npy"), before)

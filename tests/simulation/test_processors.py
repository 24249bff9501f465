"""Simulations on several processors: the same bits as on one, also from and to checkpoints."""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from testbed.checkpoints.files import CheckpointFiles
from testbed.experiment.spec import Spec
from testbed.learning.inputs import Inputs
from testbed.planning.plan import plan
from testbed.simulation.simulated_devices import STORED
from testbed.training.settings import Settings
from tests.settings import with_changes
from tests.simulation import test_checkpoints as checkpoints
from tests.simulation.test_checkpoints import Going, without_host_time
from tests.simulation.test_simulated import Simulated


class Centred(nn.Module):
    """Subtracts a mean that it learns from the mini-batches of its own worker."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(784))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        if self.training:
            self.mean.copy_(0.8 * self.mean + 0.2 * x.detach().mean(0))
        return x - self.mean


def centred(inputs: Inputs) -> nn.Module:
    return nn.Sequential(Centred(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.Linear(16, 10))


OWN_BUFFERS = {"name": f"{__name__}:centred", "buffers": "per-worker"}
KILLS = [{"when": {"mean_time": "700ms"}, "how": "kill", "lasting": "100ms"}]
INTERRUPTING = {"name": "sync-sgd", "wait_for": 3, "protocol": "push-and-interrupt"}
OTHERS: dict[str, dict[str, Any]] = {
    "downpour": {"algorithms": [{"name": "downpour", "push_every": 2, "fetch_every": 3}]},
    "easgd": {"algorithms": [{"name": "easgd", "exchange_every": 3}]},
    "fedavg": {"algorithms": [{"name": "fedavg", "fraction": 0.6, "local_steps": 3}]},
    "fedprox": {"algorithms": [{"name": "fedavg", "local_epochs": 1, "proximal": 0.1}]},
    "own buffers": {"algorithms": [INTERRUPTING], "model": OWN_BUFFERS, "faults": KILLS},
    "own buffers of servers": {
        "algorithms": [INTERRUPTING],
        "model": OWN_BUFFERS,
        "devices": {"workers": 5, "servers": 2},
        "network": checkpoints.SHAPED,
    },
    "all-to-all": {"algorithms": [{"name": "all-to-all"}]},
    "ako, own buffers": {"algorithms": [{"name": "ako", "partitions": 3}], "model": OWN_BUFFERS},
    "peers that come back": {
        "algorithms": [{"name": "ako", "partitions": 2}],
        "model": OWN_BUFFERS,
        "checkpoints": {"every": 5},
        "faults": [
            {
                "who": {"devices": ["worker-1", "worker-3"]},
                "when": {"mean_time": "400ms"},
                "how": "kill",
                "lasting": "300ms",
            }
        ],
    },
}
"""Systems that the tests of checkpoints do not have."""
OF_CHECKPOINTS = [
    "adacomp, shared, changed",
    "push-and-interrupt, shared",
    "comp-asgd, feedback and momentum",
    "everything goes wrong",
    "arrive and leave",
    "ako, traced, faults",
    "servers, shaped, everything goes wrong",
    "aggregators, within, everything goes wrong",
]


def settings(changes: dict[str, Any]) -> Settings:
    spec = {
        "name": "simulated",
        "seed": 3,
        "dataset": {"name": "digits", "train_images": 300},
        "model": "mlp",
        "training": {"batch_size": 10, "learning_rate": 0.02, "updates": 40},
        "devices": {"workers": 5},
        "engine": "simulation",
        "compute": {"distribution": "gamma", "mean": "100ms", "variation": 0.5},
        "waiting": {"distribution": "exponential", "mean": "30ms"},
        "evaluation": {"every": 10, "images": 50},
    }
    return plan(Spec.model_validate(spec | changes))[0].settings


@pytest.mark.parametrize("name", OTHERS)
def test_results_are_those_of_one_processor(name: str) -> None:
    run = settings(OTHERS[name])
    one = Simulated(with_changes(run, processors=1))
    several = Simulated(with_changes(run, processors=3))
    several.system.end()
    assert several.digest == one.digest
    assert several.rows.tobytes() == one.rows.tobytes()
    assert several.checkpoints == one.checkpoints
    assert several.faults == one.faults
    assert (several.before, several.after) == (one.before, one.after)


@contextlib.contextmanager
def going(run: Settings, processors: int) -> Iterator[Going]:
    made = Going(with_changes(run, processors=processors))
    try:
        yield made
    finally:
        made.system.end()


class Stops(NamedTuple):
    """The rows and the records of faults before a checkpoint, and the folder that has it."""

    rows: int
    faults: int
    folder: Path


def interrupted(
    one: Going, at: Collection[int], folder: Path
) -> tuple[dict[str, Any], list[Stops]]:
    """Run to the end, with a checkpoint after some events; return the end, and the checkpoints."""
    found: list[Stops] = []
    events = 0

    def between() -> None:
        nonlocal events
        events += 1
        if events in at:
            into = folder / f"{events}"
            folder.mkdir(exist_ok=True)
            with CheckpointFiles.open(into, STORED) as files:
                files.write(events, {"system": one.system.state()})
            found.append(Stops(len(one.rows), len(one.faults), into))

    return one.end(between), found


@pytest.mark.parametrize("name", OF_CHECKPOINTS)
def test_checkpoints_are_taken_on_some_processors_and_gone_on_with_on_others(
    tmp_path: Path, name: str
) -> None:
    run = checkpoints.settings(name, tmp_path)
    counted: list[None] = []
    with going(run, 1) as one:
        end = one.end(lambda: counted.append(None))
        rows, events = without_host_time(one.rows), len(counted)
    for first, second in ((2, 1), (1, 2)):
        with going(run, first) as taking:
            at = {5, events - events % 61 - 7}
            reached, stops = interrupted(taking, at, tmp_path / f"{first}")
            assert reached == end
            assert taking.faults == one.faults
            assert without_host_time(taking.rows).tobytes() == rows.tobytes()
        assert len(stops) == 2
        for done, faults, folder in stops:
            with going(run, second) as again:
                with CheckpointFiles.open(folder, STORED) as files:
                    again.system.restore(files.newest()["system"])
                assert again.end() == end
                assert again.faults == one.faults[faults:]
                assert without_host_time(again.rows).tobytes() == rows[done:].tobytes()

"""With one device every algorithm is plain SGD: it equals torch's on the same mini-batches.

The whole simulator runs: clock, durations, protocol, encoding. Only the run's settings change from
case to case.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from testbed.experiment.spec import Spec
from testbed.learning.data import datasets, partitions
from testbed.learning.data.batches import Batches
from testbed.learning.learner import Learner
from testbed.learning.models import MODELS, initialise
from testbed.messages.fault_changes import FaultChange
from testbed.messages.reports import Suspected, Welcomed
from testbed.planning.plan import plan
from testbed.random_streams import stream
from testbed.simulation.systems import system
from testbed.training.service_entries import Diagnosed, Entry, UpdateEntry

UPDATES = 30
SEED = 11


class Losses:
    """A record of the losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def record(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            match entry:
                case UpdateEntry(row, version):
                    assert row.iteration == version == len(self.losses) + 1
                    assert row.staleness == 0, "one device alone has no staleness"
                    assert row.applied
                    self.losses.append(row.loss)
                case Suspected() | Welcomed():
                    raise AssertionError(f"worker {entry.worker} is not silent")
                case Diagnosed():
                    assert entry.version == len(self.losses)

    def fault(self, record: FaultChange) -> None:
        raise AssertionError("nothing goes wrong here")

    def returned(self, peer: int, version: int) -> None:
        raise AssertionError("nothing goes wrong here")


@pytest.fixture(scope="module")
def dataset() -> datasets.Dataset:
    return datasets.load("digits", "standardised", None, SEED)


@pytest.fixture(scope="module")
def initial() -> npt.NDArray[np.float32]:
    return initialise("mlp", "paper", stream(SEED, "initial"))


@pytest.fixture(scope="module")
def by_torch(
    dataset: datasets.Dataset, initial: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], list[float]]:
    """Return the final parameters and all losses of torch's SGD."""
    module = MODELS["mlp"]()
    nn.utils.vector_to_parameters(torch.from_numpy(initial.copy()), module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    (shard,) = partitions.equal(len(dataset.train_images), 1, SEED)
    batches = Batches(dataset, shard, 10, stream(SEED, "batches", 0))
    losses = []
    for _ in range(UPDATES):
        images, labels = batches.next()
        optimiser.zero_grad()
        logits = module(torch.from_numpy(images))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy(), losses


ALGORITHMS: list[dict[str, Any]] = [
    {"name": "asgd"},
    {"name": "comp-asgd", "ratio": 1.0},
    {"name": "comp-asgd", "ratio": 1.0, "error_feedback": True},
    {"name": "adacomp", "ratio": 1.0},
    {"name": "sync-sgd"},
    {"name": "sync-sgd", "wait_for": 1, "protocol": "push-and-wait"},
    {"name": "sync-sgd", "protocol": "push-and-interrupt"},
    {"name": "all-to-all"},
]
CONDITIONS: dict[str, dict[str, Any]] = {
    "unshaped": {},
    "shaped": {"network": {"uplink": "1mbit", "downlink": "3mbit", "delay": "20ms"}},
    "changed": {"pulls": "changed", "network": {"downlink": "3mbit"}},
}


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: "-".join(map(str, one.values())))
def test_one_device_alone_equals_torch_s_sgd(
    algorithm: dict[str, Any],
    conditions: str,
    dataset: datasets.Dataset,
    initial: npt.NDArray[np.float32],
    by_torch: tuple[npt.NDArray[np.float32], list[float]],
) -> None:
    spec = {
        "name": "plain",
        "seed": SEED,
        "dataset": "digits",
        "model": "mlp",
        "training": {"batch_size": 10, "learning_rate": 0.1, "updates": UPDATES},
        "algorithms": [algorithm],
        "devices": {"workers": 1},
        "clock": "virtual",
        "compute": {"distribution": "exponential", "mean": "50ms"},
    }
    settings = plan(Spec.model_validate(spec | CONDITIONS[conditions]))[0].settings
    record = Losses()
    make = system(settings)
    one = make(settings, dataset, Learner("mlp", 10), initial.copy(), record)
    one.clock.run()
    expected, losses = by_torch
    assert one.version == UPDATES
    assert record.losses == pytest.approx(losses, rel=1e-4)
    way = float(np.linalg.norm(expected - initial))
    assert way > 0.1
    assert float(np.linalg.norm(one.parameters - expected)) < 1e-5 * way
    assert losses[-1] < losses[0]

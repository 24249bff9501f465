"""The computation of a worker, under any driver: mini-batches, local steps, selection, encoding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.algorithms import ALGORITHMS, is_served, served
from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.algorithms.interface import (
    AggregatedAlgorithm,
    Options,
    PeerAlgorithm,
    ServedAlgorithm,
)
from testbed.algorithms.peer_half import PeerHalf
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.learning.data import partitions
from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import Dataset
from testbed.learning.learner import Learner
from testbed.streams import stream
from testbed.training.conditions import conditions
from testbed.training.settings import Settings
from testbed.updates import FloatVector, Layout, Update
from testbed.wire.encodings import Codec


def parts(settings: Settings, labels: npt.NDArray[np.integer[Any]]) -> list[npt.NDArray[np.int64]]:
    """Return the training images of every device that computes: indices, by the devices' numbers.

    Args:
        labels: the labels of the training images.

    Raises:
        SpecError: there are not enough images.
    """
    served = is_served(settings.training.algorithm["name"])
    devices = settings.workers if served else computing(settings)
    return partitions.parts(
        settings.data.partition, labels, devices, settings.seed, settings.training.batch_size
    )


def batches(
    settings: Settings,
    dataset: Dataset,
    shard: npt.NDArray[np.int64],
    number: int,
    *,
    memory: Batches | None = None,
    incarnation: int = 0,
) -> Batches:
    """Make the mini-batches of device ``number``, from its shard of the training images.

    Args:
        memory: gather into the arrays of these mini-batches.
        incarnation: how often the device has been killed and come back.
    """
    generator = stream(settings.seed, "batches", number, incarnation)
    return Batches(dataset, shard, settings.training.batch_size, generator, memory)


def _served(settings: Settings) -> tuple[type[ServedAlgorithm], Options]:
    algorithm = served(settings.training.algorithm["name"])
    return algorithm, algorithm.options_type.model_validate(settings.training.algorithm)


def server_half(settings: Settings, layout: Layout, parameters: FloatVector) -> ServerHalf:
    """Make the server's half of the run's algorithm; it takes ``parameters`` over."""
    algorithm, options = _served(settings)
    return algorithm.server(options, layout, parameters, conditions(settings))


def aggregator_half(settings: Settings, layout: Layout, devices: int) -> AggregatorHalf:
    """Make the half of an aggregator with so many workers; it has no parameters yet."""
    algorithm, options = _served(settings)
    assert issubclass(algorithm, AggregatedAlgorithm)
    memory = np.zeros(layout.total, np.float32)
    return algorithm.aggregator(options, layout, memory, devices, conditions(settings))


def worker_half(settings: Settings, layout: Layout, number: int) -> WorkerHalf:
    """Make a worker's half of the run's algorithm."""
    algorithm, options = _served(settings)
    return algorithm.worker(options, layout, conditions(settings, number))


def protocol(settings: Settings) -> Protocol:
    """Return the protocol by which the run's workers get parameters."""
    algorithm, options = _served(settings)
    return algorithm.protocol(options)


def _of_peers(settings: Settings) -> tuple[type[PeerAlgorithm], Options]:
    algorithm = ALGORITHMS[settings.training.algorithm["name"]]
    assert issubclass(algorithm, PeerAlgorithm)
    return algorithm, algorithm.options_type.model_validate(settings.training.algorithm)


def peer_half(settings: Settings, layout: Layout, parameters: FloatVector, number: int) -> PeerHalf:
    """Make a peer's half of the run's algorithm; it takes ``parameters`` over."""
    algorithm, options = _of_peers(settings)
    return algorithm.peer(options, layout, parameters, number, conditions(settings, number))


def neighbours(settings: Settings) -> list[list[int]]:
    """Return the peers that each peer talks to, in order, by the peers' numbers."""
    algorithm, options = _of_peers(settings)
    found: list[set[int]] = [set() for _ in range(settings.workers)]
    for one, other in algorithm.conversations(options, conditions(settings)):
        assert one != other, f"peer {one} is to talk to itself"
        found[one].add(other)
        found[other].add(one)
    return [sorted(others) for others in found]


def computing(settings: Settings) -> int:
    """Return the number of the run's peers that compute gradients."""
    algorithm, options = _of_peers(settings)
    return algorithm.computing(options, conditions(settings))


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoded update on its way.

    Attributes:
        encoding, body: as in a message; the body may share memory with the gradient.
        received: the update as the receiver will read it.
    """

    encoding: int
    body: Sequence[bytes | memoryview]
    received: Update

    @property
    def size(self) -> int:
        """The bytes of the body."""
        return sum(map(len, self.body))


class Computation:
    """One worker's data, its half of the algorithm and the encoding of what it pushes."""

    def __init__(self, half: WorkerHalf, batches: Batches, codec: Codec) -> None:
        self.half = half
        self._batches = batches
        self._codec = codec
        self._beginning = batches.position

    def draw_past(self, computations: int) -> None:
        """Move to the point in the draws after the first ``computations`` computations."""
        self._batches.reposition(self._beginning)
        for _ in range(computations):
            self.draw()

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the computation."""
        return {"half": self.half.state(), "batches": self._batches.position}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.half.restore(state["half"])
        self._batches.reposition(state["batches"])

    def draw(self) -> Sequence[npt.NDArray[np.int64]]:
        """Draw the mini-batches of the next computation: the images' indices, for each local step."""
        return [self._batches.draw() for _ in range(self.half.local_steps)]

    def gradient(
        self, learner: Learner, drawn: Sequence[npt.NDArray[np.int64]]
    ) -> tuple[FloatVector, float]:
        """Compute at the learner's parameters, which local steps change; return gradient and loss.

        The gradient is the learner's own memory.
        """
        for step, one in enumerate(drawn[:-1]):
            gradient, _ = learner.gradient(*self._batches.gather(one))
            self.half.local(step, learner.parameters, gradient)
        return learner.gradient(*self._batches.gather(drawn[-1]))

    def encode(self, gradient: FloatVector) -> Encoded:
        """Select from a gradient what is to be pushed, and encode it."""
        update = self.half.compress(gradient)
        encoding, body = self._codec.encode(update)
        return Encoded(encoding, body, self._received(update))

    def measure(self, gradient: FloatVector) -> tuple[int, Update]:
        """Select what is to be pushed; return its bytes and the update as the receiver will read it."""
        update = self.half.compress(gradient)
        return self._codec.measure(update), self._received(update)

    def _received(self, update: Update) -> Update:
        """Return the update as the receiver will read it, and tell the half what was lost."""
        received = self._codec.rounded(update)
        if self._codec.lossy:
            self.half.lost(update, received)
        return received

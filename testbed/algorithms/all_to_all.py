"""All-to-All: peers send their whole gradient to all other peers and apply each one that arrives.

The baseline of Ako (paper 003, §5, "a decentralised architecture with all-to-all communication between
workers"). There is no parameter server; every worker owns a model, and one round of a worker is

    θ ← θ − α·g for its own g;   send g to every other peer;   θ ← θ − α·g' for each g' that arrives.

A gradient that arrives during a computation is applied to the model at once, but not to the copy at
which the running gradient is computed; in the paper, too, receiving and computing are separate threads.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from testbed.algorithms.interface import Conditions, Options, PeerAlgorithm
from testbed.algorithms.learning_rate import LearningRate, as_rate
from testbed.algorithms.peer_half import Parcel, PeerHalf
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update


class AllToAllOptions(Options):
    """All-to-All has no parameters of its own: α is the experiment's learning rate."""

    name: Literal["all-to-all"] = "all-to-all"


class ExchangingPeer(PeerHalf):
    """A peer that exchanges whole gradients with all others."""

    def __init__(
        self, parameters: FloatVector, learning_rate: float | LearningRate, number: int, peers: int
    ) -> None:
        """Begin at version 0 as peer ``number`` of ``peers``."""
        # Imported here: the command line reads every algorithm's options, and torch takes seconds.
        import torch

        super().__init__(parameters)
        self.learning_rate = as_rate(learning_rate)
        self._as_tensor = torch.from_numpy
        self._theta = torch.from_numpy(parameters)
        # Each peer begins with its successor, so that they do not all send to the same peer first.
        self._others = tuple((number + i) % peers for i in range(1, peers))

    def step(self, gradient: FloatVector) -> Sequence[Parcel]:
        update = DenseUpdate(gradient)
        self._apply(update)
        return (Parcel(update, self._others),)

    def receive(self, sender: int, update: Update) -> Sequence[Parcel]:
        self._apply(update)
        return ()

    def _apply(self, update: Update) -> None:
        alpha = self.learning_rate(self.version)
        if isinstance(update, SparseUpdate):
            self.parameters[update.indices] -= np.float32(alpha) * update.values
        else:
            self._theta.sub_(self._as_tensor(update.values), alpha=alpha)
        self.version += 1


class AllToAll(PeerAlgorithm):
    """All-to-All exchange of whole gradients."""

    options_type = AllToAllOptions
    scheduled = True

    @staticmethod
    def peer(
        options: AllToAllOptions,
        layout: Layout,
        parameters: FloatVector,
        number: int,
        conditions: Conditions,
    ) -> PeerHalf:
        return ExchangingPeer(parameters, conditions.rate, number, conditions.workers)

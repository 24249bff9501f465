"""All-to-All: peers that send their whole gradient to every other and apply what arrives.

The baseline of Ako (paper 003, §5, "a decentralised architecture with all-to-all communication between
workers"): no parameter server; every worker owns a model, and one round of it is

    θ ← θ − α·g for its own gradient g;   send g to every other;   θ ← θ − α·g' for each that arrives.

What arrives while a gradient is computed is applied at once to the model and not to the copy that the
gradient is computed at, as in the paper, where receiving and computing are threads of their own.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from testbed.algorithms.interface import Conditions, Options, Parcel, PeerAlgorithm, PeerHalf
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update


class AllToAllOptions(Options):
    """All-to-All has no parameters of its own: α is the experiment's learning rate."""

    name: Literal["all-to-all"] = "all-to-all"


class ExchangingPeer(PeerHalf):
    """A peer that exchanges whole gradients with all others."""

    def __init__(
        self, parameters: FloatVector, learning_rate: float, number: int, peers: int
    ) -> None:
        """Begin at version 0; ``number`` of ``peers`` is this one."""
        # Imported here: the command line reads every algorithm's options, and torch takes seconds.
        import torch

        super().__init__(parameters)
        self._alpha = learning_rate
        self._as_tensor = torch.from_numpy
        self._theta = torch.from_numpy(parameters)
        # Each begins with its successor, so that not all of them send to the same one first.
        self._others = tuple((number + i) % peers for i in range(1, peers))

    def step(self, gradient: FloatVector) -> Sequence[Parcel]:
        update = DenseUpdate(gradient)
        self._apply(update)
        return (Parcel(update, self._others),)

    def receive(self, sender: int, update: Update) -> Sequence[Parcel]:
        self._apply(update)
        return ()

    def _apply(self, update: Update) -> None:
        if isinstance(update, SparseUpdate):
            self.parameters[update.indices] -= np.float32(self._alpha) * update.values
        else:
            self._theta.sub_(self._as_tensor(update.values), alpha=self._alpha)
        self.version += 1


class AllToAll(PeerAlgorithm):
    options_type = AllToAllOptions

    @staticmethod
    def peer(
        options: AllToAllOptions,
        layout: Layout,
        parameters: FloatVector,
        number: int,
        conditions: Conditions,
    ) -> PeerHalf:
        return ExchangingPeer(parameters, conditions.learning_rate, number, conditions.workers)

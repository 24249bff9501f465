"""All-to-All: peers send their whole gradient to all other peers and apply each one that arrives.

The baseline of Ako (paper 003, §5, "a decentralised architecture with all-to-all communication between
workers"). There is no parameter server; every worker owns a model, and one round of a worker is

    θ ← θ − α·g for its own g;   send g to every other peer;   θ ← θ − α·g' for each g' that arrives.

A gradient that arrives during a computation is applied to the model at once, but not to the copy at
which the running gradient is computed; in the paper, too, receiving and computing are separate threads.

With a staleness bound τ a peer computes only while c ≤ min_i s_i + 1 + τ: Ako's line 3 with p = 1.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.interface import Conditions, PeerAlgorithm, PeerOptions
from testbed.algorithms.learning_rate import LearningRate, as_rate
from testbed.algorithms.peer_half import Parcel, PeerHalf
from testbed.algorithms.staleness_clocks import StalenessClocks
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update


class AllToAllOptions(PeerOptions):
    """The options of All-to-All; α is the experiment's learning rate."""

    name: Literal["all-to-all"] = "all-to-all"
    staleness_bound: int | None = Field(
        default=None,
        ge=0,
        description="τ: a peer computes only while it has computed at most 1 + τ gradients more than "
        "have arrived from any other peer; default (null): it never waits for others.",
    )


class ExchangingPeer(PeerHalf):
    """A peer that exchanges gradients with all others.

    Attributes:
        p: the number of rounds in which a gradient reaches all others: 1.
        clocks: the staleness clocks.
    """

    not_saved = frozenset({"learning_rate", "_as_tensor", "_theta"})

    def __init__(
        self,
        parameters: FloatVector,
        learning_rate: float | LearningRate,
        number: int,
        peers: int,
        tau: int | None = None,
    ) -> None:
        """Start at version 0 as peer ``number`` of ``peers``.

        Args:
            tau: τ, the staleness bound; None: none.
        """
        # Imported here: the command line reads every algorithm's options, and torch takes seconds.
        import torch

        super().__init__(parameters)
        self.paced = self.paced or tau is not None
        self.p = 1
        self.learning_rate = as_rate(learning_rate)
        self._as_tensor = torch.from_numpy
        self._theta = torch.from_numpy(parameters)
        self._tau = tau
        # Each peer begins with its successor, so that they do not all send to the same peer first.
        self._others = tuple((number + i) % peers for i in range(1, peers))
        self.clocks = StalenessClocks(self._others)

    @property
    def others(self) -> tuple[int, ...]:
        """The other peers that are there, in the order in which they are sent to."""
        return tuple(peer for peer in self._others if peer in self.clocks.s)

    def step(self, gradient: FloatVector) -> Sequence[Parcel]:
        self._apply(DenseUpdate(gradient))
        parcels = self._parcels(gradient)
        self.clocks.c += 1
        return parcels

    def _parcels(self, gradient: FloatVector) -> Sequence[Parcel]:
        """Return what the others are sent of the peer's gradient."""
        return (Parcel(DenseUpdate(gradient), self.others),)

    def receive(self, sender: int, update: Update) -> Sequence[Parcel]:
        self._apply(update)
        self.clocks.received(sender, self._most)
        return ()

    def suspect(self, peer: int) -> None:
        if peer in self.clocks.s:
            self.clocks.suspected.add(peer)

    @property
    def _most(self) -> int | None:
        """The largest lead with which it computes; None: any."""
        return None if self._tau is None else self.p + self._tau

    @property
    def waits_for(self) -> Sequence[int]:
        return () if self._most is None else self.clocks.behind(self._most)

    def forget(self, peer: int) -> None:
        self.clocks.forget(peer)

    def joined(self, peer: int) -> None:
        self.clocks.joined(peer)

    @property
    def ready(self) -> bool:
        return self._most is None or self.clocks.lead <= self._most

    def _apply(self, update: Update) -> None:
        alpha = self.learning_rate(self.version)
        if isinstance(update, SparseUpdate):
            self.parameters[update.places] -= np.float32(alpha) * update.values
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
        peers, tau = conditions.workers, options.staleness_bound
        return ExchangingPeer(parameters, conditions.rate, number, peers, tau)

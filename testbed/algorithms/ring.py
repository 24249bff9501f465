"""A ring all-reduce: peers sum their gradients in a ring, and each takes the step of their mean.

Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of workstations", §3;
the exchange of Horovod and of NCCL. There is no server. Θ is cut into n ranges, as equal as can be, and
peer i talks to its successor i + 1 and its predecessor i − 1 (mod n) only. With g_i the gradient of
peer i, in each round

    reduce   it sends range i of g_i; to each range that arrives it adds its own part of g_i, and sends
             the sum on: after n − 1 messages it has the sum over all peers of range i + 1
    gather   it sends that on, and takes the n − 1 whole ranges that arrive in the place of its own
    step     θ ← θ − α/n · Σ_i g_i

A peer sends 2(n − 1)/n · |Θ| values in a round, however many peers there are, and computes its next
gradient when the round is over: this is synchronous SGD, and all peers have the same θ, to the bit.
Whole ranges are sent exactly, as they are the parameters' next step; what is reduced is encoded like an
update. A peer whose gradient is not there yet keeps what arrives. A round waits for every peer, however
long that takes: a peer that is killed would end all progress, and such faults are refused.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.interface import Conditions, Options, PeerAlgorithm
from testbed.algorithms.learning_rate import LearningRate, as_rate
from testbed.algorithms.peer_half import Parcel, PeerHalf
from testbed.algorithms.roles import Population, Role
from testbed.updates import FloatVector, Layout, SparseUpdate, Update


class RingOptions(Options):
    """The options of the ring; α is the experiment's learning rate."""

    name: Literal["ring"] = "ring"


class RingPeer(PeerHalf):
    """One peer of the ring."""

    not_saved = frozenset({"_rate"})
    paced = True
    answers = True

    def __init__(
        self, parameters: FloatVector, learning_rate: float | LearningRate, number: int, peers: int
    ) -> None:
        """Start at version 0 as peer ``number`` of ``peers``."""
        super().__init__(parameters)
        self._rate = as_rate(learning_rate)
        self._i, self._n = number, peers
        total = len(parameters)
        self._ends = [total * k // peers for k in range(peers + 1)]
        self._sum = np.zeros(total, np.float32)
        # Messages of this round that were taken in; None while no round is under way.
        self._taken: int | None = None
        # What has come of a round for which this peer has no gradient yet.
        self._early: deque[Update] = deque()

    def step(self, gradient: FloatVector) -> Sequence[Parcel]:
        np.copyto(self._sum, gradient)
        self._taken = 0
        if self._n == 1:
            self._end_round()
            return ()
        parcels = [self._parcel(self._i, exact=False)]
        while self._early:
            parcels += self._take(self._early.popleft())
        return parcels

    def receive(self, sender: int, update: Update) -> Sequence[Parcel]:
        if self._taken is None:
            self._early.append(update.copy())
            return ()
        return self._take(update)

    def _take(self, update: Update) -> Sequence[Parcel]:
        """Take in the next range of this round; return what is sent on."""
        assert self._taken is not None
        reduced = self._n - 1
        k = (self._i - 1 - self._taken) % self._n
        if self._taken < reduced:
            self._sum[self._range(k)] += update.values
        else:
            k = (k + 1 + reduced) % self._n
            self._sum[self._range(k)] = update.values
        self._taken += 1
        if self._taken == 2 * reduced:
            self._end_round()
            return ()
        return [self._parcel(k, exact=self._taken >= reduced)]

    def _range(self, k: int) -> slice:
        return slice(*self._ends[k : k + 2])

    def _parcel(self, k: int, *, exact: bool) -> Parcel:
        """Return a range of the sum as it is now, for the successor."""
        part = self._range(k)
        places = np.arange(part.start, part.stop, dtype=np.uint32)
        return Parcel(SparseUpdate(places, self._sum[part]), self.others, exact)

    @property
    def others(self) -> tuple[int]:
        """The successor."""
        return ((self._i + 1) % self._n,)

    def _end_round(self) -> None:
        # The sum stays as it is: ranges of it may still be on their way.
        self.parameters -= np.float32(self._rate(self.version) / self._n) * self._sum
        self.version += self._n  # an update is one peer's step, by which schedules count
        self._taken = None

    @property
    def ready(self) -> bool:
        return self._taken is None

    @property
    def waits_for(self) -> Sequence[int]:
        return () if self.ready else ((self._i - 1) % self._n,)


class Ring(PeerAlgorithm):
    """A ring all-reduce of whole gradients."""

    options_type = RingOptions
    scheduled = True
    bears_loss: ClassVar[bool] = False

    @staticmethod
    def conversations(
        options: RingOptions, conditions: Conditions, population: Population
    ) -> Iterable[tuple[Role, Role]]:
        n = population.devices
        pairs = {tuple(sorted((i, (i + 1) % n))) for i in range(n)}
        for one, other in sorted(pairs):
            if one != other:
                yield Role("peer", one), Role("peer", other)

    @staticmethod
    def peer(
        options: RingOptions,
        layout: Layout,
        parameters: FloatVector,
        number: int,
        conditions: Conditions,
    ) -> PeerHalf:
        return RingPeer(parameters, conditions.rate, number, conditions.workers)

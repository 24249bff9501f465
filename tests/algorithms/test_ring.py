"""The ring all-reduce against a sum by hand, in any order of steps and arrivals."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.algorithms.peer_half import Parcel
from testbed.algorithms.ring import Ring, RingOptions, RingPeer
from testbed.algorithms.roles import Population, Role
from testbed.experiment.spec import Spec
from testbed.updates import FloatVector, SparseUpdate
from tests.algorithms.test_fedavg import conditions

ALPHA = np.float32(0.5)


class Peers:
    """A ring of peers, and the messages between them."""

    def __init__(self, peers: int, parameters: int) -> None:
        self.n = peers
        self.halves = [
            RingPeer(np.ones(parameters, np.float32), float(ALPHA), i, peers) for i in range(peers)
        ]
        self.under_way: list[deque[SparseUpdate]] = [deque() for _ in range(peers)]
        self.rounds = [0] * peers
        self.sent = [0] * peers
        self.exact = [0] * peers

    def gradient(self, peer: int, number: int) -> FloatVector:
        rng = np.random.default_rng((peer, number))
        return rng.normal(size=len(self.halves[0].parameters)).astype(np.float32)

    def send(self, peer: int, parcels: list[Parcel]) -> None:
        for parcel in parcels:
            assert parcel.peers == ((peer + 1) % self.n,)
            assert isinstance(parcel.update, SparseUpdate)
            self.sent[peer] += len(parcel.update.values)
            self.exact[peer] += parcel.exact
            self.under_way[(peer + 1) % self.n].append(parcel.update)

    def step(self, peer: int) -> None:
        half = self.halves[peer]
        if half.ready:
            gradient = self.gradient(peer, self.rounds[peer])
            self.rounds[peer] += 1
            # What a peer sends may share its memory, and has left by its next gradient.
            successor = (peer + 1) % self.n
            self.under_way[successor] = deque(one.copy() for one in self.under_way[successor])
            self.send(peer, list(half.step(gradient)))
            gradient[:] = np.nan  # the memory is the next one's

    def arrive(self, peer: int) -> None:
        if self.under_way[peer]:
            update = self.under_way[peer].popleft()
            body = update.copy()
            self.send(peer, list(self.halves[peer].receive((peer - 1) % self.n, body)))
            body.values[:] = np.nan  # so is that of a message

    def expected(self, rounds: int) -> FloatVector:
        """Return θ after some rounds: each range is summed from the peer of its number on."""
        theta = np.ones_like(self.halves[0].parameters)
        ends = [len(theta) * k // self.n for k in range(self.n + 1)]
        for number in range(rounds):
            gradients = [self.gradient(peer, number) for peer in range(self.n)]
            total = np.empty_like(theta)
            for k in range(self.n):
                part = slice(ends[k], ends[k + 1])
                one = gradients[k][part].copy()
                for i in range(1, self.n):
                    one += gradients[(k + i) % self.n][part]
                total[part] = one
            theta -= np.float32(ALPHA / self.n) * total
        return theta


@given(
    st.integers(1, 6),
    st.integers(1, 20),
    st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=200),
)
def test_all_peers_take_the_step_of_the_mean_whatever_comes_first(
    n: int, parameters: int, events: list[tuple[bool, int]]
) -> None:
    ring = Peers(n, parameters)
    for steps, peer in events:
        (ring.step if steps else ring.arrive)(peer % n)
    last = max(ring.rounds)
    for _ in range(3 * n):  # until all have ended their last round
        for peer in range(n):
            if ring.rounds[peer] < last:
                ring.step(peer)
        for peer in range(n):
            while ring.under_way[peer]:
                ring.arrive(peer)
    for half in ring.halves:
        assert half.version == n * last  # updates: its own and the others'
        assert half.ready
        assert np.array_equal(half.parameters, ring.expected(last))


def test_a_peer_sends_twice_its_share_of_all_others_however_many_there_are() -> None:
    ring = Peers(5, 1000)
    for peer in range(5):
        ring.step(peer)
    while any(ring.under_way):
        for peer in range(5):
            ring.arrive(peer)
    assert ring.sent == [2 * 4 * 200] * 5
    assert ring.exact == [4] * 5  # whole ranges are of the next parameters


def test_a_peer_waits_for_its_predecessor_and_for_no_other() -> None:
    ring = Peers(3, 9)
    assert list(ring.halves[0].waits_for) == []
    ring.step(0)
    assert not ring.halves[0].ready
    assert list(ring.halves[0].waits_for) == [2]


def test_a_kill_is_refused_before_anything_is_started() -> None:
    spec = {
        "name": "ring",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 9},
        "algorithms": ["ring"],
        "devices": {"workers": 3},
        "faults": [{"who": {"number": 1}, "when": {"time": "1s"}, "how": "kill"}],
    }
    with pytest.raises(ValidationError, match=r"'ring' waits for every device, .*: use freeze"):
        Spec.model_validate(spec)


@pytest.mark.parametrize(
    ("peers", "pairs"), [(1, []), (2, [(0, 1)]), (4, [(0, 1), (0, 3), (1, 2), (2, 3)])]
)
def test_neighbours_talk_and_no_others(peers: int, pairs: list[tuple[int, int]]) -> None:
    population = Population(peers, 0)
    told = Ring.conversations(RingOptions(), conditions(*[10] * peers), population)
    assert list(told) == [(Role("peer", one), Role("peer", other)) for one, other in pairs]

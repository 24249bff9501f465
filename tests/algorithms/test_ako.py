"""Ako's peer half: each gradient reaches every coordinate of every receiver exactly once."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.ako import Ako, AkoOptions, AkoPeer, partitions
from testbed.algorithms.all_to_all import ExchangingPeer
from testbed.algorithms.interface import Conditions
from testbed.errors import SpecError
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update
from tests.many_examples import many

LAYOUT = Layout(("a", "b", "c"), (5, 4, 2))
SIZE = LAYOUT.total
MOST = 24
"""Gradients of a peer at most: each is a power of two, so that a sum tells what it contains."""


class Unit(AkoPeer):
    """A peer whose model is the sum of all that it has applied: w = 0 and −η = 1."""

    def __init__(self, number: int, peers: int, p: int | None, tau: int | None = None) -> None:
        super().__init__(np.zeros(SIZE, np.float32), LAYOUT, -1.0, number, peers, tau, p)


def powers(step: int) -> FloatVector:
    return np.full(SIZE, 2.0**step, np.float32)


def added(model: FloatVector, update: Update) -> None:
    places = update.places if isinstance(update, SparseUpdate) else slice(None)
    model[places] += update.values


class Cluster:
    """Peers, and what is under way between them; that of one sender arrives in order."""

    def __init__(self, count: int, p: Sequence[int], tau: int | None = None) -> None:
        self.halves = {i: Unit(i, count, p[i], tau) for i in range(count)}
        self.count, self.p, self.tau = count, p, tau
        self.under_way: dict[tuple[int, int], list[Update]] = {}
        self.joined = {(i, j): 0 for i in range(count) for j in range(count) if i != j}
        """The sender's round from which on the receiver is sent its gradients."""
        self.got = {pair: np.zeros(SIZE, np.float32) for pair in self.joined}

    def step(self, sender: int) -> None:
        half = self.halves[sender]
        for parcel in half.step(powers(half.t)):
            for receiver in parcel.peers:
                self.under_way.setdefault((sender, receiver), []).append(parcel.update.copy())

    def deliver(self, pair: tuple[int, int]) -> None:
        update = self.under_way[pair].pop(0)
        if pair[1] in self.halves:
            self.halves[pair[1]].receive(pair[0], update)
            added(self.got[pair], update)

    def die(self, peer: int) -> None:
        del self.halves[peer]
        for pair in [pair for pair in self.under_way if peer in pair]:
            del self.under_way[pair]
        for half in self.halves.values():
            half.forget(peer)

    def join(self, peer: int) -> None:
        back = self.halves[peer] = Unit(peer, self.count, self.p[peer], self.tau)
        for other, half in self.halves.items():
            if other != peer:
                half.joined(peer)
                self.joined[other, peer], self.joined[peer, other] = half.t, back.t
                self.got[other, peer] = np.zeros(SIZE, np.float32)
                self.got[peer, other] = np.zeros(SIZE, np.float32)
        for other in set(range(self.count)) - self.halves.keys():
            back.forget(other)

    def check(self) -> None:
        """Check gradients once all that was sent has arrived: complete, or parts of them are due."""
        for (sender, receiver), first in self.joined.items():
            if not {sender, receiver} <= self.halves.keys():
                continue
            half, got = self.halves[sender], self.got[sender, receiver]
            complete = sum(2.0**step for step in range(first, half.t - half.p + 1))
            due = sum(2.0**step for step in range(max(first, half.t - half.p + 1), half.t))
            rest = got - complete
            # Of each later gradient a coordinate has arrived once or is due: no bit is counted twice.
            assert np.all((rest >= 0) & (rest <= due))
            for coordinate in rest.astype(int):
                assert int(coordinate) & ~int(due) == 0


@many(60)
@given(st.integers(2, 5), st.data())
def test_every_receiver_gets_every_coordinate_of_every_gradient_once(
    count: int, data: st.DataObject
) -> None:
    p = data.draw(st.lists(st.integers(1, 7), min_size=count, max_size=count))
    cluster = Cluster(count, p)
    for _ in range(data.draw(st.integers(0, 40))):
        what = data.draw(st.sampled_from(["step", "step", "step", "deliver", "die", "join"]))
        alive = sorted(cluster.halves)
        late = [pair for pair, parcels in cluster.under_way.items() if parcels]
        away = sorted(set(range(count)) - cluster.halves.keys())
        if what == "step" and alive:
            sender = data.draw(st.sampled_from(alive))
            if cluster.halves[sender].t < MOST:
                cluster.step(sender)
        elif what == "deliver" and late:
            cluster.deliver(data.draw(st.sampled_from(late)))
        elif what == "die" and len(alive) > 1:
            cluster.die(data.draw(st.sampled_from(alive)))
        elif what == "join" and away:
            cluster.join(data.draw(st.sampled_from(away)))
    for pair, parcels in list(cluster.under_way.items()):
        for _ in range(len(parcels)):
            cluster.deliver(pair)
    cluster.check()


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_the_partition_of_a_round_is_line_9_with_the_sender_s_round(p: int) -> None:
    half, ends = Unit(1, 4, p), [SIZE * k // p for k in range(p + 1)]
    sent = np.zeros(SIZE)
    for t in range(2 * p):
        window = sum(2.0**step for step in range(max(0, t - p + 1), t + 1))
        seen = []
        for parcel in half.step(powers(t)):
            places = (
                parcel.update.places if isinstance(parcel.update, SparseUpdate) else slice(SIZE)
            )
            at = np.arange(SIZE)[places]
            for i in parcel.peers:
                k = (i + t) % p
                assert at.tolist() == list(range(ends[k], ends[k + 1]))
                seen.append(i)
            assert np.all(parcel.update.values == window)
            sent[at] += 1
        assert sorted(seen) == [0, 2, 3]


def test_without_accumulation_only_the_newest_gradient_is_sent() -> None:
    half = AkoPeer(np.zeros(SIZE, np.float32), LAYOUT, 1.0, 0, 3, None, 2, accumulation=False)
    for t in range(4):
        assert all(np.all(one.update.values == 2.0**t) for one in half.step(powers(t)))


def test_one_peer_is_sgd_and_one_partition_is_all_to_all() -> None:
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(6, SIZE)).astype(np.float32)
    begin = rng.normal(size=SIZE).astype(np.float32)
    alone = AkoPeer(begin.copy(), LAYOUT, 0.1, 0, 1, 0, 4)
    ako = AkoPeer(begin.copy(), LAYOUT, 0.1, 0, 2, None, 1)
    plain = ExchangingPeer(begin.copy(), 0.1, 0, 2)
    expected = begin.copy()
    for gradient in gradients:
        assert alone.ready
        assert not alone.step(gradient)
        expected -= np.float32(0.1) * gradient
        (one,), (other,) = ako.step(gradient), plain.step(gradient)
        assert isinstance(one.update, DenseUpdate)
        assert (one.update.values == other.update.values).all()
        assert tuple(one.peers) == tuple(other.peers)
        ako.receive(1, one.update)
        plain.receive(1, other.update)
    np.testing.assert_allclose(alone.parameters, expected, rtol=1e-6)
    assert (ako.parameters == plain.parameters).all()


def test_a_selection_has_the_largest_entries_of_each_tensor_in_the_partition() -> None:
    half = AkoPeer(np.zeros(SIZE, np.float32), LAYOUT, 1.0, 1, 2, None, 2, ratio=0.4)
    gradient = np.array([1, -5, 2, 3, 4, -9, 8, 7, 6, 1, 2], np.float32)
    found = [half.step(gradient * 0 if t else gradient)[0].update for t in range(2)]
    # Partition 0 is tensor a, of which ⌊0.4 · 5⌋ entries are sent; partition 1 has tensors b and c.
    assert [one.indices.tolist() for one in found if isinstance(one, SparseUpdate)] == [
        [1, 4],
        [5, 10],
    ]
    assert [one.values.tolist() for one in found] == [[-5, 4], [-9, 2]]


def test_a_peer_waits_at_its_bound_and_no_longer_for_one_that_is_forgotten() -> None:
    half = Unit(0, 3, 2, tau=1)
    for step in range(4):  # c = 4 is p + τ + 1 more than 0
        assert half.ready
        half.step(powers(step))
    assert not half.ready
    half.receive(1, DenseUpdate(powers(0)))
    assert not half.ready
    half.forget(2)
    assert half.ready
    half.joined(2)  # it counts from where this peer is
    half.receive(1, DenseUpdate(powers(0)))
    assert half.diagnose() == {"partitions": 2, "lead": 2}
    assert half.ready


def test_p_follows_equation_3() -> None:
    cnn = 847e3
    assert partitions(10, cnn, 16, 400e6 / 8) == 3
    assert partitions(10, cnn, 64, 218e6 / 8) == 20
    assert partitions(10, cnn, 8, 1e9 / 8) == 1
    assert partitions(0.1, 30, 2, 1.0) == 3  # not 4, as 3.0000000000000004 would be


def ako(options: AkoOptions, **changes: float | None) -> AkoPeer:
    facts = {"uplink": 8_000, "gradient_time": 0.1, "profiled": False} | changes
    conditions = Conditions(0.1, 4, 10, 100, **facts)  # type: ignore[arg-type]
    Ako.check(options, conditions)
    made = Ako.peer(options, LAYOUT, np.zeros(SIZE, np.float32), 0, conditions)
    assert isinstance(made, AkoPeer)
    return made


def test_p_is_given_or_the_plan_s_or_the_device_s_own() -> None:
    assert ako(AkoOptions(partitions=3), gradient_time=None).p == 3
    assert ako(AkoOptions()).p == 2  # 10 · 44 · 3 / 1,000 bytes per second
    assert ako(AkoOptions(), uplink=None).p == 1
    assert ako(AkoOptions(partitions=99)).p == SIZE
    with pytest.raises(SpecError, match="give `partitions`"):
        ako(AkoOptions(), gradient_time=None)
    measured = ako(AkoOptions(), gradient_time=None, profiled=True)
    assert measured.needs_profile
    (whole,) = measured.step(powers(0))
    assert isinstance(whole.update, DenseUpdate)  # nothing is left to send when p changes
    measured.profiled(0.1, 400.0)
    assert (measured.p, measured.needs_profile) == (4, False)
    values = {tuple(one.update.values) for one in measured.step(powers(1))}
    assert values == {(2.0, 2.0), (2.0, 2.0, 2.0)}

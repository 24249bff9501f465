"""All-to-All's peer half against its rule, written naively: every peer's gradient is a step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.all_to_all import AllToAll, AllToAllOptions, ExchangingPeer
from testbed.algorithms.interface import Conditions
from testbed.updates import DenseUpdate, Layout, SparseUpdate, Update

SIZE = 5
ALPHA = 0.125

gradients = st.lists(st.floats(-8, 8, width=32), min_size=SIZE, max_size=SIZE)


def peers(count: int) -> list[ExchangingPeer]:
    return [ExchangingPeer(np.ones(SIZE, np.float32), ALPHA, i, count) for i in range(count)]


@settings(deadline=None)  # the first imports torch
@given(st.integers(1, 5), st.data())
def test_when_everything_is_delivered_all_models_agree(count: int, data: st.DataObject) -> None:
    halves = peers(count)
    naive = np.ones((count, SIZE))
    steps = np.zeros(count, int)
    under_way: list[tuple[int, int, Update]] = []

    def deliver(at: int) -> None:
        sender, receiver, update = under_way.pop(at)
        halves[receiver].receive(sender, update)
        assert isinstance(update, DenseUpdate)
        naive[receiver] -= ALPHA * update.values
        steps[receiver] += 1

    for _ in range(data.draw(st.integers(0, 20))):
        who = data.draw(st.integers(0, count - 1))
        gradient = np.array(data.draw(gradients), np.float32)
        parcels = halves[who].step(gradient)
        naive[who] -= ALPHA * gradient
        steps[who] += 1
        for parcel in parcels:
            under_way += [(who, other, parcel.update) for other in parcel.peers]
        for _ in range(data.draw(st.integers(0, min(3, len(under_way))))):
            deliver(data.draw(st.integers(0, len(under_way) - 1)))
        for one, expected, version in zip(halves, naive, steps, strict=True):
            np.testing.assert_allclose(one.parameters, expected, rtol=1e-5, atol=1e-5)
            assert one.version == version
    while under_way:
        deliver(data.draw(st.integers(0, len(under_way) - 1)))
    for one in halves:
        np.testing.assert_allclose(one.parameters, halves[0].parameters, rtol=1e-5, atol=2e-5)
        assert one.version == halves[0].version


@pytest.mark.parametrize("count", [1, 2, 7])
def test_every_other_peer_is_sent_the_whole_gradient_once(count: int) -> None:
    for number, one in enumerate(peers(count)):
        gradient = np.arange(SIZE, dtype=np.float32)
        (parcel,) = one.step(gradient)
        assert isinstance(parcel.update, DenseUpdate)
        assert parcel.update.values.tolist() == [0, 1, 2, 3, 4]
        # The order begins with the successor: at each place, all peers have different receivers.
        assert list(parcel.peers) == [(number + i) % count for i in range(1, count)]


def test_no_two_peers_have_the_same_receiver_at_the_same_place() -> None:
    orders = [half.step(np.zeros(SIZE, np.float32))[0].peers for half in peers(6)]
    for place in zip(*orders, strict=True):
        assert sorted(place) == list(range(6))


def test_a_sparse_update_changes_its_entries_only() -> None:
    (one,) = peers(1)
    update = SparseUpdate(np.array([1, 4], np.uint32), np.array([2, -4], np.float32))
    one.receive(0, update)
    assert one.parameters.tolist() == [1, 0.75, 1, 1, 1.5]
    assert one.version == 1


def test_a_peer_updates_the_given_parameters_in_place() -> None:
    vector = np.ones(SIZE, np.float32)
    layout = Layout(("one",), (SIZE,))
    half = ALGORITHMS["all-to-all"]
    assert half is AllToAll
    one = AllToAll.peer(AllToAllOptions(), layout, vector, 2, Conditions(ALPHA, 3, 10, 100))
    one.step(np.full(SIZE, 8, np.float32))
    assert one.parameters is vector
    assert vector.tolist() == [0] * SIZE
    assert one.ready
    assert not one.paced

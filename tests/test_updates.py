"""What a half gives to be sent: what is no update is refused, and the sentence names the half."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.algorithms.peer_half import Parcel, PeerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.encoding_choice import EncodingChoice
from testbed.errors import TestbedError
from testbed.training.computation import Computation
from testbed.training.peer_computation import PeerComputation, codecs
from testbed.training.pushed_parts import PushedParts
from testbed.training.slices import slices
from testbed.updates import DenseUpdate, Layout, SparseUpdate, checked

SIZE = 9
K = np.array([1, 4, 8], np.uint32)
V = np.array([0.5, 0, -1], np.float32)
WHOLE = np.arange(SIZE, dtype=np.float32)

WRONG: list[tuple[Any, str]] = [
    (SparseUpdate(K.astype(np.int64), V), "indices are int64, and must be uint32"),
    (SparseUpdate(K[::-1].copy(), V), "strictly ascending"),
    (SparseUpdate(np.array([1, 4, 4], np.uint32), V), "strictly ascending"),
    (SparseUpdate(np.array([1, 4, 0], np.uint32), V), "strictly ascending"),
    (SparseUpdate(K, V.astype(np.float64)), "values are float64, and must be float32"),
    (SparseUpdate(K, V.astype(">f4")), "values are >f4"),
    (SparseUpdate(K + np.uint32(1), V), "the index 9, and there are 9 parameters"),
    (SparseUpdate(K, V[:2]), "3 indices and 2 values"),
    (SparseUpdate(K.reshape(3, 1), V), r"indices have the shape \(3, 1\)"),
    (SparseUpdate(np.arange(6, dtype=np.uint32)[::2], V), "indices are not contiguous"),
    (SparseUpdate([1, 4, 8], V), "indices are of the type list"),  # type: ignore[arg-type]
    (DenseUpdate(WHOLE[:-1]), "8 values for 9 parameters"),
    (DenseUpdate(WHOLE.astype(np.float16)), "values are float16"),
    (DenseUpdate(np.zeros(2 * SIZE, np.float32)[::2]), "not contiguous"),
    (DenseUpdate(None), "values are of the type NoneType"),  # type: ignore[arg-type]
    (WHOLE, "of the type ndarray, and must be a DenseUpdate or a SparseUpdate"),
    (None, "of the type NoneType"),
]
EACH = pytest.mark.parametrize(("update", "text"), WRONG)


class Worker(WorkerHalf):
    def __init__(self, update: Any) -> None:
        self.update = update

    def compress(self, gradient: Any) -> Any:
        return self.update


class Peer(PeerHalf):
    answers = True

    def __init__(self, update: Any) -> None:
        super().__init__(np.zeros(SIZE, np.float32))
        self.update = update

    def step(self, gradient: Any) -> list[Parcel]:
        return [Parcel(self.update, (1,))]

    def receive(self, sender: int, update: Any) -> list[Parcel]:
        return self.step(update)


def of_a_worker(update: Any) -> list[Callable[[], object]]:
    batches: Any = NoBatches()
    parts = PushedParts(EncodingChoice(), slices(Layout(("all",), (SIZE,)), 1))
    computation = Computation(Worker(update), batches, parts)
    # The emulation encodes, the simulator measures.
    return [lambda: computation.encode(WHOLE), lambda: computation.measure(WHOLE)]


class NoBatches:
    position = 0


def of_a_peer(update: Any) -> list[Callable[[], object]]:
    computation = PeerComputation(Peer(update), None, codecs(EncodingChoice(), (SIZE,)), [1])
    return [
        lambda: computation.step(WHOLE, 0.0),
        lambda: computation.receive(1, DenseUpdate(WHOLE)),
    ]


@EACH
def test_what_a_worker_or_a_peer_sends_is_an_update(update: Any, text: str) -> None:
    for who, calls in (("Worker", of_a_worker(update)), ("Peer", of_a_peer(update))):
        for call in calls:
            sentence = rf"the half tests\.test_updates\.{who} returned is no update: .*{text}"
            with pytest.raises(TestbedError, match=sentence):
                call()


@pytest.mark.parametrize(
    "update",
    [
        SparseUpdate(K, V),
        SparseUpdate(K[:0], V[:0]),
        DenseUpdate(WHOLE),
        DenseUpdate(WHOLE * np.nan),
    ],
)
def test_an_update_is_sent_as_it_is(update: Any) -> None:
    """Also one without entries, and one that has diverged."""
    assert checked(update, SIZE, object()) is update
    for call in (*of_a_worker(update), *of_a_peer(update)):
        call()


@given(st.lists(st.integers(0, 2**32 - 1), max_size=6), st.integers(0, 6))
def test_it_is_an_update_exactly_if_the_definition_says_so(indices: list[int], size: int) -> None:
    update = SparseUpdate(np.array(indices, np.uint32), np.zeros(len(indices), np.float32))
    valid = sorted(set(indices)) == indices and all(k < size for k in indices)
    try:
        checked(update, size, object())
    except TestbedError as error:
        assert not valid
        assert re.search("ascending|has the index", str(error))
    else:
        assert valid


def test_what_an_aggregator_pushes_is_an_update() -> None:
    above = Worker(SparseUpdate(K.astype(np.int64), V))
    half = AggregatorHalf(np.zeros(SIZE, np.float32), above, wait_for=1, within=None)
    half.joined(0)
    half.adopt(WHOLE, [0])
    half.pull(0)
    half.push(0, DenseUpdate(WHOLE), 0, loss=1.0)
    with pytest.raises(TestbedError, match=r"tests\.test_updates\.Worker .*int64"):
        half.take()

"""Updates that are selected once and encoded in one part for each server."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.worker_half import WorkerHalf
from testbed.encoding_choice import EncodingChoice
from testbed.training.computation import Computation
from testbed.training.pushed_parts import PushedParts
from testbed.training.slices import joined, slices
from testbed.updates import Allocation, DenseUpdate, FloatVector, Layout, SparseUpdate, Update
from testbed.wire.encodings import Codec

LAYOUT = Layout(("a", "b", "c"), (40, 1, 60))


class Half(WorkerHalf):
    """Selects what a test says, and keeps what was lost."""

    def __init__(self, update: Update) -> None:
        self.update = update
        self.calls = 0
        self.received: Update | None = None

    def compress(self, gradient: FloatVector) -> Update:
        self.calls += 1
        return self.update

    def lost(self, update: Update, received: Update) -> None:
        assert update is self.update
        self.received = received


class NoBatches:
    position = 0


def dense(update: Update) -> FloatVector:
    if isinstance(update, DenseUpdate):
        return update.values
    vector = np.zeros(LAYOUT.total, np.float32)
    vector[update.indices] = update.values
    return vector


@given(
    st.sets(st.integers(0, LAYOUT.total - 1)),
    st.integers(1, 7),
    st.sampled_from(["ranges", "tensors"]),
    st.sampled_from(["float32", "float16"]),
    st.booleans(),
)
def test_the_parts_join_to_the_update(
    chosen: set[int], servers: int, allocation: Allocation, values: str, whole: bool
) -> None:
    indices = np.array(sorted(chosen), np.uint32)
    numbers = np.linspace(-1, 1, LAYOUT.total, dtype=np.float32)
    update = DenseUpdate(numbers) if whole else SparseUpdate(indices, numbers[indices])
    count = servers if allocation == "ranges" else 1 + servers % 3
    half, cut = Half(update), slices(LAYOUT, count, allocation)
    choice = EncodingChoice.model_validate({"values": values})
    batches: Any = NoBatches()
    computation = Computation(half, batches, PushedParts(choice, cut))
    parts = computation.encode(numbers)
    assert half.calls == 1
    decoded = [
        Codec(choice, one.layout.sizes).decode(part.encoding, memoryview(b"".join(part.body)))
        for one, part in zip(cut, parts, strict=True)
    ]
    exact = Codec(choice, LAYOUT.sizes).rounded(update)
    np.testing.assert_array_equal(dense(joined(decoded, cut)), dense(exact))
    if values == "float32":
        assert half.received is None
    else:
        assert half.received is not None
        np.testing.assert_array_equal(dense(half.received), dense(exact))


def test_more_servers_than_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be cut"):
        slices(LAYOUT, 102)

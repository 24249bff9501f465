"""The slices of several servers: together the whole, and parts of updates that join to the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.training.slices import joined, slices
from testbed.updates import DenseUpdate, Layout, SparseUpdate

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def layout(sizes: list[int]) -> Layout:
    return Layout(tuple(f"tensor {i}" for i in range(len(sizes))), tuple(sizes))


@given(SIZES, st.data())
def test_slices_lie_next_to_each_other_and_are_as_equal_as_can_be(
    sizes: list[int], data: st.DataObject
) -> None:
    whole = layout(sizes)
    cut = slices(whole, data.draw(st.integers(1, whole.total)))
    assert (cut[0].start, cut[-1].stop) == (0, whole.total)
    assert [one.stop for one in cut[:-1]] == [one.start for one in cut[1:]]
    assert all(one.layout.total == one.size for one in cut)
    assert max(one.size for one in cut) - min(one.size for one in cut) <= 1
    # Every parameter is in a tensor of its own name.
    names = [
        name
        for one in cut
        for name, size in zip(one.layout.names, one.layout.sizes, strict=True)
        for _ in range(size)
    ]
    assert names == [
        name for name, size in zip(whole.names, whole.sizes, strict=True) for _ in range(size)
    ]


@given(SIZES, st.data())
def test_the_parts_of_an_update_join_to_the_update(sizes: list[int], data: st.DataObject) -> None:
    whole = layout(sizes)
    cut = slices(whole, data.draw(st.integers(1, whole.total)))
    values = np.arange(whole.total, dtype=np.float32)
    dense = joined([one.of(DenseUpdate(values)) for one in cut], cut)
    assert isinstance(dense, DenseUpdate)
    assert np.array_equal(dense.values, values)
    chosen = sorted(data.draw(st.sets(st.integers(0, whole.total - 1))))
    indices = np.array(chosen, np.uint32)
    parts = [one.of(SparseUpdate(indices, values[indices])) for one in cut]
    for one, part in zip(cut, parts, strict=True):
        assert isinstance(part, SparseUpdate)
        assert (part.indices < one.size).all()
    sparse = joined(parts, cut)
    assert isinstance(sparse, SparseUpdate)
    assert np.array_equal(sparse.indices, indices)
    assert np.array_equal(sparse.values, values[indices])


def test_there_are_no_slices_without_parameters() -> None:
    with pytest.raises(ValueError, match="3 parameters cannot be cut into 4 slices"):
        slices(layout([3]), 4)

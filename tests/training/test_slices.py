"""The slices of several servers: together the whole, and parts of updates that join to the whole."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.training.slices import Slice, joined, slices, whole
from testbed.updates import Allocation, DenseUpdate, Layout, SparseUpdate

NAMES = ["conv.weight", "conv.bias", "norm.weight", "scale", "fc.weight", "fc.bias", "fc.extra"]
BUFFERS = ["norm.mean", "fc.count", "other.mean"]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draw the layout of a model, whose tensors may be empty, with shared buffers or without."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, len(NAMES)))]
    buffers = BUFFERS[: draw(st.integers(0, len(BUFFERS)))]
    sizes = [draw(st.integers(0, 9)) for _ in names]
    sizes[draw(st.integers(0, len(names) - 1))] = draw(st.integers(1, 9))
    more = [draw(st.integers(1, 3)) for _ in buffers]
    return Layout((*names, *buffers), (*sizes, *more), sum(more))


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Layout, list[Slice]]:
    """Draw a model and the slices of its servers, by any allocation."""
    model = draw(layouts())
    allocation: Allocation = draw(st.sampled_from(["ranges", "tensors", "layers"]))
    there = [name for name, size in zip(model.names, model.sizes, strict=True) if size]
    there = [name for name in there if name in NAMES]
    most = {
        "ranges": model.total,
        "tensors": len(there),
        "layers": len({name.split(".", maxsplit=1)[0] for name in there}),
    }[allocation]
    return model, slices(model, draw(st.integers(1, most)), allocation)


def places(one: Slice) -> list[int]:
    """Return the position in the flat vector of each entry of a slice."""
    return [place for piece in one.pieces for place in range(piece.of_all.start, piece.of_all.stop)]


@given(cuts())
def test_slices_partition_the_vector_and_know_their_tensors(
    drawn: tuple[Layout, list[Slice]],
) -> None:
    model, cut = drawn
    found = sorted(itertools.chain.from_iterable(map(places, cut)))
    assert found == list(range(model.total))
    names = [name for name, size in zip(model.names, model.sizes, strict=True) for _ in range(size)]
    for one in cut:
        own = places(one)
        assert own == sorted(own)
        assert len(own) == one.size == one.layout.total
        for piece in one.pieces:
            assert own[piece.own] == list(range(piece.of_all.start, piece.of_all.stop))
        for before, after in itertools.pairwise(one.pieces):
            assert before.of_all.stop < after.of_all.start  # pieces that touch are one
        # Every parameter is in a tensor of its own name, and the shared buffers are the last ones.
        assert [names[place] for place in own] == [
            name
            for name, size in zip(one.layout.names, one.layout.sizes, strict=True)
            for _ in range(size)
        ]
        assert one.layout.buffers == sum(place >= model.parameters for place in own)


@given(layouts(), st.data())
def test_ranges_are_contiguous_and_as_equal_as_can_be(model: Layout, data: st.DataObject) -> None:
    cut = slices(model, data.draw(st.integers(1, model.total)))
    assert all(len(one.pieces) == 1 for one in cut)
    ends = [one.pieces[0].of_all for one in cut]
    assert [one.stop for one in ends[:-1]] == [one.start for one in ends[1:]]
    assert max(one.size for one in cut) - min(one.size for one in cut) <= 1


@given(cuts(), st.data())
def test_the_parts_of_an_update_join_to_the_update(
    drawn: tuple[Layout, list[Slice]], data: st.DataObject
) -> None:
    model, cut = drawn
    values = np.arange(1, model.total + 1, dtype=np.float32)
    parts = [one.take(values) for one in cut]
    for one, part in zip(cut, parts, strict=True):
        assert np.array_equal(part, values[places(one)])
        assert np.shares_memory(part, values) == (len(one.pieces) == 1)
    assert np.array_equal(whole(parts, cut), values)
    again = np.zeros_like(values)
    for one, part in zip(cut, parts, strict=True):
        one.put(part, again)
    assert np.array_equal(again, values)
    dense = joined([one.of(DenseUpdate(values)) for one in cut], cut)
    assert isinstance(dense, DenseUpdate)
    assert np.array_equal(dense.values, values)
    chosen = sorted(data.draw(st.sets(st.integers(0, model.total - 1))))
    indices = np.array(chosen, np.uint32)
    of_each = [one.of(SparseUpdate(indices, values[indices])) for one in cut]
    for one, sent in zip(cut, of_each, strict=True):
        assert isinstance(sent, SparseUpdate)
        assert sent.indices.dtype == np.uint32
        assert np.array_equal(sent.values, one.take(values)[sent.indices])
        assert (np.diff(sent.indices.astype(np.int64)) > 0).all()
    sparse = joined(of_each, cut)
    assert isinstance(sparse, SparseUpdate)
    assert np.array_equal(sparse.indices, indices)
    assert np.array_equal(sparse.values, values[indices])


def test_tensors_and_layers_go_to_the_servers_in_turn() -> None:
    model = Layout(("a.w", "a.b", "bn.w", "c.w", "c.b", "bn.mean"), (4, 1, 2, 3, 1, 2), 2)
    assert [one.layout.names for one in slices(model, 2, "tensors")] == [
        ("a.w", "bn.w", "c.b"),
        ("a.b", "c.w", "bn.mean"),
    ]
    layers = slices(model, 2, "layers")
    assert [one.layout.names for one in layers] == [
        ("a.w", "a.b", "c.w", "c.b"),
        ("bn.w", "bn.mean"),
    ]
    assert [one.layout.buffers for one in layers] == [0, 2]
    assert slices(model, 1, "tensors") == slices(model, 1, "layers") == slices(model, 1)


@pytest.mark.parametrize(
    ("allocation", "text"),
    [
        ("ranges", "6 parameters cannot be cut into 7 slices"),
        ("tensors", "3 tensors cannot be cut into 7 slices"),
        ("layers", "2 layers cannot be cut into 7 slices"),
    ],
)
def test_no_slice_is_without_parameters(allocation: Allocation, text: str) -> None:
    model = Layout(("a.w", "a.b", "c.w", "d.empty"), (3, 1, 2, 0))
    with pytest.raises(ValueError, match=text):
        slices(model, 7, allocation)


@pytest.mark.parametrize("allocation", ["tensors", "layers"])
def test_no_server_has_buffers_only(allocation: Allocation) -> None:
    model = Layout(("a.w", "b.w", "c.mean"), (3, 1, 2), 2)
    with pytest.raises(ValueError, match=f"2 {allocation} cannot be cut into 3 slices"):
        slices(model, 3, allocation)

"""Encodings give back what was put in, and refuse what nobody could have put in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from testbed.algorithms.interface import DenseUpdate, SparseUpdate
from testbed.wire import WireError
from testbed.wire.encodings import Encoding, decode, encode, longest

SIZE = 50
floats = st.floats(width=32, allow_nan=True)


@given(hnp.arrays(np.float32, SIZE, elements=floats))
def test_dense_round_trip(values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    encoding, pieces = encode(DenseUpdate(values))
    body = memoryview(b"".join(pieces))
    assert len(body) == 4 * SIZE <= longest(SIZE)
    again = decode(encoding, body, SIZE)
    assert isinstance(again, DenseUpdate)
    assert again.values.tobytes() == values.tobytes()


@given(st.sets(st.integers(0, SIZE - 1)), st.data())
def test_sparse_round_trip(chosen: set[int], data: st.DataObject) -> None:
    indices = np.array(sorted(chosen), np.uint32)
    values = data.draw(hnp.arrays(np.float32, len(indices), elements=floats))
    encoding, pieces = encode(SparseUpdate(indices, values))
    body = memoryview(b"".join(pieces))
    assert len(body) == 8 * len(indices) <= longest(SIZE)
    again = decode(encoding, body, SIZE)
    assert isinstance(again, SparseUpdate)
    assert again.indices.tolist() == indices.tolist()
    assert again.values.tobytes() == values.tobytes()


def sparse(*indices: int) -> bytes:
    return np.array(indices, "<u4").tobytes() + np.zeros(len(indices), "<f4").tobytes()


@pytest.mark.parametrize(
    ("encoding", "body", "reason"),
    [
        (Encoding.DENSE_FLOAT32, bytes(4 * SIZE - 4), "dense update of 196 bytes"),
        (Encoding.DENSE_FLOAT32, bytes(4 * SIZE + 1), "dense update of 201 bytes"),
        (Encoding.SPARSE_FLOAT32, bytes(9), "sparse update of 9 bytes"),
        (Encoding.SPARSE_FLOAT32, sparse(*range(SIZE + 1)), "sparse update of 408 bytes"),
        (Encoding.SPARSE_FLOAT32, sparse(3, SIZE), "ascending and in range"),
        (Encoding.SPARSE_FLOAT32, sparse(3, 2), "ascending and in range"),
        (Encoding.SPARSE_FLOAT32, sparse(3, 3), "ascending and in range"),
        (Encoding.SPARSE_FLOAT32, sparse(2**32 - 1), "ascending and in range"),
        (0, b"", "unknown encoding 0"),
        (77, b"", "unknown encoding 77"),
    ],
)
def test_refused(encoding: int, body: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(encoding, memoryview(body), SIZE)


@given(st.integers(0, 3), st.binary(max_size=500))
def test_noise_is_refused_or_fits_the_model(encoding: int, noise: bytes) -> None:
    try:
        update = decode(encoding, memoryview(noise), SIZE)
    except WireError:
        return
    if isinstance(update, SparseUpdate):
        assert all(a < b for a, b in zip(update.indices, update.indices[1:], strict=False))
        assert len(update.indices) == 0 or update.indices[-1] < SIZE
    else:
        assert len(update.values) == SIZE

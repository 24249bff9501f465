"""Encodings of an update: pure pairs of encode and decode.

``DENSE_FLOAT32``: the vector, 4 bytes a parameter. ``SPARSE_FLOAT32``: all indices (uint32, strictly
ascending), then all values (float32): 8 bytes a kept entry. Both are little-endian. Encoding is made
of memory views where it can be, so that a dense gradient is never copied before the kernel takes it.
"""

import sys
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from testbed.algorithms.interface import DenseUpdate, SparseUpdate, Update, as_bytes
from testbed.wire import WireError

if sys.byteorder != "little":
    raise ImportError("the wire format is written by views of memory, for little-endian machines")


class Encoding(IntEnum):
    """How an update stands in a PUSH."""

    DENSE_FLOAT32 = 1
    SPARSE_FLOAT32 = 2


_SPARSE_ENTRY = 8


def longest(parameters: int) -> int:
    """The longest body that an update of so many parameters can have in any encoding."""
    return _SPARSE_ENTRY * parameters


def encode(update: Update) -> tuple[Encoding, Sequence[memoryview]]:
    """The encoding and the pieces whose concatenation is the body."""
    if isinstance(update, DenseUpdate):
        return Encoding.DENSE_FLOAT32, [as_bytes(update.values)]
    return Encoding.SPARSE_FLOAT32, [as_bytes(update.indices), as_bytes(update.values)]


def decode(encoding: int, body: memoryview, parameters: int) -> Update:
    """Read an update of a model of so many parameters; the result shares the body's memory.

    Values may be anything, NaN included: a diverging model is a result, not an attack.

    Raises:
        WireError: unknown encoding, impossible length, indices out of range or out of order.
    """
    if encoding == Encoding.DENSE_FLOAT32:
        if len(body) != 4 * parameters:
            raise WireError(f"a dense update of {len(body)} bytes for {parameters} parameters")
        return DenseUpdate(np.frombuffer(body, np.float32))
    if encoding == Encoding.SPARSE_FLOAT32:
        count, rest = divmod(len(body), _SPARSE_ENTRY)
        if rest or count > parameters:
            raise WireError(f"a sparse update of {len(body)} bytes for {parameters} parameters")
        indices = np.frombuffer(body[: 4 * count], np.uint32)
        if count and (indices[-1] >= parameters or not np.all(indices[1:] > indices[:-1])):
            raise WireError("the indices of a sparse update are not ascending and in range")
        return SparseUpdate(indices, np.frombuffer(body[4 * count :], np.float32))
    raise WireError(f"unknown encoding {encoding}")

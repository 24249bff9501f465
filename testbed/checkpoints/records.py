"""States in a file: each with its number, and a checksum that says whether it is intact.

Layout, little-endian: ``MAGIC``; a CRC-32, u32; the number of bytes that follow, which the CRC-32
covers, u64; the state's number, u64; the length of the JSON, u64; the JSON, with the state and each
array's type and shape; the arrays, one after the other.
"""

import json
import math
import os
import struct
import zlib
from collections.abc import Collection
from typing import Any

import numpy as np

from testbed.checkpoints.state_encoding import Array, decode, dtype_of, encode
from testbed.checkpoints.stateful import State

MAGIC = b"testbed checkpoint 1\n"
_FIXED = struct.Struct("<IQ")
_BEFORE_JSON = struct.Struct("<QQ")
_HEAD = len(MAGIC) + _FIXED.size


class Record:
    """A state as it is written.

    Attributes:
        size: its bytes in a file.
    """

    def __init__(self, number: int, state: State, types: Collection[type]) -> None:
        """Encode a state, whose arrays are not copied.

        Raises:
            TypeError: something in the state cannot be stored.
        """
        self._parts = _parts(number, state, types)
        self.size = _HEAD + sum(map(len, self._parts))

    def write(self, descriptor: int, at: int = 0) -> None:
        """Write the state to a place in a file.

        Raises:
            OSError: it could not be written whole.
        """
        checksum = 0
        for part in self._parts:
            checksum = zlib.crc32(part, checksum)
        for part in (MAGIC + _FIXED.pack(checksum, self.size - _HEAD), *self._parts):
            at = _write(descriptor, part, at)


def content_at(descriptor: int, at: int = 0) -> bytearray | None:
    """Return what the checksum covers of the state at a place; None if there is no intact one."""
    content = _whole(descriptor, at)
    return None if content is None or len(content) < _BEFORE_JSON.size else content


def number_of(content: bytes | bytearray) -> int:
    """Return the number of the state of ``content_at``."""
    number: int = _BEFORE_JSON.unpack_from(content)[0]
    return number


def number_at(descriptor: int, at: int = 0) -> int | None:
    """Return the number that is written at a place, whether its state is intact or not."""
    start = os.pread(descriptor, _BEFORE_JSON.size, at + _HEAD)
    return number_of(start) if len(start) == _BEFORE_JSON.size else None


def size_of(content: bytes | bytearray) -> int:
    """Return the bytes in its file of the state of ``content_at``."""
    return _HEAD + len(content)


def state_as_bytes(state: State, types: Collection[type]) -> bytes:
    """Return a state as bytes, to send it to another process.

    Raises:
        TypeError: something in the state cannot be stored.
    """
    return b"".join(_parts(0, state, types))


def state_of_bytes(content: bytes | bytearray, types: Collection[type]) -> Any:
    """Return the state that ``state_as_bytes`` was given, or that ``content_at`` has found.

    Raises:
        ValueError: the bytes are none, whatever they are.
    """
    try:
        return _read_state(content, types)
    except (struct.error, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"it holds no state: {error}") from None
    except (RecursionError, MemoryError):
        raise ValueError("it holds no state: it is nested too deeply, or too large") from None


def _parts(number: int, state: State, types: Collection[type]) -> list[bytes | memoryview]:
    """Return what a checksum covers, in pieces that share the arrays' memory."""
    tree, arrays = encode(dict(state), types)
    arrays = [np.asarray(array, order="C") for array in arrays]  # also of no dimension, as they are
    heads = [[array.dtype.str, array.shape] for array in arrays]
    head = json.dumps({"state": tree, "arrays": heads}).encode()
    parts: list[bytes | memoryview] = [_BEFORE_JSON.pack(number, len(head)), head]
    return parts + [array.reshape(-1).view(np.uint8).data for array in arrays if array.size]


def _read_state(content: bytes | bytearray, types: Collection[type]) -> Any:
    _, length = _BEFORE_JSON.unpack_from(content)
    at = _BEFORE_JSON.size + length
    head = json.loads(content[_BEFORE_JSON.size : at])
    if not at <= len(content):
        raise ValueError("it is cut off")
    arrays: list[Array] = []
    for name, shape in head["arrays"]:
        dtype = dtype_of(name)
        if any(type(length) is not int or length < 0 for length in shape):
            raise ValueError("it has an array without a shape")
        count = math.prod(shape)
        # Copied: the array is written to later, and must not keep the whole file in memory.
        arrays.append(np.frombuffer(content, dtype, count, at).reshape(shape).copy())
        at += count * dtype.itemsize
    return decode(head["state"], arrays, types)


def _write(descriptor: int, part: bytes | memoryview, at: int) -> int:
    view = memoryview(part)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
    return at


def _whole(descriptor: int, at: int) -> bytearray | None:
    start = os.pread(descriptor, _HEAD, at)
    if len(start) < _HEAD or not start.startswith(MAGIC):
        return None
    checksum, size = _FIXED.unpack_from(start, len(MAGIC))
    if os.fstat(descriptor).st_size < at + _HEAD + size:
        return None
    content = bytearray(size)
    view, at = memoryview(content), at + _HEAD
    while view:
        count = os.preadv(descriptor, [view], at)
        if not count:
            return None
        view, at = view[count:], at + count
    return content if zlib.crc32(content) == checksum else None

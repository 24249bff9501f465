"""Two files in which checkpoints are kept in turn: while one is written, the other one is whole.

A file is written where it lies and then flushed to the disk: its descriptor is all that a writer needs,
so that a process that may write nothing else can be handed it. What makes a file whole is its checksum,
which covers everything behind it; of two whole ones the newer version counts.

Layout, little-endian: ``MAGIC``; the CRC-32 of all that follows, u32; how many bytes follow, u64; the
version, u64; the length of the JSON, u64; the JSON, with the state and what the arrays are; the arrays,
one behind the other.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from testbed.checkpoints.values import Array, decode, encode

MAGIC = b"testbed checkpoint 1\n"
_FIXED = struct.Struct("<IQ")
_BEFORE_JSON = struct.Struct("<QQ")
NAMES = ("even", "odd")
"""Of the two files, in a run's folder of checkpoints."""


class CheckpointFiles:
    """The two files of one run; closed at the end of a ``with``, or by hand.

    Attributes:
        descriptors: of both, to hand to another process.
    """

    def __init__(self, descriptors: tuple[int, int], types: Collection[type]) -> None:
        """Write and read through descriptors that were opened, inherited or received.

        Args:
            types: whose objects a state may hold.
        """
        self.descriptors = descriptors
        self._types = types
        self._next = 0

    @classmethod
    def open(cls, folder: Path, types: Collection[type]) -> Self:
        """Open those in a folder, which is made where it is not there.

        Raises:
            OSError: they cannot be.
        """
        folder.mkdir(exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        even, odd = (os.open(folder / name, flags, 0o644) for name in NAMES)
        return cls((even, odd), types)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, version: int, state: Mapping[str, Any]) -> int:
        """Keep a state in place of the older of the two; returns its bytes.

        Raises:
            OSError: it could not be written; the other one is still whole.
            TypeError: something in the state cannot be stored.
        """
        tree, arrays = encode(dict(state), self._types)
        arrays = [np.ascontiguousarray(one) for one in arrays]
        heads = [[one.dtype.str, one.shape] for one in arrays]
        head = json.dumps({"state": tree, "arrays": heads}).encode()
        parts: list[bytes | memoryview] = [_BEFORE_JSON.pack(version, len(head)), head]
        parts += [one.reshape(-1).view(np.uint8).data for one in arrays if one.size]
        size = sum(map(len, parts))
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        descriptor = self.descriptors[self._next]
        at = 0
        for part in (MAGIC + _FIXED.pack(checksum, size), *parts):
            at = _write(descriptor, part, at)
        os.ftruncate(descriptor, at)
        os.fsync(descriptor)
        self._next = 1 - self._next
        return at

    def newest(self, fits: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> Any:
        """The newest whole state that fits; None if there is none. The other file is written next."""
        found = []
        for number, descriptor in enumerate(self.descriptors):
            content = _whole(descriptor)
            if content is not None:
                found.append((_BEFORE_JSON.unpack_from(content)[0], number, content))
        for _, number, content in sorted(found, key=lambda one: one[0], reverse=True):
            state = self._state(content)
            if fits(state):
                self._next = 1 - number
                return state
        return None

    def cut_back(self, version: int) -> None:
        """Have no later state than that of a version any more."""
        at = len(MAGIC) + _FIXED.size
        for descriptor in self.descriptors:
            start = os.pread(descriptor, _BEFORE_JSON.size, at)
            if len(start) < _BEFORE_JSON.size or _BEFORE_JSON.unpack(start)[0] > version:
                os.ftruncate(descriptor, 0)

    def _state(self, content: bytearray) -> Any:
        _, length = _BEFORE_JSON.unpack_from(content)
        at = _BEFORE_JSON.size + length
        head = json.loads(content[_BEFORE_JSON.size : at])
        arrays: list[Array] = []
        for name, shape in head["arrays"]:
            dtype = np.dtype(name)
            count = int(np.prod(shape, dtype=np.int64))
            # Copied: it is to be written to, and not to keep all the others.
            arrays.append(np.frombuffer(content, dtype, count, at).reshape(shape).copy())
            at += count * dtype.itemsize
        return decode(head["state"], arrays, self._types)

    def close(self) -> None:
        """Close both descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def _write(descriptor: int, part: bytes | memoryview, at: int) -> int:
    view = memoryview(part)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
    return at


def _whole(descriptor: int) -> bytearray | None:
    """What a file's checksum covers; None if the file is not whole."""
    length = len(MAGIC) + _FIXED.size
    start = os.pread(descriptor, length, 0)
    if len(start) < length or not start.startswith(MAGIC):
        return None
    checksum, size = _FIXED.unpack_from(start, len(MAGIC))
    if os.fstat(descriptor).st_size < length + size:
        return None
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as file:
        file.seek(length)
        content = bytearray(size)
        view = memoryview(content)
        while view:
            count = file.readinto(view)
            if not count:
                return None
            view = view[count:]
    return content if zlib.crc32(content) == checksum else None

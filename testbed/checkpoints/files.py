"""The two files that hold a run's checkpoints in turn: while one is written, the other is intact.

A file is overwritten in place and then flushed to the disk. A writer needs nothing but its descriptor,
so a process that may write nothing else can be handed it. A checksum tells whether a file is intact; of
two intact files the newer version counts. The second checkpoint of a version empties the first's file.

Layout, little-endian: ``MAGIC``; a CRC-32, u32; the number of bytes that follow, which the CRC-32
covers, u64; the version, u64; the length of the JSON, u64; the JSON, with the state and each array's
type and shape; the arrays, one after the other.
"""

import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from testbed.checkpoints.state_encoding import Array, decode, dtype_of, encode
from testbed.untrusted_text import open_file

MAGIC = b"testbed checkpoint 1\n"
_FIXED = struct.Struct("<IQ")
_BEFORE_JSON = struct.Struct("<QQ")
NAMES = ("even", "odd")
"""The names of the two files in a run's folder of checkpoints."""


class CheckpointFiles:
    """The two checkpoint files of one run; closed at the end of a ``with``, or by ``close``.

    Attributes:
        descriptors: the descriptors of both files, to hand to another process.
        damaged: the number of checkpoints that ``newest`` could not read.
    """

    def __init__(self, descriptors: tuple[int, int], types: Collection[type]) -> None:
        """Use two descriptors that were opened, inherited or received.

        Args:
            types: the classes whose objects a state may hold.
        """
        self.descriptors = descriptors
        self._types = types
        self._next = 0
        self._version: int | None = None  # of the file that is not written next
        self.damaged = 0

    @classmethod
    def open(cls, folder: Path, types: Collection[type]) -> Self:
        """Open the two files in ``folder``; make the folder and the files if they do not exist.

        What is in a file's place and is none is put aside.

        Raises:
            OSError: the folder cannot be made, or a file cannot be opened.
        """
        folder.mkdir(exist_ok=True)
        aside = 0
        for path in (folder / name for name in NAMES):
            if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
                path.rename(path.with_suffix(".damaged"))
                aside += 1
        even, odd = (open_file(folder / name, os.O_RDWR | os.O_CREAT) for name in NAMES)
        files = cls((even, odd), types)
        files.damaged = aside
        return files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, version: int, state: Mapping[str, Any]) -> int:
        """Store a state in place of the older checkpoint; return the file's size in bytes.

        Raises:
            OSError: it could not be written; the other file is intact.
            TypeError: something in the state cannot be stored.
        """
        parts = _parts(version, state, self._types)
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
        if version == self._version:
            os.ftruncate(self.descriptors[self._next], 0)
        self._version = version
        return at

    def newest(self, fits: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> Any:
        """Return the newest intact state that fits, or None; the other file is written next."""
        found = []
        for number, descriptor in enumerate(self.descriptors):
            content = _whole(descriptor)
            if content is not None and len(content) >= _BEFORE_JSON.size:
                found.append((_BEFORE_JSON.unpack_from(content)[0], number, content))
            elif os.fstat(descriptor).st_size:
                self.damaged += 1
        for version, number, content in sorted(
            found, key=lambda candidate: candidate[0], reverse=True
        ):
            try:
                state = _state(content, self._types)
                is_right = fits(state)
            except (ValueError, LookupError, TypeError):  # of another form than a run's
                self.damaged += 1
                continue
            if is_right:
                self._next, self._version = 1 - number, version
                return state
        return None

    def cut_back(self, version: int) -> None:
        """Remove the checkpoints of later versions than ``version``."""
        at = len(MAGIC) + _FIXED.size
        for descriptor in self.descriptors:
            start = os.pread(descriptor, _BEFORE_JSON.size, at)
            if len(start) < _BEFORE_JSON.size or _BEFORE_JSON.unpack(start)[0] > version:
                os.ftruncate(descriptor, 0)

    def close(self) -> None:
        """Close both descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def state_as_bytes(state: Mapping[str, Any], types: Collection[type]) -> bytes:
    """Return a state as bytes, to send it to another process.

    Raises:
        TypeError: something in the state cannot be stored.
    """
    return b"".join(_parts(0, state, types))


def state_of_bytes(content: bytes, types: Collection[type]) -> Any:
    """Return the state that ``state_as_bytes`` was given.

    Raises:
        ValueError: it was given none.
    """
    return _state(content, types)


def _parts(
    version: int, state: Mapping[str, Any], types: Collection[type]
) -> list[bytes | memoryview]:
    """Return what a checksum covers, in pieces that share the arrays' memory."""
    tree, arrays = encode(dict(state), types)
    arrays = [np.ascontiguousarray(array) for array in arrays]
    heads = [[array.dtype.str, array.shape] for array in arrays]
    head = json.dumps({"state": tree, "arrays": heads}).encode()
    parts: list[bytes | memoryview] = [_BEFORE_JSON.pack(version, len(head)), head]
    return parts + [array.reshape(-1).view(np.uint8).data for array in arrays if array.size]


def _state(content: bytes | bytearray, types: Collection[type]) -> Any:
    """Return a state; raise ValueError if the bytes are none, whatever they are."""
    try:
        return _read_state(content, types)
    except (struct.error, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"it holds no state: {error}") from None
    except (RecursionError, MemoryError):
        raise ValueError("it holds no state: it is nested too deeply, or too large") from None


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


def _whole(descriptor: int) -> bytearray | None:
    """Return the bytes that a file's checksum covers, or None if the file is not intact."""
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

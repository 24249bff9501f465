"""Read a file in parts of a few MiB, so that memory does not grow with the file."""

import io
import sys
from collections.abc import Iterator
from typing import IO

import numpy as np
import numpy.typing as npt

CHUNK = 8 * 2**20
"""Bytes of a file that are read at a time."""
MARGIN = 256
"""Bytes of 0 after each buffer, so that headers can be read past the end of the last packet."""
_NATIVE = "<" if sys.byteorder == "little" else ">"


class Chunk:
    """A part of a file.

    Attributes:
        start: its place in the file.
        bytes: its content; ``end`` is the number of bytes.
        last: True if the file ends with it.
        used: number of bytes used, set by the reader; the next chunk begins with the rest.
    """

    def __init__(self, start: int, data: bytes, last: bool) -> None:
        self.start = start
        self.bytes = data
        self.end = len(data)
        self.last = last
        self.used = 0
        self._words: dict[str, memoryview] = {}
        self._padded: npt.NDArray[np.uint8] | None = None

    def padded(self) -> npt.NDArray[np.uint8]:
        """Return the bytes, followed by ``MARGIN`` and up to 3 more bytes of 0."""
        if self._padded is None:
            self._padded = np.zeros(self.end + (-self.end & 3) + MARGIN, np.uint8)
            self._padded[: self.end] = np.frombuffer(self.bytes, np.uint8)
        return self._padded

    def words(self, order: str) -> memoryview:
        """Return the whole 32-bit words of a byte order; up to 3 last bytes are left out."""
        if order not in self._words:
            whole = memoryview(self.bytes)[: self.end & ~3]
            if order != _NATIVE:
                whole = memoryview(np.frombuffer(whole, np.uint32).byteswap().tobytes())
            self._words[order] = whole.cast("I")
        return self._words[order]


def chunks(file: IO[bytes], start: int) -> Iterator[Chunk]:
    """Yield parts of a file from ``start`` on; each begins with the unused bytes of the one before.

    The last one is marked as such and may hold nothing new.
    """
    file.seek(start, io.SEEK_SET)
    rest = b""
    size = CHUNK
    while True:
        new = file.read(size)
        chunk = Chunk(start, rest + new, last=not new)
        if not chunk.bytes:
            return
        yield chunk
        if chunk.last:
            return
        rest = chunk.bytes[chunk.used :]
        start += chunk.used
        # A packet longer than a chunk: more of the file is needed to see its end.
        size = CHUNK if chunk.used else 2 * max(size, len(rest))

"""The codings of indices that need no arithmetic: ``uint32``, ``bitmap`` and ``range``.

Layouts, with N parameters and k entries: k × uint32; N bits, padded to a byte; the first index (varint)
of entries that follow one another without a gap, such as a part of the gradient, whose number follows
from the bytes of their values.
"""

import numpy as np

from testbed.updates import IndexVector, as_bytes, is_range
from testbed.wire import WireError
from testbed.wire.bits import read_varint, varint
from testbed.wire.indices.coding import IndexCoding, Sized
from testbed.wire.values import ValueCoding


class PlainIndices(IndexCoding):
    """Indices of 4 bytes each, sent without a copy."""

    name, code = "uint32", 2

    def sized(self, indices: IndexVector) -> Sized:
        return Sized(self.code, 4 * len(indices), lambda: [as_bytes(indices)])

    def decode(self, body: memoryview, values: ValueCoding) -> tuple[IndexVector, memoryview]:
        split = 4 * values.count(len(body), self._total, beside=4)
        return self._checked(np.frombuffer(body[:split], np.uint32)), body[split:]


class Bitmap(IndexCoding):
    """A bit for every parameter of the model."""

    name, code = "bitmap", 6

    def sized(self, indices: IndexVector) -> Sized:
        def write() -> list[memoryview]:
            bits = np.zeros(self._total, np.uint8)
            bits[indices] = 1
            return [as_bytes(np.packbits(bits, bitorder="little"))]

        return Sized(self.code, self.longest(), write)

    def longest(self) -> int:
        return (self._total + 7) // 8

    def decode(self, body: memoryview, values: ValueCoding) -> tuple[IndexVector, memoryview]:
        if len(body) < self.longest():
            raise WireError(f"a bitmap of {len(body)} bytes for {self._total} parameters")
        packed = np.frombuffer(body[: self.longest()], np.uint8)
        bits = np.unpackbits(packed, bitorder="little").view(np.bool_)
        if bits[self._total :].any():
            raise WireError("the padding after a bitmap is not 0")
        indices = np.flatnonzero(bits).astype(np.uint32)
        part, rest = self._split(body, self.longest(), len(indices), values)
        if part:
            raise WireError(f"{len(part)} bytes too many after a bitmap")
        return indices, rest


class Range(IndexCoding):
    """The first index of entries that follow one another; nothing else has such a coding."""

    name, code = "range", 0

    def sized(self, indices: IndexVector) -> Sized:
        assert is_range(indices), "auto takes this coding only where it fits"
        first = varint(int(indices[0]))
        return Sized(self.code, len(first), lambda: [first])

    def longest(self) -> int:
        return len(varint(self._total))

    def decode(self, body: memoryview, values: ValueCoding) -> tuple[IndexVector, memoryview]:
        first, at = read_varint(body, 0)
        rest = body[at:]
        count = values.count(len(rest), self._total, beside=0)
        if count == 0 or first + count > self._total:
            raise WireError(
                f"a range of {count} entries from {first} on, of {self._total} parameters"
            )
        return np.arange(first, first + count, dtype=np.uint32), rest

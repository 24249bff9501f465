"""``elias-fano`` (Elias, 1974; Fano, 1971).

Layout, with N parameters and k entries: k (varint); with w = ⌊log₂(N / k)⌋, the differences of
successive ⌊index / 2^w⌋ in unary; the lower w bits of each index, packed.
"""

import numpy as np

from testbed.updates import IndexVector
from testbed.wire import WireError
from testbed.wire.bits import (
    pack,
    pack_unary,
    packed_size,
    read_varint,
    unpack,
    unpack_unary,
    varint,
)
from testbed.wire.indices.coding import IndexCoding, Sized
from testbed.wire.values import ValueCoding


class EliasFano(IndexCoding):
    """Upper bits in unary, lower bits unchanged: at most 2 + log₂(N / k) bits each."""

    name, code = "elias-fano", 5

    def sized(self, indices: IndexVector) -> Sized:
        count, low = len(indices), self._low(len(indices))
        head = varint(count)
        unary = count + (int(indices[-1]) >> low) if count else 0

        def write() -> list[bytes]:
            high = np.diff(indices >> np.uint32(low), prepend=np.uint32(0))
            return [head, pack_unary(high), pack(indices, low)]

        size = len(head) + (unary + 7) // 8 + packed_size(count, low)
        return Sized(self.code, size, write)

    def decode(self, body: memoryview, values: ValueCoding) -> tuple[IndexVector, memoryview]:
        count, at = read_varint(body, 0)
        part, rest = self._split(body, at, count, values)
        low = self._low(count)
        split = len(part) - packed_size(count, low)
        if split < 0 or 8 * (split - 1) > count + (self._total >> low):
            raise WireError(f"{count} Elias-Fano coded indices in {len(part)} bytes")
        high = np.cumsum(unpack_unary(part[:split], count), dtype=np.int64)
        return self._checked((high << low) | unpack(part[split:], count, low)), rest

    def _low(self, count: int) -> int:
        return (self._total // count).bit_length() - 1 if count else 0

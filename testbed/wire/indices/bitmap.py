"""``bitmap``. Layout, with N parameters: N bits, padded to a byte."""

import numpy as np

from testbed.updates import IndexVector, as_bytes
from testbed.wire import WireError
from testbed.wire.indices.coding import IndexCoding, Sized
from testbed.wire.values import ValueCoding


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

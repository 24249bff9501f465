"""Indices as they are. Layout, with k the number of entries: k × uint32."""

import numpy as np

from testbed.updates import IndexVector, as_bytes
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

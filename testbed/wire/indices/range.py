"""``range``: indices that follow one another without a gap, such as a part of the gradient.

Layout: the first index (varint). The number of entries follows from the bytes of their values.
"""

import numpy as np

from testbed.updates import IndexVector, is_range
from testbed.wire import WireError
from testbed.wire.bits import read_varint, varint
from testbed.wire.indices.coding import IndexCoding, Sized
from testbed.wire.values import ValueCoding


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

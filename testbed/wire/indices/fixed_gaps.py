"""``gaps``: the numbers of ``grouped_gaps``, in w bits each."""

import numpy as np
import numpy.typing as npt

from testbed.wire import WireError
from testbed.wire.bits import Numbers, bit_lengths, pack, packed_size, unpack
from testbed.wire.indices.coding import Sized
from testbed.wire.indices.grouped_gaps import GapCoding, Grouped, repeated


class FixedGaps(GapCoding):
    """Distances in as many bits as the largest of the group needs."""

    name, code = "gaps", 3

    def sized_in(self, grouped: Grouped) -> Sized:
        largest = np.zeros(len(grouped.counts), np.uint32)
        filled = grouped.counts > 0
        if filled.any():
            firsts = (np.cumsum(grouped.counts) - grouped.counts)[filled]
            largest[filled] = np.maximum.reduceat(grouped.numbers, firsts)
        widths = bit_lengths(largest)
        head, (count, each) = grouped.head(widths), repeated(widths, grouped.counts)
        return Sized(
            self.code,
            len(head) + packed_size(count, each),
            lambda: [head, pack(grouped.numbers, each)],
        )

    def _read(self, part: memoryview, counts: Numbers, widths: Numbers) -> npt.NDArray[np.int64]:
        count, each = repeated(widths, counts)
        if len(part) != packed_size(count, each):
            raise WireError(f"{count} packed distances in {len(part)} bytes")
        return unpack(part, count, each).astype(np.int64)

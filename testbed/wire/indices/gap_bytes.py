"""``gap-bytes``: distances as bytes, which repeat where gradients do.

Layout, with k entries: k (varint) and a width w in bytes (uint8); each index minus its predecessor
minus 1 as a byte, 255 for a number of 255 or more; the excess of these numbers over 255 in w bytes
each, all lowest bytes first, then all next bytes. It is long by itself, but a byte-wise compressor can
use the repetitions.
"""

import numpy as np

from testbed.updates import IndexVector
from testbed.wire import WireError
from testbed.wire.bits import read_varint, varint
from testbed.wire.indices.coding import IndexCoding, Sized, gaps_of
from testbed.wire.values import ValueCoding


class GapBytes(IndexCoding):
    """Distances as bytes, for a compressor that finds repetitions in them."""

    name, code = "gap-bytes", 7

    def sized(self, indices: IndexVector) -> Sized:
        count = len(indices)
        gaps = gaps_of(indices)
        beyond = gaps[gaps >= 255]
        beyond -= np.uint32(255)
        width = (int(beyond.max(initial=0)).bit_length() + 7) // 8
        head = varint(count) + bytes([width])

        def write() -> list[bytes]:
            planes = beyond.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :width].T
            return [head + np.minimum(gaps, 255).astype(np.uint8).tobytes(), planes.tobytes()]

        return Sized(self.code, len(head) + count + width * len(beyond), write)

    def longest(self) -> int:
        # At most one distance per 255 parameters is 255 or more.
        return self._total + 4 * (self._total // 255) + 6

    def decode(self, body: memoryview, values: ValueCoding) -> tuple[IndexVector, memoryview]:
        count, at = read_varint(body, 0)
        part, rest = self._split(body, at + 1, count, values)
        width = body[at]
        gaps = np.frombuffer(part[:count], np.uint8).astype(np.int64)
        beyond = gaps == 255
        long = int(np.count_nonzero(beyond))
        if width > 4 or len(part) != count + width * long:
            raise WireError(
                f"{count} distances in bytes, {long} of them long, in {len(part)} bytes"
            )
        planes = np.zeros((long, 4), np.uint8)
        planes[:, :width] = np.frombuffer(part[count:], np.uint8).reshape(width, long).T
        gaps[beyond] += planes.view("<u4").reshape(-1)
        gaps[1:] += 1
        indices = np.cumsum(gaps)
        if count and indices[-1] >= self._total:
            raise WireError("the indices of a sparse update are not ascending and in range")
        return indices.astype(np.uint32), rest

"""``rice``: the numbers of ``grouped_gaps``, in Golomb–Rice codes (Rice, 1979; Golomb, 1966).

Layout: of each number ⌊number / 2^w⌋ in unary; then the lower w bits of each number, packed.
"""

import numpy as np
import numpy.typing as npt

from testbed.wire import WireError
from testbed.wire.bits import Numbers, pack, pack_unary, packed_size, unpack, unpack_unary
from testbed.wire.indices.coding import Sized
from testbed.wire.indices.grouped_gaps import GapCoding, Grouped, repeated

_LOG_PHI = np.log((1 + np.sqrt(5)) / 2)


class RiceGaps(GapCoding):
    """Distances in Golomb–Rice codes, within 0.03 bits each of the shortest for a geometric law."""

    name, code = "rice", 4

    def sized_in(self, grouped: Grouped) -> Sized:
        widths = self._widths(grouped)
        count, each = repeated(widths, grouped.counts)
        high = grouped.numbers >> np.asarray(each, np.uint32)
        unary = count + int(high.sum(dtype=np.int64))
        packed = int(grouped.counts @ widths)
        return Sized(
            self.code,
            grouped.head_size + (unary + 7) // 8 + (packed + 7) // 8,
            lambda: [grouped.head(widths), pack_unary(high), pack(grouped.numbers, each)],
        )

    @staticmethod
    def _widths(grouped: Grouped) -> Numbers:
        """Return for each group the best width for numbers of a geometric law with its mean.

        1 + ⌊log₂(ln(φ − 1) / ln(mean / (mean + 1)))⌋, at least 0, φ the golden ratio (Kiely,
        "Selecting the Golomb parameter in Rice coding", 2004).
        """
        means = np.maximum(grouped.sums / np.maximum(grouped.counts, 1), 1e-9)
        exponents: npt.NDArray[np.int32] = np.frexp(_LOG_PHI / np.log1p(1 / means))[1]
        return np.maximum(exponents, 0).astype(np.uint32)

    def _read(self, part: memoryview, counts: Numbers, widths: Numbers) -> npt.NDArray[np.int64]:
        count, each = repeated(widths, counts)
        split = len(part) - packed_size(count, each)
        if not 0 <= split <= len(part) or 8 * (split - 1) > self._total + count:
            raise WireError(f"{count} Rice-coded distances in {len(part)} bytes")
        high = unpack_unary(part[:split], count).astype(np.int64)
        numbers: npt.NDArray[np.int64] = (high << each) | unpack(part[split:], count, each)
        return numbers

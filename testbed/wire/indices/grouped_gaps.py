"""The codings that write distances of successive indices in groups: ``gaps`` and ``rice``.

Layout: uint8 0: one group, the model; 1: a group per tensor. For each group its number of entries
(varint) and its width w (uint8). Then numbers: each index minus its predecessor in the group minus 1;
the first index minus the group's start. ``gaps`` writes each number in w bits, packed; ``rice`` in a
Golomb–Rice code (Rice, 1979; Golomb, 1966): of each number ⌊number / 2^w⌋ in unary; then the lower w
bits of each number, packed.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.updates import IndexVector
from testbed.wire import WireError
from testbed.wire.bits import (
    Numbers,
    bit_lengths,
    pack,
    pack_unary,
    packed_size,
    read_varint,
    unpack,
    unpack_unary,
    varint,
    varint_size,
)
from testbed.wire.indices.coding import IndexCoding, Sized, gaps_of
from testbed.wire.values import ValueCoding


@dataclass(frozen=True, slots=True)
class Grouped:
    """The numbers that gap codings write, in groups.

    Attributes:
        flag: 0: one group, the model; 1: a group per tensor.
        numbers: uint32, shape (k,).
        counts: the number of numbers in each group.
        sums: the sum of each group's numbers.
    """

    flag: int
    numbers: Numbers
    counts: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]

    def head(self, widths: Numbers) -> bytes:
        """Return the bytes before the numbers, if the groups have these widths."""
        pairs = zip(self.counts.tolist(), widths.tolist(), strict=True)
        return bytes([self.flag]) + b"".join(varint(k) + bytes([w]) for k, w in pairs)

    @property
    def head_size(self) -> int:
        """The length of ``head`` in bytes, the same for all widths."""
        counts = self.counts.tolist()
        return 1 + len(counts) + sum(map(varint_size, counts))


class GapCoding(IndexCoding):
    """Distances of successive indices, in groups with a width each."""

    def sized(self, indices: IndexVector) -> Sized:
        return min(map(self.sized_in, self.groupings(indices)), key=lambda sized: sized.size)

    @abstractmethod
    def sized_in(self, grouped: Grouped) -> Sized:
        """Return the indices in these groups, sized but not yet written."""

    @abstractmethod
    def _read(self, part: memoryview, counts: Numbers, widths: Numbers) -> npt.NDArray[np.int64]:
        """Read the numbers of all groups."""

    def groupings(self, indices: IndexVector) -> Sequence[Grouped]:
        """Return the indices as one group and, if there are several tensors, as a group per tensor."""
        count = len(indices)
        if not count:
            return [Grouped(0, indices, np.zeros(1, np.int64), np.zeros(1, np.int64))]
        gaps = gaps_of(indices)
        whole = Grouped(0, gaps, np.array([count]), np.array([int(indices[-1]) - count + 1]))
        if len(self._starts) == 1:
            return [whole]
        bounds = indices.searchsorted(self._bounds).astype(np.int64, copy=False)
        counts = bounds[1:] - bounds[:-1]
        filled = counts > 0
        firsts, starts = bounds[:-1][filled], self._starts[filled]
        gaps = gaps.copy()
        gaps[firsts] = indices[firsts] - starts.astype(np.uint32)
        sums = np.zeros(len(counts), np.int64)
        sums[filled] = indices[bounds[1:][filled] - 1] - starts - counts[filled] + 1
        return [whole, Grouped(1, gaps, counts, sums)]

    def decode(self, body: memoryview, values: ValueCoding) -> tuple[IndexVector, memoryview]:
        flag = body[0] if body else 2
        if flag > 1:
            raise WireError("an update in groups that are neither the model nor its tensors")
        starts, ends = self._starts, self._ends
        if flag == 0:
            starts, ends = starts[:1], ends[-1:]
        counts = np.zeros(len(starts), np.uint32)
        widths = np.zeros(len(starts), np.uint32)
        at = 1
        for group in range(len(starts)):
            counts[group], at = read_varint(body, at)
            if at == len(body) or body[at] > self._total.bit_length():
                raise WireError("the width of a group is missing or too large")
            widths[group] = body[at]
            at += 1
        if (counts > ends - starts).any():
            raise WireError("a group of an update has more entries than parameters")
        part, rest = self._split(body, at, int(counts.sum(dtype=np.int64)), values)
        gaps = self._read(part, counts, widths)
        gaps += 1
        indices = np.cumsum(gaps)
        # Each group starts again at its own first index: subtract the sum of the groups before it.
        filled = counts > 0
        lasts = np.cumsum(counts, dtype=np.int64)[filled] - 1
        before = np.concatenate(([0], indices[lasts[:-1]])) if len(lasts) else lasts
        indices += np.repeat(starts[filled] - 1 - before, counts[filled])
        if (indices[lasts] >= ends[filled]).any():
            raise WireError("the indices of a sparse update are not ascending and in range")
        return indices.astype(np.uint32), rest


def repeated(widths: Numbers, counts: Numbers | npt.NDArray[np.int64]) -> tuple[int, int | Numbers]:
    """Return the number of numbers, and the width of each."""
    if len(widths) == 1:
        return int(counts[0]), int(widths[0])
    each = np.repeat(widths, counts)
    return len(each), each


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

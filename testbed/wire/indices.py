"""Codings of the indices of a sparse update; every coding is exact.

A coding first *sizes* indices, which costs little, and writes them only on request, so that the
shortest of several codings can be chosen. A reader gets the whole body, in which the indices come
first, and returns the indices and the rest, the values. It trusts no input: the indices that it
returns are strictly ascending and in range, and it expands nothing before it has checked that the
length is possible.

Layouts, with N the number of the model's parameters and k the number of the update's entries:

uint32      k × uint32.
gaps, rice  uint8 0: one group, the model; 1: a group per tensor. For each group its number of
            entries (varint) and its width w (uint8). Then numbers: each index minus its predecessor
            in the group minus 1; the first index minus the group's start. gaps packs the numbers in
            w bits each. rice (Rice, 1979; Golomb, 1966) writes each ⌊number / 2^w⌋ in unary and then
            packs the lower w bits of each number.
elias-fano  k (varint); w = ⌊log₂(N / k)⌋; the differences of successive ⌊index / 2^w⌋ in unary; the
            lower w bits of each index, packed (Elias, 1974; Fano, 1971).
bitmap      N bits, padded to a byte.
gap-bytes   k (varint) and a width w in bytes (uint8); the numbers of gaps, with the model as one
            group, as a byte each, 255 for a number of 255 or more; the excess of these numbers over
            255 in w bytes each, all lowest bytes first, then all next bytes. It is long by itself,
            but its bytes repeat where gradients do, which a byte-wise compressor can use.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.updates import IndexVector, as_bytes
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
from testbed.wire.values import ValueCoding

_LOG_PHI = np.log((1 + np.sqrt(5)) / 2)


@dataclass(frozen=True, slots=True)
class Sized:
    """Indices ready to be written in a coding, and the number of bytes that this takes."""

    code: int
    size: int
    write: Callable[[], Sequence[bytes | memoryview]]


class IndexCoding(ABC):
    """A way to write the indices of updates of one model.

    Attributes:
        name: the name in an experiment file.
        code: the bits in the encoding byte.
    """

    name: ClassVar[str]
    code: ClassVar[int]

    def __init__(self, sizes: Sequence[int]) -> None:
        """Prepare for a model whose tensors have these sizes."""
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - np.asarray(sizes)
        # In the indices' type: numpy converts all indices to search them for keys of another type.
        self._bounds = np.append(self._starts, self._ends[-1]).astype(np.uint32)
        self._total = int(self._ends[-1])

    @abstractmethod
    def sized(self, indices: IndexVector) -> Sized:
        """Return these strictly ascending indices in this coding, sized but not yet written."""

    @abstractmethod
    def decode(self, body: memoryview, values: ValueCoding) -> tuple[IndexVector, memoryview]:
        """Read the indices at the beginning of ``body``; return them and the values' bytes.

        Raises:
            WireError: ``body`` is not the indices and values of an update of this model.
        """

    def longest(self) -> int:
        """Return the greatest number of bytes that a body can have before its values."""
        # A group has at most 5 bytes for its count and 1 for its width.
        return 4 * self._total + 6 * len(self._starts) + 6

    def _split(
        self, body: memoryview, at: int, count: int, values: ValueCoding
    ) -> tuple[memoryview, memoryview]:
        """Return the bytes between ``at`` and the values, and the bytes of the ``count`` values."""
        end = len(body) - values.size(count)
        if count > self._total or end < at:
            raise WireError(
                f"a sparse update of {len(body)} bytes for {self._total} parameters says that it "
                f"has {count} entries"
            )
        return body[at:end], body[end:]

    def _checked(self, indices: npt.NDArray[Any]) -> IndexVector:
        """Return the indices as uint32; raise WireError if they do not ascend or are out of range."""
        if len(indices) and (indices[-1] >= self._total or not np.all(indices[1:] > indices[:-1])):
            raise WireError("the indices of a sparse update are not ascending and in range")
        return indices.astype(np.uint32, copy=False)


class PlainIndices(IndexCoding):
    """Indices of 4 bytes each, sent without a copy."""

    name, code = "uint32", 2

    def sized(self, indices: IndexVector) -> Sized:
        return Sized(self.code, 4 * len(indices), lambda: [as_bytes(indices)])

    def decode(self, body: memoryview, values: ValueCoding) -> tuple[IndexVector, memoryview]:
        split = 4 * values.count(len(body), self._total, beside=4)
        return self._checked(np.frombuffer(body[:split], np.uint32)), body[split:]


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
        return min(map(self.sized_in, self.groupings(indices)), key=_size)

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
        gaps = _gaps(indices)
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
        head, (count, each) = grouped.head(widths), _repeated(widths, grouped.counts)
        return Sized(
            self.code,
            len(head) + packed_size(count, each),
            lambda: [head, pack(grouped.numbers, each)],
        )

    def _read(self, part: memoryview, counts: Numbers, widths: Numbers) -> npt.NDArray[np.int64]:
        count, each = _repeated(widths, counts)
        if len(part) != packed_size(count, each):
            raise WireError(f"{count} packed distances in {len(part)} bytes")
        return unpack(part, count, each).astype(np.int64)


class RiceGaps(GapCoding):
    """Distances in Golomb–Rice codes, within 0.03 bits each of the shortest for a geometric law."""

    name, code = "rice", 4

    def sized_in(self, grouped: Grouped) -> Sized:
        widths = self._widths(grouped)
        count, each = _repeated(widths, grouped.counts)
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
        count, each = _repeated(widths, counts)
        split = len(part) - packed_size(count, each)
        if not 0 <= split <= len(part) or 8 * (split - 1) > self._total + count:
            raise WireError(f"{count} Rice-coded distances in {len(part)} bytes")
        high = unpack_unary(part[:split], count).astype(np.int64)
        numbers: npt.NDArray[np.int64] = (high << each) | unpack(part[split:], count, each)
        return numbers


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


class GapBytes(IndexCoding):
    """Distances as bytes, for a compressor that finds repetitions in them."""

    name, code = "gap-bytes", 7

    def sized(self, indices: IndexVector) -> Sized:
        count = len(indices)
        gaps = _gaps(indices)
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


INDEX_CODINGS: dict[str, type[IndexCoding]] = {
    coding.name: coding
    for coding in (PlainIndices, FixedGaps, RiceGaps, EliasFano, Bitmap, GapBytes)
}


_ASKED = ("uint32", "rice", "elias-fano", "bitmap", "gap-bytes")


def most_compressible(codings: dict[str, IndexCoding], indices: IndexVector, total: int) -> Sized:
    """Return the indices in the coding that zstd compresses best, as ``bench.encodings`` measured."""
    return codings["bitmap" if 16 * len(indices) > total else "gap-bytes"].sized(indices)


def shortest(codings: dict[str, IndexCoding], indices: IndexVector, total: int) -> Sized:
    """Return the indices in their shortest coding.

    For more than a quarter of the parameters that is the bitmap without a comparison: another coding
    saves at most a bit per entry, next to the entry's value, and sizing the others takes as long as
    the rest of the encoding. Gaps of fixed width are not tried either: the gaps of gradients are
    never that even.
    """
    if 4 * len(indices) > total:
        return codings["bitmap"].sized(indices)
    return min((codings[name].sized(indices) for name in _ASKED), key=_size)


def _gaps(indices: IndexVector) -> Numbers:
    """Return each index minus its predecessor minus 1, and the first index itself, in new memory."""
    gaps = indices.copy()
    gaps[1:] -= indices[:-1]
    gaps[1:] -= np.uint32(1)
    return gaps


def _size(sized: Sized) -> int:
    return sized.size


def _repeated(
    widths: Numbers, counts: Numbers | npt.NDArray[np.int64]
) -> tuple[int, int | Numbers]:
    """Return the number of numbers, and the width of each."""
    if len(widths) == 1:
        return int(counts[0]), int(widths[0])
    each = np.repeat(widths, counts)
    return len(each), each

"""Codings of the indices of a sparse update, by their names; every coding is exact.

A coding first *sizes* indices, which costs little, and writes them only on request, so that the
shortest of several codings can be chosen. A reader gets the whole body, in which the indices come
first, and returns the indices and the rest, the values. It trusts no input: the indices that it
returns are strictly ascending and in range, and it expands nothing before it has checked that the
length is possible.

Each module states the layout of its coding.
"""

from testbed.updates import IndexVector, is_range
from testbed.wire.indices.coding import IndexCoding, Sized
from testbed.wire.indices.elias_fano import EliasFano
from testbed.wire.indices.gap_bytes import GapBytes
from testbed.wire.indices.grouped_gaps import FixedGaps, RiceGaps
from testbed.wire.indices.plain_indices import Bitmap, PlainIndices, Range

INDEX_CODINGS: dict[str, type[IndexCoding]] = {
    coding.name: coding
    for coding in (PlainIndices, FixedGaps, RiceGaps, EliasFano, Bitmap, GapBytes, Range)
}
_COMPARED = ("uint32", "rice", "elias-fano", "bitmap", "gap-bytes")


def most_compressible(codings: dict[str, IndexCoding], indices: IndexVector, total: int) -> Sized:
    """Return the indices in the coding that zstd compresses best, as ``bench.encodings`` measured."""
    if is_range(indices):
        return codings["range"].sized(indices)
    return codings["bitmap" if 16 * len(indices) > total else "gap-bytes"].sized(indices)


def shortest(codings: dict[str, IndexCoding], indices: IndexVector, total: int) -> Sized:
    """Return the indices in their shortest coding.

    Nothing is shorter than a range where the indices are one. For more than a quarter of the parameters
    the bitmap is taken without a comparison: another coding saves at most a bit per entry, next to the
    entry's value, and sizing the others takes as long as the rest of the encoding. Gaps of fixed width
    are not tried either: the gaps of gradients are never that even.
    """
    if is_range(indices):
        return codings["range"].sized(indices)
    if 4 * len(indices) > total:
        return codings["bitmap"].sized(indices)
    return min((codings[name].sized(indices) for name in _COMPARED), key=lambda sized: sized.size)

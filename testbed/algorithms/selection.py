"""Selecting the largest gradients, exactly and faster than a full partition.

The paper keeps the 100·c % largest entries in absolute value (AdaComp, Algorithm 1, SELECT_GRAD).
Here that is exact and reproducible to the bit: of two entries of equal magnitude the one with the
lower index is kept, and a NaN counts as larger than any number. Nearly all entries are ruled out by
a threshold read off a sample, in two sequential passes; only the survivors are partitioned. The
threshold decides nothing: if too few survive, everything is partitioned.
"""

import numpy as np
import numpy.typing as npt

from testbed.algorithms.interface import FloatVector, IndexVector

_SAMPLE = 1024
"""Sampled entries: enough that three standard deviations of the rank are a small over-selection."""
_DIRECT = 4096
"""Below this length a partition of everything is cheaper than sampling first."""


def kept(ratio: float, size: int) -> int:
    """How many of ``size`` entries a ratio c keeps: max(1, ⌊c·size⌋).

    The product is rounded to nine digits first, so that 0.07 of 100 keeps 7 although
    0.07 × 100 is 7.000000000000001 and 0.29 × 100 is 28.999999999999996 in binary.
    """
    return max(1, min(size, int(np.floor(round(ratio * size, 9)))))


def largest(values: FloatVector, count: int) -> IndexVector:
    """Indices of the ``count`` entries of largest magnitude, ascending.

    Args:
        values: float32, shape (size,).
        count: how many to keep, 1 ≤ count ≤ size.

    Returns:
        uint32, shape (count,).
    """
    size = len(values)
    if count >= size:
        return np.arange(size, dtype=np.uint32)
    # Without the sign bit, IEEE 754 floats order like the integers of the same bits: one masking
    # pass instead of abs(), integer comparisons, and NaN comes out largest of all.
    magnitude = values.view(np.int32) & np.int32(0x7FFFFFFF)
    if size > _DIRECT:
        candidates = np.flatnonzero(magnitude >= _threshold(magnitude, count))
        if len(candidates) >= count:
            chosen = _largest_directly(magnitude[candidates], count)
            return candidates[chosen].astype(np.uint32)
    return _largest_directly(magnitude, count).astype(np.uint32)


def _threshold(magnitude: npt.NDArray[np.int32], count: int) -> np.int32:
    """A magnitude that a few more than ``count`` entries are likely to reach."""
    sample = magnitude[:: len(magnitude) // _SAMPLE]
    expected = count * len(sample) / len(magnitude)
    rank = int(expected + 3 * np.sqrt(expected) + 3)
    if rank >= len(sample):
        return np.int32(0)
    return np.int32(np.partition(sample, len(sample) - rank)[len(sample) - rank])


def _largest_directly(magnitude: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.intp]:
    """Ascending positions of the ``count`` largest, ties to the lower position."""
    if count >= len(magnitude):
        return np.arange(len(magnitude))
    at = len(magnitude) - count
    smallest_kept = np.partition(magnitude, at)[at]
    chosen = magnitude > smallest_kept
    equal = np.flatnonzero(magnitude == smallest_kept)
    chosen[equal[: count - int(np.count_nonzero(chosen))]] = True
    return np.flatnonzero(chosen)

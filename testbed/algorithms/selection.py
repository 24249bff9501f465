"""Select the entries of largest magnitude, exactly and faster than by a full partition.

The paper keeps the 100·c % largest entries in absolute value (AdaComp, Algorithm 1, SELECT_GRAD).
Here the selection is exact and reproducible to the bit: of two entries of equal magnitude the one with
the lower index is kept, and a NaN counts as larger than any number.

A threshold taken from a sample rules out nearly all entries, in one pass over the vector that goes
block by block, so that no temporary is as long as the model; only the remaining candidates are
partitioned. The threshold never changes the result: if too few candidates remain, everything is
partitioned. A gradient with fewer non-zero entries than are to be kept (dead ReLUs) yields a threshold
of 0 and is not partitioned either, because quickselect is slowest among equal values.

The sample's stride is coprime to the vector's length, and so to each side of its tensor. A stride of 98
in the CNN's largest matrix, whose rows are 32 × 7 × 7, sampled only one pixel of 49, and three times
as many candidates remained.
"""

import math
import threading

import numpy as np
import numpy.typing as npt

from testbed.updates import FloatVector, IndexVector

_SAMPLE = 2048
"""Sampled entries: enough that three standard deviations of the rank select few extra candidates."""
_SAMPLED = 16
"""The smallest stride of the sample."""
_DIRECT = 4096
"""Length up to which a partition of everything is cheaper than sampling first."""
_BLOCK = 131_072
"""Entries per block: few enough for the processor's caches, enough to make call overhead negligible."""
_WITHOUT_SIGN = np.int32(0x7FFFFFFF)
_SIGN = np.uint32(0x80000000)
_memory = threading.local()


def kept(ratio: float, size: int) -> int:
    """Return how many of ``size`` entries a ratio c keeps: max(1, ⌊c·size⌋).

    The product is rounded to nine digits first, so that 0.07 of 100 keeps 7 although
    0.07 × 100 is 7.000000000000001 and 0.29 × 100 is 28.999999999999996 in binary.
    """
    return max(1, min(size, int(np.floor(round(ratio * size, 9)))))


class Largest:
    """A selector of the ``count`` entries of largest magnitude, for vectors of one size.

    It keeps nothing between calls: the memory for one block belongs to the thread, because a simulator
    has thousands of selectors.
    """

    def __init__(self, size: int, count: int) -> None:
        """Prepare for vectors of ``size`` entries, of which 1 ≤ count ≤ size are kept."""
        self._size = size
        self._count = count
        self._stride = _stride(size)

    def __call__(self, values: FloatVector) -> IndexVector:
        """Return the indices of the largest entries, ascending.

        Args:
            values: float32, shape (size,), contiguous.

        Returns:
            uint32, shape (count,).
        """
        return self.positions(values).astype(np.uint32)

    def positions(self, values: FloatVector) -> npt.NDArray[np.intp]:
        """Return the same indices as intp, numpy's own index type; shape (count,)."""
        count = self._count
        if count >= self._size:
            return np.arange(self._size)
        # Without the sign bit, IEEE 754 floats order like the integers of the same bits: one
        # masking pass instead of abs(), integer comparisons, and NaN is the largest of all.
        bits = values.view(np.int32)
        if count == 1:  # every small bias vector; argmax returns the first of equals
            return np.array([(bits & _WITHOUT_SIGN).argmax()])
        if self._size > _DIRECT:
            threshold = self._threshold(bits)
            candidates = _reaching(bits, max(threshold, np.int32(1)))
            if len(candidates) >= count:
                return candidates[_largest_directly(bits[candidates] & _WITHOUT_SIGN, count)]
            if threshold == 0:
                # All other entries are zeros; the first of them fill the selection.
                zero = np.ones(self._size, np.bool_)
                zero[candidates] = False
                filling = np.flatnonzero(zero)[: count - len(candidates)]
                return np.sort(np.concatenate((candidates, filling)))
        return _largest_directly(bits & _WITHOUT_SIGN, count)

    def _threshold(self, bits: npt.NDArray[np.int32]) -> np.int32:
        """Estimate a magnitude that slightly more than ``count`` entries reach."""
        sample = bits[:: self._stride] & _WITHOUT_SIGN
        expected = self._count * len(sample) / self._size
        rank = int(expected + 3 * math.sqrt(expected) + 3)
        if rank >= len(sample):
            return np.int32(0)
        at = len(sample) - rank
        sample.partition(at)
        return np.int32(sample[at])


def _stride(size: int) -> int:
    """Return the sample's stride for a vector of this size (see the module's docstring)."""
    stride = max(_SAMPLED, size // _SAMPLE)
    while math.gcd(stride, size) > 1:
        stride += 1
    return stride


def _reaching(bits: npt.NDArray[np.int32], threshold: np.int32) -> npt.NDArray[np.intp]:
    """Return the ascending positions of the entries whose magnitude is at least the threshold, ≥ 1.

    Positive entries qualify if, as signed integers, they are at least the threshold; negative entries
    if, as unsigned integers, they are at least the threshold with the sign bit set. Two comparisons
    write a fourth of the bytes that masking would.
    """
    unsigned, negative = bits.view(np.uint32), np.uint32(threshold) | _SIGN
    found = []
    reaches_memory, negative_memory = _block_memory()
    for start in range(0, len(bits), _BLOCK):
        block = bits[start : start + _BLOCK]
        reaches, reaches_below = reaches_memory[: len(block)], negative_memory[: len(block)]
        np.greater_equal(block, threshold, out=reaches)
        np.greater_equal(unsigned[start : start + _BLOCK], negative, out=reaches_below)
        np.logical_or(reaches, reaches_below, out=reaches)
        (at,) = reaches.nonzero()
        if start:
            at += start
        found.append(at)
    return np.concatenate(found) if len(found) > 1 else found[0]


def _block_memory() -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return this thread's memory for one block."""
    if not hasattr(_memory, "block"):
        _memory.block = np.empty(_BLOCK, np.bool_), np.empty(_BLOCK, np.bool_)
    block: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] = _memory.block
    return block


def _largest_directly(magnitude: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.intp]:
    """Return the ascending positions of the ``count`` largest; ties go to the lower position."""
    if count >= len(magnitude):
        return np.arange(len(magnitude))
    at = len(magnitude) - count
    ordered = magnitude.copy()
    ordered.partition(at)
    smallest_kept = ordered[at]
    reaching: npt.NDArray[np.intp] = (magnitude >= smallest_kept).nonzero()[0]
    if len(reaching) == count:
        return reaching
    chosen = magnitude[reaching] > smallest_kept
    equal = np.flatnonzero(~chosen)
    chosen[equal[: count - int(np.count_nonzero(chosen))]] = True
    kept: npt.NDArray[np.intp] = reaching[chosen]
    return kept

"""Selecting the largest gradients, exactly and faster than a full partition.

The paper keeps the 100·c % largest entries in absolute value (AdaComp, Algorithm 1, SELECT_GRAD).
Here that is exact and reproducible to the bit: of two entries of equal magnitude the one with the
lower index is kept, and a NaN counts as larger than any number.

Nearly all entries are ruled out by a threshold read off a sample, in one pass over the vector that
goes block by block so that it needs no memory as long as the model; only the survivors are
partitioned. The threshold decides nothing: if too few survive, everything is partitioned. A
gradient with fewer non-zero entries than are to be kept (dead ReLUs) is seen by a threshold of 0,
and is not partitioned either: quickselect is at its worst among equal values.

What is sampled lies a stride apart that has no divisor in common with the vector's length, and so with
no side of its tensor. A stride of 98 in the CNN's largest matrix, whose rows are 32 × 7 × 7, met one
pixel of 49 only, and three times as many entries survived.
"""

import math
import threading

import numpy as np
import numpy.typing as npt

from testbed.updates import FloatVector, IndexVector

_SAMPLE = 2048
"""Sampled entries: enough that three standard deviations of the rank are a small over-selection."""
_SAMPLED = 16
"""One entry in so many of a short vector is sampled."""
_DIRECT = 4096
"""Below this length a partition of everything is cheaper than sampling first."""
_BLOCK = 131_072
"""Entries per block: few enough for the processor's caches, enough that calls do not matter."""
_WITHOUT_SIGN = np.int32(0x7FFFFFFF)
_SIGN = np.uint32(0x80000000)
_memory = threading.local()


def kept(ratio: float, size: int) -> int:
    """How many of ``size`` entries a ratio c keeps: max(1, ⌊c·size⌋).

    The product is rounded to nine digits first, so that 0.07 of 100 keeps 7 although
    0.07 × 100 is 7.000000000000001 and 0.29 × 100 is 28.999999999999996 in binary.
    """
    return max(1, min(size, int(np.floor(round(ratio * size, 9)))))


class Largest:
    """Selects the ``count`` entries of largest magnitude of vectors of one size.

    It keeps nothing between calls: the memory for one block is its thread's, because a simulator has
    thousands of these.
    """

    def __init__(self, size: int, count: int) -> None:
        """Prepare for vectors of ``size`` entries, of which 1 ≤ count ≤ size are kept."""
        self._size = size
        self._count = count
        self._stride = _stride(size)

    def __call__(self, values: FloatVector) -> IndexVector:
        """Indices of the largest, ascending.

        Args:
            values: float32, shape (size,), contiguous.

        Returns:
            uint32, shape (count,).
        """
        return self.positions(values).astype(np.uint32)

    def positions(self, values: FloatVector) -> npt.NDArray[np.intp]:
        """The same as integers that arrays are indexed with; shape (count,)."""
        count = self._count
        if count >= self._size:
            return np.arange(self._size)
        # Without the sign bit, IEEE 754 floats order like the integers of the same bits: one
        # masking pass instead of abs(), integer comparisons, and NaN comes out largest of all.
        bits = values.view(np.int32)
        if count == 1:  # as for every small bias vector; argmax gives the first of equals
            return np.array([(bits & _WITHOUT_SIGN).argmax()])
        if self._size > _DIRECT:
            threshold = self._threshold(bits)
            candidates = _reaching(bits, max(threshold, np.int32(1)))
            if len(candidates) >= count:
                return candidates[_largest_directly(bits[candidates] & _WITHOUT_SIGN, count)]
            if threshold == 0:
                # All others are zeros: the first of them fill up.
                zero = np.ones(self._size, np.bool_)
                zero[candidates] = False
                filling = np.flatnonzero(zero)[: count - len(candidates)]
                return np.sort(np.concatenate((candidates, filling)))
        return _largest_directly(bits & _WITHOUT_SIGN, count)

    def _threshold(self, bits: npt.NDArray[np.int32]) -> np.int32:
        """A magnitude that a few more than ``count`` entries are likely to reach."""
        sample = bits[:: self._stride] & _WITHOUT_SIGN
        expected = self._count * len(sample) / self._size
        rank = int(expected + 3 * math.sqrt(expected) + 3)
        if rank >= len(sample):
            return np.int32(0)
        at = len(sample) - rank
        sample.partition(at)
        return np.int32(sample[at])


def _stride(size: int) -> int:
    """How far apart the sampled entries of a vector are: see the module."""
    stride = max(_SAMPLED, size // _SAMPLE)
    while math.gcd(stride, size) > 1:
        stride += 1
    return stride


def _reaching(bits: npt.NDArray[np.int32], threshold: np.int32) -> npt.NDArray[np.intp]:
    """Ascending positions of the entries whose magnitude is the threshold, at least 1, or more.

    As signed integers the positive ones that are so large are the threshold and more; as unsigned
    integers the negative ones are the threshold with a sign, and more. Two comparisons write a fourth
    of the bytes that masking would.
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
    """This thread's memory for one block."""
    if not hasattr(_memory, "block"):
        _memory.block = np.empty(_BLOCK, np.bool_), np.empty(_BLOCK, np.bool_)
    block: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] = _memory.block
    return block


def _largest_directly(magnitude: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.intp]:
    """Ascending positions of the ``count`` largest, ties to the lower position."""
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

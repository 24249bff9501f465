"""The parts of the parameters that several servers hold: contiguous, and as equal as can be.

A worker computes with all parameters. It pulls one slice from each server, and cuts its update into
one for each; the indices of a sparse update count from the slice's first parameter.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from testbed.updates import DenseUpdate, Layout, SparseUpdate, Update


@dataclass(frozen=True, slots=True)
class Slice:
    """What one server holds of the parameters.

    Attributes:
        start, stop: positions in the flat vector, float32, (|Θ|,).
        layout: of the tensors, or parts of tensors, in it.
    """

    start: int
    stop: int
    layout: Layout

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.stop - self.start

    def of(self, update: Update) -> Update:
        """Return this part of an update of all parameters; it shares a dense update's memory."""
        if isinstance(update, DenseUpdate):
            return DenseUpdate(update.values[self.start : self.stop])
        first, last = np.searchsorted(update.indices, (self.start, self.stop))
        indices = update.indices[first:last] - np.uint32(self.start)
        return SparseUpdate(indices, update.values[first:last])


def slices(layout: Layout, count: int) -> list[Slice]:
    """Cut the parameters into ``count`` slices, whose sizes differ by one at most.

    Raises:
        ValueError: there are fewer parameters than slices.
    """
    return [
        Slice(start, stop, layout.within(start, stop))
        for start, stop in itertools.pairwise(ends(layout.total, count))
    ]


def ends(total: int, count: int) -> list[int]:
    """Return the positions between which ``total`` parameters are cut into ``count`` slices.

    Raises:
        ValueError: there are fewer parameters than slices.
    """
    if count > total:
        raise ValueError(f"{total:,} parameters cannot be cut into {count:,} slices")
    return [total * i // count for i in range(count + 1)]


def joined(parts: list[Update], cut: list[Slice]) -> Update:
    """Return the update of all parameters whose parts these are; the opposite of ``Slice.of``."""
    if all(isinstance(part, DenseUpdate) for part in parts):
        return DenseUpdate(np.concatenate([part.values for part in parts]))
    sparse = [_sparse(part) for part in parts]
    return SparseUpdate(
        np.concatenate(
            [one.indices + np.uint32(of.start) for one, of in zip(sparse, cut, strict=True)]
        ),
        np.concatenate([one.values for one in sparse]),
    )


def _sparse(update: Update) -> SparseUpdate:
    if isinstance(update, SparseUpdate):
        return update
    return SparseUpdate(np.arange(len(update.values), dtype=np.uint32), update.values)

"""The parts of the parameters that several servers hold: by default contiguous, and as equal as can be.

A worker computes with all parameters. It pulls one slice from each server, and cuts its update into
one for each. A slice is one range of the flat vector or several, its *pieces*; positions in it, the
indices of a sparse update among them, count through its pieces, one after the other.

TensorFlow deals whole variables to servers in turn (paper 003, §5.1): ``tensors``. The paper says
that a layer of a network is one variable: ``layers``.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from testbed.training.settings import Settings
from testbed.updates import (
    Allocation,
    DenseUpdate,
    FloatVector,
    IndexVector,
    Layout,
    SparseUpdate,
    Update,
)


class Piece(NamedTuple):
    """A range of parameters.

    Attributes:
        of_all: its place in the flat vector, float32, (|Θ|,).
        own: its place in its slice, float32, (size,).
    """

    of_all: slice
    own: slice

    @property
    def shift(self) -> np.uint32:
        """The difference between a parameter's positions in the flat vector and in the slice."""
        return np.uint32(self.of_all.start - self.own.start)


@dataclass(frozen=True, slots=True)
class Slice:
    """What one server holds of the parameters.

    Attributes:
        pieces: in the order of the flat vector; no two of them touch.
        layout: of the tensors, or parts of tensors, in it.
    """

    pieces: tuple[Piece, ...]
    layout: Layout

    @classmethod
    def of_ranges(cls, layout: Layout, ranges: Iterable[tuple[int, int]]) -> "Slice":
        """Make the slice of some ranges, (start, stop), of a flat vector with this layout."""
        apart: list[tuple[int, int]] = []
        for start, stop in sorted(ranges):
            if apart and apart[-1][1] == start:
                apart[-1] = apart[-1][0], stop
            else:
                apart.append((start, stop))
        ends = itertools.accumulate((stop - start for start, stop in apart), initial=0)
        pieces = [
            Piece(slice(*of_all), slice(*own))
            for of_all, own in zip(apart, itertools.pairwise(ends), strict=True)
        ]
        return cls(tuple(pieces), layout.within(*apart))

    @property
    def size(self) -> int:
        size: int = self.pieces[-1].own.stop
        return size

    def take(self, vector: FloatVector) -> FloatVector:
        """Return this part of a vector of all parameters: a view if it is one piece, else a copy."""
        parts = [vector[piece.of_all] for piece in self.pieces]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def put(self, part: FloatVector, into: FloatVector) -> None:
        """Write this part, float32, (size,), to its places in a vector of all parameters."""
        for piece in self.pieces:
            into[piece.of_all] = part[piece.own]

    def of(self, update: Update) -> Update:
        """Return this part of an update of all parameters.

        If the slice is one piece it shares a dense update's memory. All of an update is itself.
        """
        if isinstance(update, DenseUpdate):
            return (
                update if self.size == len(update.values) else DenseUpdate(self.take(update.values))
            )
        if self._begins_with(update.indices):
            return update
        edges = [edge for p in self.pieces for edge in (p.of_all.start, p.of_all.stop)]
        places = iter(_places(update.indices, edges))
        indices: list[IndexVector] = []
        values: list[FloatVector] = []
        for piece, first, last in zip(self.pieces, places, places, strict=True):
            indices.append(update.indices[first:last] - piece.shift)
            values.append(update.values[first:last])
        if len(indices) == 1:
            return SparseUpdate(indices[0], values[0])
        return SparseUpdate(np.concatenate(indices), np.concatenate(values))

    def _begins_with(self, indices: IndexVector) -> bool:
        """Return True if these ascending indices are all in one piece, at the vector's beginning."""
        (of_all, _), *more = self.pieces
        inside = not (len(indices) and indices[-1] >= of_all.stop)
        return not more and of_all.start == 0 and inside


def slices_of(settings: Settings, layout: Layout) -> list[Slice]:
    """Return what each server of a run holds of its parameters."""
    return slices(layout, settings.servers, settings.spec.devices.allocation)


def slices_called(settings: Settings, layout: Layout, worker: int) -> list[Slice]:
    """Return what each role holds that a worker, or an aggregator as one, calls; an aggregator all."""
    if settings.calls_aggregator(worker):
        return slices(layout, 1)
    return slices_of(settings, layout)


def slices(layout: Layout, count: int, allocation: Allocation = "ranges") -> list[Slice]:
    """Cut the parameters into ``count`` slices.

    Args:
        allocation: ``ranges``: one range each, whose sizes differ by one at most; ``tensors`` or
            ``layers``: these go to the servers in turn, in the order of the flat vector.

    Raises:
        ValueError: there are fewer parameters, tensors or layers than slices.
    """
    total = layout.total
    if allocation == "ranges":
        _check(total, "parameters", count)
        ends = [total * i // count for i in range(count + 1)]
        return [Slice.of_ranges(layout, [one]) for one in itertools.pairwise(ends)]
    units = layout.units(allocation)
    _check(sum(unit[0].start < layout.parameters for unit in units), allocation, count)
    return [
        Slice.of_ranges(layout, ((one.start, one.stop) for unit in units[i::count] for one in unit))
        for i in range(count)
    ]


def _check(there: int, what: str, count: int) -> None:
    if count > there:
        raise ValueError(f"{there:,} {what} cannot be cut into {count:,} slices")


def whole(parts: Sequence[FloatVector], cut: Sequence[Slice]) -> FloatVector:
    """Return the vector of all parameters whose parts these are; the opposite of ``Slice.take``."""
    found = [
        (piece.of_all.start, part[piece.own])
        for part, one in zip(parts, cut, strict=True)
        for piece in one.pieces
    ]
    found.sort(key=_start)
    return np.concatenate([values for _, values in found])


def joined(parts: Sequence[Update], cut: Sequence[Slice]) -> Update:
    """Return the update of all parameters whose parts these are; the opposite of ``Slice.of``."""
    if len(parts) == 1:
        return parts[0]
    dense = [part.values for part in parts if isinstance(part, DenseUpdate)]
    if len(dense) == len(parts):
        return DenseUpdate(whole(dense, cut))
    found = []
    for part, one in zip(parts, cut, strict=True):
        sparse = _sparse(part)
        between = _places(sparse.indices, [piece.own.start for piece in one.pieces[1:]])
        ends = itertools.pairwise((0, *between, len(sparse.indices)))
        for piece, (first, last) in zip(one.pieces, ends, strict=True):
            indices = sparse.indices[first:last] + piece.shift
            found.append((piece.of_all.start, SparseUpdate(indices, sparse.values[first:last])))
    found.sort(key=_start)
    return SparseUpdate(
        np.concatenate([one.indices for _, one in found]),
        np.concatenate([one.values for _, one in found]),
    )


def _places(indices: IndexVector, positions: Sequence[int]) -> list[int]:
    """Return how many of these ascending indices are before each position."""
    if not positions:
        return []
    # Positions of another type would make numpy convert all the indices.
    found: list[int] = np.searchsorted(indices, np.array(positions, indices.dtype)).tolist()
    return found


def _start(found: tuple[int, object]) -> int:
    return found[0]


def _sparse(update: Update) -> SparseUpdate:
    if isinstance(update, SparseUpdate):
        return update
    return SparseUpdate(np.arange(len(update.values), dtype=np.uint32), update.values)

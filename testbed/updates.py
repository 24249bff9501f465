"""Updates (computed, sent and applied) as arrays over the model's flat parameter vector."""

import itertools
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.errors import TestbedError

FloatVector: TypeAlias = npt.NDArray[np.float32]
IndexVector: TypeAlias = npt.NDArray[np.uint32]

Allocation: TypeAlias = Literal["ranges", "tensors", "layers"]
"""How several servers share the parameters: a range each, or whole tensors or layers in turn."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the model's tensors in the flat parameter vector.

    Attributes:
        names: the tensors' names, in their order in the vector.
        sizes: the number of parameters in each tensor; their sum is the length of the vector.
        buffers: how many entries at the end are shared buffers, and no parameters.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    buffers: int = 0

    @property
    def total(self) -> int:
        """Length of the flat parameter vector, |Θ|."""
        return sum(self.sizes)

    @property
    def parameters(self) -> int:
        """The number of entries that are parameters: those before the shared buffers."""
        return self.total - self.buffers

    @property
    def slices(self) -> tuple[slice, ...]:
        """The part of the flat vector that each tensor occupies."""
        ends = np.cumsum((0, *self.sizes)).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    def units(self, allocation: Literal["tensors", "layers"]) -> list[tuple[slice, ...]]:
        """Return the tensors that stay together, by the order of the first of them; none is empty.

        The tensors of a layer are those whose names agree up to the last dot. Its shared buffers are
        among them.
        """
        found: dict[str, list[slice]] = {}
        for name, tensor in zip(self.names, self.slices, strict=True):
            if tensor.start < tensor.stop:
                layer = name.rpartition(".")[0] or name
                found.setdefault(layer if allocation == "layers" else name, []).append(tensor)
        return list(map(tuple, found.values()))

    def within(self, *ranges: tuple[int, int]) -> "Layout":
        """Return the layout of what lies in some ranges, (start, stop), which may cut tensors."""
        found = [
            (name, min(stop, tensor.stop) - max(start, tensor.start))
            for start, stop in ranges
            for name, tensor in zip(self.names, self.slices, strict=True)
            if tensor.start < stop and tensor.stop > start
        ]
        buffers = sum(max(0, stop - max(start, self.parameters)) for start, stop in ranges)
        return Layout(tuple(name for name, _ in found), tuple(size for _, size in found), buffers)


@dataclass(frozen=True, slots=True)
class DenseUpdate:
    """An update with a value for every parameter.

    Attributes:
        values: float32, shape (|Θ|,).
    """

    values: FloatVector

    def copy(self) -> "DenseUpdate":
        """Return a copy with memory of its own."""
        return DenseUpdate(self.values.copy())


@dataclass(frozen=True, slots=True)
class SparseUpdate:
    """An update with values for some parameters; it does not contain the others.

    Attributes:
        indices: uint32, shape (m,), strictly ascending positions in the flat vector.
        values: float32, shape (m,); a value may be 0.
    """

    indices: IndexVector
    values: FloatVector

    @property
    def places(self) -> IndexVector | slice:
        """The positions; a slice, which is far faster, where they follow one another."""
        if not is_range(self.indices):
            return self.indices
        first = int(self.indices[0])
        return slice(first, first + len(self.indices))

    def copy(self) -> "SparseUpdate":
        """Return a copy with memory of its own."""
        return SparseUpdate(self.indices.copy(), self.values.copy())


Update: TypeAlias = DenseUpdate | SparseUpdate


def checked(update: object, size: int, half: object) -> Update:
    """Return what a half gives to be sent, if it is an update.

    Of 211,690 parameters a dense one takes 0.4 µs, a sparse one of 211 entries 2.5 µs.

    Args:
        update: what the half returned.
        size: |Θ|, or the length of the vector that the half has.
        half: the half, which may be a plug-in's.

    Raises:
        TestbedError: it is no update of so many parameters; the text names the half's class.
    """
    wrong = _what_is_wrong(update, size)
    if wrong is None:
        return update  # type: ignore[return-value]
    raise TestbedError(f"what {half_in_words(half)} returned is no update: {wrong}")


def half_in_words(half: object) -> str:
    """Return which half it is, for a sentence: ``the half mine.Worker``."""
    return f"the half {type(half).__module__}.{type(half).__qualname__}"


def _what_is_wrong(update: object, size: int) -> str | None:
    if not isinstance(update, DenseUpdate | SparseUpdate):
        return (
            f"it is of the type {type(update).__name__}, and must be a DenseUpdate or a SparseUpdate "
            "(testbed.updates)"
        )
    wrong = _no_vector("values", update.values, np.float32)
    if wrong is not None:
        return wrong
    number = len(update.values)
    if isinstance(update, SparseUpdate):
        wrong = _no_vector("indices", update.indices, np.uint32)
        return wrong or _no_places(update.indices, number, size)
    return None if number == size else f"it has {number:,} values for {size:,} parameters"


def _no_places(k: IndexVector, number: int, size: int) -> str | None:
    if len(k) != number:
        return f"it has {len(k):,} indices and {number:,} values"
    if number and not (k[1:] > k[:-1]).all():
        return "its indices must be strictly ascending: sort them, and give each index once"
    if number and int(k[-1]) >= size:
        return f"it has the index {k[-1]}, and there are {size:,} parameters, from 0"
    return None


def _no_vector(what: str, vector: object, kind: type[np.generic]) -> str | None:
    if not isinstance(vector, np.ndarray):
        return f"its {what} are of the type {type(vector).__name__}, and must be a numpy array"
    if vector.dtype != kind:
        name = kind.__name__
        return f"its {what} are {vector.dtype}, and must be {name}: use .astype(np.{name})"
    if vector.ndim != 1:
        return f"its {what} have the shape {vector.shape}, and must have one dimension"
    if not vector.flags.c_contiguous:
        return f"its {what} are not contiguous: use np.ascontiguousarray"
    return None


def is_range(indices: IndexVector) -> bool:
    """Return True if there is an index, and all of these ascending indices follow one another."""
    return len(indices) > 0 and int(indices[-1]) - int(indices[0]) == len(indices) - 1


def as_bytes(vector: npt.NDArray[np.generic]) -> memoryview:
    """Return the memory of a contiguous vector as bytes, without a copy, to send or receive into."""
    return memoryview(vector).cast("B")  # type: ignore[arg-type]

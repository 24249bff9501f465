"""Updates: what is computed, sent and applied, as arrays over the model's flat parameter vector."""

import itertools
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatVector: TypeAlias = npt.NDArray[np.float32]
IndexVector: TypeAlias = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each tensor of the model lies in the flat parameter vector.

    Attributes:
        names: the tensors' names, in the order in which they lie in the vector.
        sizes: how many parameters each holds; their sum is the length of the vector.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        """Length of the flat parameter vector, |Θ|."""
        return sum(self.sizes)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The part of the flat vector that each tensor occupies."""
        ends = np.cumsum((0, *self.sizes)).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))


@dataclass(frozen=True, slots=True)
class DenseUpdate:
    """A value for every parameter.

    Attributes:
        values: float32, shape (|Θ|,).
    """

    values: FloatVector

    def copy(self) -> "DenseUpdate":
        """One with memory of its own."""
        return DenseUpdate(self.values.copy())


@dataclass(frozen=True, slots=True)
class SparseUpdate:
    """Values for some parameters; the others are not part of the update.

    Attributes:
        indices: uint32, shape (m,), strictly ascending positions in the flat vector.
        values: float32, shape (m,); a value may be 0.
    """

    indices: IndexVector
    values: FloatVector

    def copy(self) -> "SparseUpdate":
        """One with memory of its own."""
        return SparseUpdate(self.indices.copy(), self.values.copy())


Update: TypeAlias = DenseUpdate | SparseUpdate


def as_bytes(vector: npt.NDArray[np.generic]) -> memoryview:
    """The memory of a contiguous vector as bytes, to send or to receive into, without a copy."""
    return memoryview(vector).cast("B")  # type: ignore[arg-type]

"""The interface of a coding of indices: a way to size, write and read them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.updates import IndexVector
from testbed.wire import WireError
from testbed.wire.bits import Numbers
from testbed.wire.values import ValueCoding


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


def gaps_of(indices: IndexVector) -> Numbers:
    """Return each index minus its predecessor minus 1, and the first index itself, in new memory."""
    gaps = indices.copy()
    gaps[1:] -= indices[:-1]
    gaps[1:] -= np.uint32(1)
    return gaps

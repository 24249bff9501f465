"""Arrays with an entry per flow, which grow while a capture is read."""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)


def enlarged(array: npt.NDArray[Scalar], count: int, fill: Any = 0) -> npt.NDArray[Scalar]:
    """Return an array of at least ``count`` entries, shape (entries, …): itself, or a copy.

    The copy is at least twice as long, with ``fill`` in the new entries.
    """
    if count <= len(array):
        return array
    larger = np.full((max(count, 2 * len(array)), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger

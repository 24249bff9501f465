"""Arrays with a place per flow, of which more are met while a capture is read."""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)


def enlarged(array: npt.NDArray[Scalar], count: int, fill: Any = 0) -> npt.NDArray[Scalar]:
    """The array itself, or a copy at least twice as long, with ``fill`` behind what it had.

    Args:
        array: shape (places, …).
        count: places that there must be.
    """
    if count <= len(array):
        return array
    larger = np.full((max(count, 2 * len(array)), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger

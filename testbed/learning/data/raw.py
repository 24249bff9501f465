"""A dataset as it is read, before anything is scaled."""

import hashlib
import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.learning.inputs import Inputs

Array: TypeAlias = npt.NDArray[Any]


class Raw(NamedTuple):
    """Examples and their labels.

    Attributes:
        train_images, test_images: images and other values, uint8 or float32, (N, …), or tokens, int64,
            (N, positions). Of images the shape is (N, channels, height, width).
        train_labels, test_labels: labels, whole numbers from 0, (N,); of tokens int64, (N, positions);
            of other targets float32, (N, …).
        classes: the number of labels or of tokens; None: as many as occur.
    """

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array
    classes: int | None = None

    @property
    def inputs(self) -> Inputs:
        """The shape of an example, and the number of outputs of a model for it."""
        shape, labels = self.train_images.shape[1:], self.train_labels
        tokens = self.train_images.dtype == np.int64
        if self.classes is not None:
            outputs = self.classes
        elif labels.dtype.kind == "f":
            outputs = math.prod(labels.shape[1:])
        else:
            counted = [labels, self.test_labels]
            counted += [self.train_images, self.test_images] if tokens else []
            outputs = max(int(one.max()) for one in counted) + 1
        return Inputs(tuple(map(int, shape)), outputs, tokens)

    @property
    def digest(self) -> str:
        """The SHA-256 of all arrays, hexadecimal."""
        found = hashlib.sha256()
        for array in self[:4]:
            found.update(f"{array.dtype.str} {array.shape}\0".encode())
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()

"""Datasets in a file of numpy's arrays (``.npz``): for data that anything can produce.

The file has ``train_images``, ``train_labels``, ``test_images`` and ``test_labels``. Images are uint8,
(N, height, width) in grey or (N, height, width, channels); labels are integers from 0, (N,).
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError

SUFFIX = ".npz"
KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def read(path: Path) -> tuple[npt.NDArray[np.uint8], ...]:
    """Read a file.

    Returns:
        Training images (N, channels, height, width), their labels (N,), test images, their labels; all
        uint8.

    Raises:
        DataError: the file is damaged, or its arrays are none of a dataset.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in KEYS if key in file}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path} cannot be read as a file of arrays: {error}") from error
    if missing := [key for key in KEYS if key not in arrays]:
        raise DataError(f"{path} has no {', '.join(missing)}: a dataset has {', '.join(KEYS)}")
    train, test = (_images(path, arrays, of) for of in ("train", "test"))
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{path} has training images of {train.shape[1:]} and test images of {test.shape[1:]}"
        )
    return train, _labels(path, arrays, "train"), test, _labels(path, arrays, "test")


def _images(path: Path, arrays: Mapping[str, npt.NDArray[Any]], of: str) -> npt.NDArray[np.uint8]:
    images = arrays[f"{of}_images"]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or not images.size:
        raise DataError(
            f"{path}: {of}_images is {images.dtype} of shape {images.shape}; images are uint8 (N, "
            "height, width) or (N, height, width, channels)"
        )
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _labels(path: Path, arrays: Mapping[str, npt.NDArray[Any]], of: str) -> npt.NDArray[np.uint8]:
    labels, images = arrays[f"{of}_labels"], len(arrays[f"{of}_images"])
    if labels.dtype.kind not in "iu" or labels.shape != (images,):
        raise DataError(
            f"{path}: {of}_labels is {labels.dtype} of shape {labels.shape}; labels are integers "
            f"({images},), one for each image"
        )
    if labels.min() < 0 or labels.max() > 255:
        raise DataError(f"{path}: {of}_labels has values outside of 0 to 255")
    return labels.astype(np.uint8)

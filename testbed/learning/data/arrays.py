"""Datasets in a file of numpy's arrays (``.npz``): for data that anything can produce.

The file has ``train_images``, ``train_labels``, ``test_images`` and ``test_labels``. Images are uint8,
(N, height, width) in grey or (N, height, width, channels); labels are integers from 0, (N,).
"""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError
from testbed.learning.data.raw import Array

SUFFIX = ".npz"
_ONE_ARRAY = b"\x93NUMPY"
_CHANNELS = 4
"""The most values of a pixel where the second axis may be of rows."""
_MOST_NAMES = 10
"""The most names of arrays in a message."""
MOST = (1 << 16) - 1
"""The largest label."""
KEYS = ("train_images", "train_labels", "test_images", "test_labels")


def read(path: Path) -> tuple[Array, ...]:
    """Read a file.

    Returns:
        Training images (N, channels, height, width), their labels (N,), test images, their labels;
        uint8, but labels above 255, which are uint16.

    Raises:
        DataError: the file is damaged, or its arrays are none of a dataset.
    """
    try:
        arrays = _contents(path)
    except DataError:
        raise
    except Exception as error:  # numpy and zipfile raise anything of a damaged file
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path} cannot be read as a file of arrays: {reason}") from error
    train, test = (_images(path, arrays, of) for of in ("train", "test"))
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{path} has training images of {train.shape[1:]} and test images of {test.shape[1:]}"
        )
    return train, _labels(path, arrays, "train"), test, _labels(path, arrays, "test")


def read_column(path: Path, column: str) -> list[str] | None:
    """Return the values of ``train_<column>``, one for each training image; None if there is none.

    Raises:
        DataError: the file is damaged, or the array has another shape.
    """
    name = f"train_{column}"
    try:
        with np.load(path, allow_pickle=False) as file:
            if name not in file:
                return None
            values, labels = file[name], file["train_labels"]
            if values.dtype.kind == "S":
                values = np.char.decode(values, "utf-8")
    except Exception as error:  # numpy and zipfile raise anything of a damaged file
        raise DataError(f"{path}: {name} cannot be read: {error}") from error
    if values.shape != labels.shape or values.dtype.kind not in "iuU":
        raise DataError(
            f"{path}: {name} is {values.dtype} of shape {values.shape}; a column has a whole number or "
            f"a text for each training image, {labels.shape}"
        )
    return [str(value) for value in values.astype(str).tolist()]


def _contents(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of ``KEYS``, after a look at how large they are."""
    with path.open("rb") as file:
        if file.read(len(_ONE_ARRAY)) == _ONE_ARRAY:
            raise DataError(
                f"{path} is one array (.npy), and a dataset is a file of arrays (.npz) with "
                f"{', '.join(KEYS)}: write it with numpy.savez"
            )
    with zipfile.ZipFile(path) as archive:
        sizes = {one.filename.removesuffix(".npy"): one.file_size for one in archive.infolist()}
    if not sizes.keys() >= set(KEYS):
        # Names are any text, also with line ends.
        has = ", ".join(repr(name)[1:-1] for name in sorted(sizes)[:_MOST_NAMES]) or "no arrays"
        more = f" and {len(sizes) - _MOST_NAMES} more" if len(sizes) > _MOST_NAMES else ""
        raise DataError(f"{path} has {has}{more}: a dataset has {', '.join(KEYS)}")
    unpacked = sum(sizes[key] for key in KEYS)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if unpacked > memory:
        raise DataError(
            f"{path} unpacks to {unpacked:,} bytes, more than this host's memory of {memory:,}"
        )
    arrays = {}
    with np.load(path, allow_pickle=False) as file:
        for key in KEYS:
            try:
                arrays[key] = file[key]
            except ValueError as error:
                raise DataError(f"{path}: {key} cannot be read: {error}") from error
            if not isinstance(arrays[key], np.ndarray):
                raise DataError(f"{path}: {key} is no array of numpy")
    return arrays


def _images(path: Path, arrays: Mapping[str, npt.NDArray[Any]], of: str) -> npt.NDArray[np.uint8]:
    images = arrays[f"{of}_images"]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or not images.size:
        raise DataError(
            f"{path}: {of}_images is {images.dtype} of shape {images.shape}; images are uint8, 0 to "
            "255, (N, height, width) or (N, height, width, channels)"
        )
    if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] > _CHANNELS:
        raise DataError(
            f"{path}: {of}_images has the shape {images.shape}, with channels first: channels are "
            f"last, so transpose it, {of}_images.transpose(0, 2, 3, 1)"
        )
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _labels(path: Path, arrays: Mapping[str, npt.NDArray[Any]], of: str) -> Array:
    labels, images = arrays[f"{of}_labels"], len(arrays[f"{of}_images"])
    if labels.dtype.kind not in "iu" or labels.shape != (images,):
        raise DataError(
            f"{path}: {of}_labels is {labels.dtype} of shape {labels.shape}; labels are integers "
            f"({images},), one for each image"
        )
    if labels.min() < 0 or labels.max() > MOST:
        raise DataError(f"{path}: {of}_labels has values outside of 0 to {MOST:,}")
    return labels.astype(np.min_scalar_type(int(labels.max())))

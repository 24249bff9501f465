"""The 1,797 handwritten digits of 8 × 8 that come with scikit-learn, for runs without a download.

This module reads scikit-learn's file itself, because ``load_digits`` would import all of
scikit-learn and SciPy, which takes seconds of every run and memory of its devices.
"""

import functools
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError

TRAINING_IMAGES = 1442
"""The number of digits for training; see ``read``."""


def read() -> tuple[npt.NDArray[np.uint8], ...]:
    """Return the digits, enlarged to 28 × 28 and split.

    They are enlarged bilinearly (pixel centres aligned as areas) and rounded to 0 to 255. Of each
    class every fifth image, in the order of the file and starting with the fifth, is a test image:
    a fixed split that preserves the shares of the classes and does not depend on the seed.

    Returns:
        Training images (1442, 28, 28), their labels, test images (355, 28, 28), their labels.

    Raises:
        DataError: scikit-learn is missing or incomplete.
    """
    file = _file()
    images, labels = _enlarged(file), _bundled(file)[1]
    is_test = _for_tests(labels)
    return images[~is_test], labels[~is_test], images[is_test], labels[is_test]


def training_labels() -> npt.NDArray[np.uint8]:
    """Return the labels of the training images in the order of ``read``, without torch.

    Raises:
        DataError: as ``read``.
    """
    labels = _bundled(_file())[1]
    return labels[~_for_tests(labels)]


class _File(NamedTuple):
    """A file, as it is now: what was made of it is used again while it stays the same."""

    path: Path
    changed: int


def _file() -> _File:
    package = find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise DataError("the digits come with scikit-learn, which is not installed: install it")
    path = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    try:
        return _File(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"scikit-learn's digits cannot be read ({path}: {error}): install scikit-learn anew"
    )


# Reading and enlarging took a sixth of a small simulation, and a process may make many.
@functools.lru_cache(maxsize=1)
def _bundled(file: _File) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return grey levels (1797, 8, 8), 0 to 16, and labels; both are not to be changed."""
    try:
        rows = np.loadtxt(file.path, delimiter=",").astype(np.uint8)
    except OSError as error:
        raise _unreadable(file.path, error) from error
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1]


@functools.lru_cache(maxsize=1)
def _enlarged(file: _File) -> npt.NDArray[np.uint8]:
    """Return the images, enlarged, which are not to be changed."""
    import torch

    small = torch.from_numpy(_bundled(file)[0].astype(np.float64))[:, None]
    large = torch.nn.functional.interpolate(
        small, size=(28, 28), mode="bilinear", align_corners=False
    )
    return np.rint(large[:, 0].numpy() * (255 / 16)).astype(np.uint8)


def _for_tests(labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True
    return is_test

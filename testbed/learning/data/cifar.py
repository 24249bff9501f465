"""CIFAR-10 in its official binary format, which its authors publish.

Six files of records. A record is one byte, the label from 0 to 9, and 3,072 bytes, the red, the green
and the blue values of 32 × 32 pixels, row by row. Each published file has 10,000 records. The files
themselves have no published checksums, but the archive that they come in has one, which is checked
when it is fetched; here their lengths, labels and numbers of images per class are.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError

TRAINING = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = "test_batch.bin"
FILES = (*TRAINING, TEST)
FOLDER = "cifar-10-batches-bin"
"""The folder of the files in the published archive."""

ARCHIVE = "cifar-10-binary.tar.gz"
ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)

_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32


def files_in(directory: Path) -> list[Path] | None:
    """Return the six files, in a directory or in the archive's folder there; None if one is missing."""
    for place in (directory, directory / FOLDER):
        found = [place / file for file in FILES]
        if all(path.is_file() for path in found):
            return found
    return None


def read(paths: Sequence[Path]) -> tuple[npt.NDArray[np.uint8], ...]:
    """Read the files.

    Args:
        paths: in the order of ``FILES``.

    Returns:
        Training images (N, 3, 32, 32), their labels (N,), test images, their labels; all uint8.

    Raises:
        DataError: a file is damaged, or the classes have different numbers of images.
    """
    read_files = [_read(path) for path in paths]
    images = np.concatenate([one[0] for one in read_files[:-1]])
    labels = np.concatenate([one[1] for one in read_files[:-1]])
    for of, path in ((labels, paths[0].parent), (read_files[-1][1], paths[-1])):
        counts = np.bincount(of, minlength=10)
        if counts.min() != counts.max():
            raise DataError(
                f"{path} is not CIFAR-10, which has as many images of each class: of class "
                f"{counts.argmin()} there are {counts.min()}, of class {counts.argmax()} "
                f"{counts.max()}; fetch it again"
            )
    return images, labels, *read_files[-1]


def _read(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return a file's images and labels."""
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    if not len(content) or len(content) % _RECORD:
        raise DataError(
            f"{path} has {len(content):,} bytes, and records of CIFAR-10 have {_RECORD:,} each: it is "
            "truncated or something else; fetch it again"
        )
    records = content.reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() > 9:
        at = int(labels.argmax())
        raise DataError(
            f"{path} holds the label {labels[at]} at byte {at * _RECORD}, and CIFAR-10 has 0 to 9; "
            "fetch it again"
        )
    return records[:, 1:].reshape(-1, *_SHAPE), labels.copy()

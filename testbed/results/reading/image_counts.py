"""``images.parquet``: how many training images of each label each device of a run has."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.results.reading.journals import read_parquet, whole

NAME = "images.parquet"
_MOST = 10_000_000
"""The most counts, of devices times labels, that are read."""


def read_image_counts(directory: Path) -> npt.NDArray[np.int64]:
    """Return the number of images, (devices, labels), devices by their numbers; (0, 0) without a table.

    Raises:
        NoRunError: the table cannot be read.
    """
    path = directory / NAME
    try:
        with whole(path):
            table = read_parquet(path, ["device", "label", "images"])
            found = {
                (_number(row["device"]), int(row["label"])): int(row["images"])
                for row in table.to_pylist()
            }
            shape = tuple(1 + max(one) for one in zip(*found, strict=True)) if found else (0, 0)
            least = min((0, *(number for key in found for number in key), *found.values()))
            if least < 0 or shape[0] * shape[1] > _MOST:
                raise ValueError("it has numbers that no partition has")
            counts = np.zeros(shape, np.int64)
            for key, images in found.items():
                counts[key] = images
            return counts
    except FileNotFoundError:
        return np.zeros((0, 0), np.int64)


def _number(device: str) -> int:
    return int(device.rpartition("-")[2])

"""``images.parquet``: how many training images of each label each device of a run has.

A row for each device and each label that it has; written once, when the run begins.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

NAME = "images.parquet"
"""Its name in a run directory."""


def write(directory: Path, devices: Sequence[str], by_label: npt.NDArray[np.int64]) -> None:
    """Write the table into a run directory, in place of an earlier one.

    Args:
        devices: the names of the devices that have images.
        by_label: the number of images, (devices, labels).
    """
    device, label = np.nonzero(by_label)
    columns = {
        "device": pa.array([devices[i] for i in device.tolist()], pa.string()),
        "label": pa.array(label.astype(np.int64)),
        "images": pa.array(by_label[device, label].astype(np.int64)),
    }
    parquet.write_table(pa.table(columns), directory / NAME)

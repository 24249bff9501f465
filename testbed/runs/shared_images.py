"""``images.parquet``: how many training images of each label each device of a run has.

A row for each device and each label that it has; written once, when the run begins.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from testbed.planning.images import share_out
from testbed.planning.plan import Plan

_ALL_ALIKE = ("equal", "same", "stream")
"""The kinds of partition that give no device labels of its own, and leave no record."""


def record_images(plan: Plan, directory: Path) -> None:
    """Write ``images.parquet``, if the partition gives devices labels of their own.

    Raises:
        DataError, SpecError: as ``share_out``.
    """
    if plan.spec.partition.kind in _ALL_ALIKE:
        return
    by_label = share_out(plan).by_label
    if by_label is not None:
        write(directory, list(plan.workers)[: len(by_label)], by_label)


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
    parquet.write_table(pa.table(columns), directory / "images.parquet")

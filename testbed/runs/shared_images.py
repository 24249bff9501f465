"""The record of which labels each device of a run has, for its report."""

from pathlib import Path

from testbed.planning.images import share_out
from testbed.planning.plan import Plan
from testbed.telemetry import image_table

_ALL_ALIKE = ("equal", "same", "stream")
"""The kinds of partition that give no device labels of its own, and leave no record."""


def record_images(plan: Plan, directory: Path) -> None:
    """Write ``images.parquet``, if the partition gives devices labels of their own.

    Raises:
        DataError, SpecError: as ``share_out``.
    """
    if plan.settings.data.partition["kind"] in _ALL_ALIKE:
        return
    by_label = share_out(plan).by_label
    if by_label is not None:
        image_table.write(directory, list(plan.workers)[: len(by_label)], by_label)

"""The partition of the images in ``testbed plan``, drawn as the run will draw it.

Labels are read from the dataset only where the partition depends on them; images that are shared out
equally and at random are only counted.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError
from testbed.planning.images import ImageCounts, share_out
from testbed.results.tables.table import Table, plain_text

if TYPE_CHECKING:
    from testbed.planning.plan import Plan

MOST_ROWS = 20
"""The most workers for which the plan has a row each, and the most labels for which it has a column."""
FIRST_ROWS = 10
"""The first workers, which have a row each where there are more."""


def partitioned(plan: "Plan") -> ImageCounts | DataError:
    """Return the partition, or without the dataset the error, so that the rest can be shown.

    Raises:
        SpecError: there are not enough images.
    """
    try:
        return share_out(plan)
    except DataError as error:
        return error


def describe(plan: "Plan", shared: ImageCounts | DataError) -> list[str]:
    """Return the lines about the partition."""
    section = plan.spec.partition.model_dump(mode="json")
    options = [
        f"{key} {value}"
        for key, value in section.items()
        if key not in ("kind", "sha256", "sizes") and value is not None
    ]
    title = ", ".join([f"images: {section['kind']}", *options])
    if isinstance(shared, DataError):
        return [f"{title}; not counted: {shared}"]
    spread = f"{title}; each worker has {_spread(shared.images)}"
    if (left := shared.total - int(shared.images.sum())) > 0:
        spread += f" ({left:,} of {shared.total:,} are of none)"
    if shared.by_label is None:
        return [spread]
    most = 100 * shared.by_label.max(axis=1) / np.maximum(shared.images, 1)
    labels = _spread((shared.by_label > 0).sum(axis=1))
    of = f"{labels} label" if labels == "1" else f"{labels} labels"
    top = f"{most.min():.0f} to {most.max():.0f} % (median {np.median(most):.0f} %)"
    lines = [f"{spread}, of {of}; its most frequent label has {top} of its images"]
    count = shared.by_label.shape[1]
    devices = len(shared.images)
    if count <= MOST_ROWS:
        shown = devices if devices <= MOST_ROWS else FIRST_ROWS
        headings = ["  worker", "images", *map(str, range(count))]
        rows = [
            [f"  {number}", str(images), *(str(count) if count else "" for count in counts)]
            for number, (images, counts) in enumerate(
                zip(shared.images[:shown].tolist(), shared.by_label[:shown].tolist(), strict=True)
            )
        ]
        lines += plain_text(Table(headings, rows)).splitlines()
        if devices > shown:
            lines.append(f"  and {devices - shown:,} more workers")
    return lines


def by_class(plan: "Plan", shared: ImageCounts | DataError) -> list[str]:
    """Return each class's number of images per worker, as text; an empty list without the dataset."""
    if isinstance(shared, DataError):
        return []
    class_of = np.array(plan.settings.class_of[: len(shared.images)])
    members = [shared.images[class_of == i] for i in range(len(plan.settings.classes))]
    return [_range(own) if len(own) else "-" for own in members]


def record(plan: "Plan", shared: ImageCounts | DataError) -> dict[str, Any]:
    """Return the partition for ``--json``; ``images`` of each worker, null without the dataset."""
    section = plan.spec.partition.model_dump(mode="json")
    if isinstance(shared, DataError):
        return section | {"images": None, "labels": None}
    labels = None if shared.by_label is None else shared.by_label.tolist()
    return section | {"images": shared.images.tolist(), "labels": labels}


def _range(values: npt.NDArray[np.int64]) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _spread(values: npt.NDArray[np.int64]) -> str:
    middle = f" (median {np.median(values):,.10g})" if values.max() - values.min() > 1 else ""
    return _range(values) + middle

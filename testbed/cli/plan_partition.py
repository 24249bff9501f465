"""What ``testbed plan`` says of who has which images, drawn as the run will draw it.

The labels are read from the dataset where they matter. Images that are shared out equally and at random
are only counted.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError, SpecError
from testbed.learning import datasets, partitions
from testbed.results.table import plain_text

if TYPE_CHECKING:
    from testbed.planning.plan import Plan

LABELS = 10
MOST_ROWS = 20
"""Workers up to which each has a row."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Who has how many images.

    Attributes:
        images: of each worker or peer that computes, (devices,).
        by_label: of each of them and of each label, (devices, 10); None where it was not looked at.
    """

    images: npt.NDArray[np.int64]
    by_label: npt.NDArray[np.int64] | None


def share_out(plan: "Plan") -> Shared:
    """Share the images out.

    Raises:
        DataError: the dataset is not there.
        SpecError: there are not enough images.
    """
    settings = plan.settings
    partition, looks = settings.partition, settings.partition["kind"] != "equal"
    if looks:
        labels = datasets.training_labels(settings.dataset, settings.train_images, settings.seed)
    else:
        labels = np.zeros(datasets.check(settings.dataset, settings.train_images), np.uint8)
    parts = partitions.parts(partition, labels, plan.computing, settings.seed, settings.batch_size)
    by_label = np.array([np.bincount(labels[part], minlength=LABELS) for part in parts])
    return Shared(np.array([len(part) for part in parts]), by_label if looks else None)


def check(plan: "Plan") -> None:
    """Make sure that every worker can draw a mini-batch.

    Raises:
        DataError: the dataset is missing or corrupt, or has fewer images than asked for.
        SpecError: there are not enough images.
    """
    settings = plan.settings
    images = share_out(plan).images
    worker, fewest = int(images.argmin()), int(images.min())
    if fewest < settings.batch_size:
        raise SpecError(
            f"dataset {settings.dataset}: {int(images.sum())} training images among {len(images)} "
            f"workers are {fewest} for worker {worker}, fewer than a mini-batch of "
            f"{settings.batch_size}; use fewer workers (devices.workers), a smaller "
            "training.batch_size, or another partition"
        )


def look(plan: "Plan") -> Shared | DataError:
    """As ``share_out``; without the dataset, why it cannot be had, which is no reason to show nothing.

    Raises:
        SpecError: there are not enough images.
    """
    try:
        return share_out(plan)
    except DataError as error:
        return error


def describe(plan: "Plan", shared: Shared | DataError) -> list[str]:
    """The lines about the partition."""
    section = plan.spec.partition.model_dump(mode="json")
    options = [f"{key} {value}" for key, value in section.items() if key != "kind"]
    title = ", ".join([f"images: {section['kind']}", *options])
    if isinstance(shared, DataError):
        return [f"{title}; not looked at: {shared}"]
    spread = f"{title}; each worker has {_spread(shared.images)}"
    if shared.by_label is None:
        return [spread]
    lines = [f"{spread}, of {_spread((shared.by_label > 0).sum(axis=1))} labels"]
    if len(shared.images) <= MOST_ROWS:
        headings = ["  worker", "images", *map(str, range(LABELS))]
        rows = [
            [f"  {number}", str(images), *(str(count) if count else "" for count in counts)]
            for number, (images, counts) in enumerate(
                zip(shared.images.tolist(), shared.by_label.tolist(), strict=True)
            )
        ]
        lines += plain_text(headings, rows).splitlines()
    return lines


def by_class(plan: "Plan", shared: Shared | DataError) -> list[str]:
    """How many images the workers of each class have; nothing where they could not be looked at."""
    if isinstance(shared, DataError):
        return []
    class_of = np.array(plan.settings.class_of[: len(shared.images)])
    members = [shared.images[class_of == i] for i in range(len(plan.settings.classes))]
    return [_range(own) if len(own) else "-" for own in members]


def record(plan: "Plan", shared: Shared | DataError) -> dict[str, Any]:
    """The partition for ``--json``; ``images`` of each worker, null without the dataset."""
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

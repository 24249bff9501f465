"""Partition a run's training images among the devices that compute, exactly as the run does.

Labels are read from the dataset only where they matter. Images that are partitioned equally and at
random are only counted.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.learning.data import datasets
from testbed.planning.plan import Plan
from testbed.training import computation

LABELS = 10
"""The fewest labels that are counted."""


@dataclass(frozen=True, slots=True)
class ImageCounts:
    """The number of images of each device.

    Attributes:
        images: images of each worker or peer that computes, (devices,).
        by_label: the same for each label, (devices, 10 or more); None if labels were not read.
        total: the number of training images that there are.
    """

    images: npt.NDArray[np.int64]
    by_label: npt.NDArray[np.int64] | None
    total: int


def share_out(plan: Plan) -> ImageCounts:
    """Partition a run's training images and count each part.

    Raises:
        DataError: the dataset is missing or corrupt, or has fewer images than asked for.
        SpecError: there are not enough images.
    """
    settings, looks = plan.settings, plan.spec.partition.kind != "equal"
    chosen = settings.dataset, plan.spec.dataset.train_images
    if looks:
        labels = datasets.training_labels(*chosen, settings.seed)
    else:
        labels = np.zeros(datasets.check(*chosen), np.uint8)
    parts = computation.parts(settings, labels)
    images = np.array([len(part) for part in parts])
    if not looks or labels.ndim != 1 or labels.dtype.kind == "f":
        return ImageCounts(images, None, len(labels))
    count = max(LABELS, int(labels.max()) + 1)
    by_label = np.array([np.bincount(labels[part], minlength=count) for part in parts])
    return ImageCounts(images, by_label, len(labels))

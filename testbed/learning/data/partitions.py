"""Partitions of the training images among the devices, drawn by the seed.

Functions here are pure: labels in, indices out. Every partition is disjoint, but for ``same`` and
``stream``; those of ``by_label`` and ``given`` may leave images out, all others are complete. Each kind
draws from its own random stream, so that a change of the partition changes no other random number of
the experiment.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.durations.shares import apportion
from testbed.errors import SpecError
from testbed.learning.data import given
from testbed.learning.data.by_label import inner_dirichlet, pathological
from testbed.random_streams import stream

Indices: TypeAlias = npt.NDArray[np.int64]

Column: TypeAlias = Callable[[str], Sequence[str]]
"""Returns the values of a column of the dataset, one for each training image that is used."""

BY_LABEL = ("dirichlet", "inner-dirichlet", "pathological", "shards")
"""The kinds of partition that depend on labels."""
DRAWS = 10
"""The most draws of Dirichlet shares, which are repeated until every worker has enough images."""


def parts(  # noqa: PLR0911 - one for each kind
    partition: Mapping[str, Any],
    labels: npt.NDArray[np.integer[Any]],
    devices: int,
    seed: int,
    least: int = 1,
    *,
    column: Column | None = None,
) -> list[Indices]:
    """Partition the training images.

    Args:
        partition: that of ``Settings``: ``kind``, and its options.
        labels: of the training images, (N,).
        devices: the number of devices that get a part.
        seed: the experiment's seed.
        least: images that a device needs, a mini-batch; only ``dirichlet`` and ``exponential`` ensure
            it.
        column: reads the column that ``natural`` goes by.

    Returns:
        ``devices`` arrays of indices, int64, from 0 to N - 1; for ``same`` and ``stream`` each is all
        of them.

    Raises:
        SpecError: there are not enough images, no draw of ``dirichlet`` gives each device enough, or
            what the partition goes by does not fit.
        DataError: the dataset has no such column.
    """
    images, kind = len(labels), partition["kind"]
    if kind in BY_LABEL and (labels.ndim != 1 or labels.dtype.kind == "f"):
        raise SpecError(
            f"partition: {kind} goes by the labels of the training examples, and these have none: use "
            "equal, sizes, same or stream"
        )
    match kind:
        case "dirichlet":
            return dirichlet(labels, devices, partition["alpha"], seed, least)
        case "inner-dirichlet":
            _check(images, devices, 1)
            given_sizes = partition["sizes"] or apportion([1 / devices] * devices, images)
            return inner_dirichlet(labels, given_sizes[:devices], partition["alpha"], seed)
        case "pathological":
            _check(images, devices, partition["classes_per_worker"])
            own, assignment = partition["classes_per_worker"], partition["class_assignment"]
            return pathological(labels, devices, own, assignment, seed)
        case "shards":
            return shards(labels, devices, partition["per_worker"], seed)
        case "same" | "stream":
            return same(images, devices, least)
        case "sizes":
            return sizes(images, partition["weights"][:devices], seed)
        case "linear":
            return sizes(images, [float(i) for i in range(1, devices + 1)], seed)
        case "exponential":
            return exponential(images, devices, partition["ratio"], seed, least)
        case "natural":
            owners, where = _owners(partition, images, column)
            return given.natural(owners, where, devices, partition["per_worker"], seed)
        case "file":
            return given.indices(Path(partition["file"]), partition["sha256"], images, devices)
    return equal(images, devices, seed)


def _owners(
    partition: Mapping[str, Any], images: int, column: Column | None
) -> tuple[Sequence[str], str]:
    """Return the owner of each image, and what has them, for messages."""
    if partition["file"] is not None:
        path = Path(partition["file"])
        return given.owners_in(path, partition["sha256"], images), str(path)
    assert column is not None
    return column(partition["by"]), f"the column '{partition['by']}'"


def equal(images: int, devices: int, seed: int) -> list[Indices]:
    """Return random parts whose lengths differ by 1 at most.

    Raises:
        SpecError: there are more devices than images.
    """
    _check(images, devices, 1)
    order = stream(seed, "shards").permutation(images).astype(np.int64)
    return np.array_split(order, devices)


def same(images: int, devices: int, least: int) -> list[Indices]:
    """Return all images for each device.

    Raises:
        SpecError: there are fewer images than ``least``.
    """
    _check(images, 1, least, mini_batch=True)
    return [np.arange(images)] * devices


def sizes(images: int, weights: Sequence[float], seed: int) -> list[Indices]:
    """Return random parts in proportion to weights above 0, by largest remainder.

    Raises:
        SpecError: there are more devices than images.
    """
    _check(images, len(weights), 1)
    total = sum(weights)
    counts = apportion([weight / total for weight in weights], images)
    order = stream(seed, "partition sizes").permutation(images).astype(np.int64)
    return np.split(order, np.cumsum(counts)[:-1])


def exponential(
    images: int, devices: int, ratio: float | None, seed: int, least: int
) -> list[Indices]:
    """Return random parts of which each is ``ratio`` times as large as the one before it.

    Args:
        ratio: above 1; None: e, as in ``flwr_datasets``.
        least: images that each device needs.

    Raises:
        SpecError: the first device would have fewer; the message says which ratio works.
    """
    _check(images, devices, least, mini_batch=True)

    def weights(ratio: float) -> list[float]:
        # Relative to the last, so that many devices do not overflow.
        return [math.exp((i + 1 - devices) * math.log(ratio)) for i in range(devices)]

    def first(ratio: float) -> int:
        shares = weights(ratio)
        return apportion([share / sum(shares) for share in shares], images)[0]

    used = math.e if ratio is None else ratio
    if (fewest := first(used)) < least:
        low, high = 1.0, used
        while high - low > 1e-4:
            middle = (low + high) / 2
            low, high = (middle, high) if first(middle) >= least else (low, middle)
        remedy = "fewer workers"
        for unit in (100, 10_000):  # digits that can be written
            step = math.floor(low * unit)
            while step > unit and first(step / unit) < least:  # as sizes are rounded
                step -= 1
            if step > unit:
                remedy = f"ratio {step / unit:g} or fewer workers"
                break
        raise SpecError(
            f"partition: exponential sizes, {used:.4g} times from one of {devices:,} workers to the "
            f"next, give worker 0 {fewest} of {images:,} training images, and a mini-batch needs "
            f"{least}: use {remedy}"
        )
    return sizes(images, weights(used), seed)


def shards(
    labels: npt.NDArray[np.integer[Any]], devices: int, per_worker: int, seed: int
) -> list[Indices]:
    """Return parts made of shards of labels, as in McMahan et al. 2017 (section 3) for MNIST.

    The images are sorted by label and cut into ``devices · per_worker`` shards whose lengths differ by
    1 at most. Each device is dealt ``per_worker`` shards: with 2, most devices have two labels.

    Raises:
        SpecError: there are more shards than images.
    """
    count = devices * per_worker
    _check(len(labels), devices, per_worker)
    cut = np.array_split(np.argsort(labels, kind="stable").astype(np.int64), count)
    dealt = stream(seed, "partition shards").permutation(count).reshape(devices, per_worker)
    return [np.concatenate([cut[shard] for shard in of_device]) for of_device in dealt]


def dirichlet(
    labels: npt.NDArray[np.integer[Any]], devices: int, alpha: float, seed: int, least: int
) -> list[Indices]:
    """Distribute each label's images among the devices by a draw of Dirichlet(α).

    Hsu et al. 2019 draw each device's labels by Dirichlet(α) and give all devices the same number of
    images. Drawing over the devices, label by label, is the form of Yurochkin et al. 2019 and of
    NIID-Bench (Li et al. 2022), whose code draws again while a device has too few images. This
    function does so too, with at most ``DRAWS`` draws, as Flower's partitioner. Parts are never filled
    up afterwards: with many devices and a small α the images of other devices would be most of what a
    device has, and the smaller α, the more alike the devices would be.

    Args:
        alpha: α > 0; the smaller, the fewer labels a device has; as α → ∞ all devices have all labels.
        least: the least number of images per device.

    Raises:
        SpecError: no draw gives every device enough images; the message says what would.
    """
    _check(len(labels), devices, least, mini_batch=True)
    generator = stream(seed, "partition dirichlet")
    by_label = [
        generator.permutation(np.flatnonzero(labels == label)).astype(np.int64)
        for label in np.unique(labels)
    ]
    draw = _Draw([len(one) for one in by_label], least, generator)
    ends, fewest = draw(devices, alpha)
    if fewest < least:
        raise SpecError(
            f"partition: none of {DRAWS} draws of Dirichlet({alpha:g}) over {devices} workers gives "
            f"each of them {least} of {len(labels)} training images, a mini-batch: use "
            f"{draw.remedies(devices, alpha, fewest)}"
        )
    pieces = [np.split(of_label, end) for of_label, end in zip(by_label, ends, strict=True)]
    return [np.concatenate(own) for own in zip(*pieces, strict=True)]


@dataclass(frozen=True, slots=True)
class _Draw:
    """Draws of Dirichlet shares, always from the same state of the random stream.

    Attributes:
        images: the number of images of each label.
        least: images that each device needs.
        generator: the stream, which is copied for each call.
    """

    images: Sequence[int]
    least: int
    generator: np.random.Generator

    def __call__(self, devices: int, alpha: float) -> tuple[Indices, int]:
        """Draw until each device has enough images, ``DRAWS`` times at most.

        Returns:
            For each label the ends of the devices' pieces but the last, (labels, devices - 1); and the
            fewest images of a device. If no draw gives enough, the most that a draw gives.
        """
        generator = copy.deepcopy(self.generator)
        most = 0
        for _ in range(DRAWS):
            drawn = [
                np.cumsum(generator.dirichlet(np.full(devices, alpha)))[:-1] * images
                for images in self.images
            ]
            ends = np.minimum(np.array(drawn).astype(np.int64), np.array(self.images)[:, None])
            total = np.array([0, *ends.sum(axis=0), sum(self.images)])
            fewest = int(np.diff(total).min())
            most = max(most, fewest)
            if fewest >= self.least:
                break
        return ends, most

    def remedies(self, devices: int, alpha: float, fewest: int) -> str:
        """Return what gives each device enough images; each remedy is tried."""
        found = []
        larger = [step * 10.0**power for power in range(-8, 7) for step in (1, 2, 5)]
        larger = [one for one in larger if alpha < one <= 1e6]
        if larger and self(devices, larger[-1])[1] >= self.least:
            # Draws of a larger alpha are more alike, but not always, so what is found was tried.
            low, high = -1, len(larger) - 1
            while high - low > 1:
                middle = (low + high) // 2
                enough = self(devices, larger[middle])[1] >= self.least
                low, high = (low, middle) if enough else (middle, high)
            found.append(f"alpha {larger[high]:.10g}")
        low, high = 1, devices  # one device has all images, and with this many one has too few
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self(middle, alpha)[1] >= self.least else (low, middle)
        found.append(f"{low} {'workers' if low > 1 else 'worker'} (devices.workers)")
        if fewest:
            found.append(f"training.batch_size {fewest}")
        return ", or ".join(found)


def _check(images: int, devices: int, each: int, *, mini_batch: bool = False) -> None:
    if not 1 <= devices * each <= images:
        needs = "one" if each == 1 else f"{each}"
        or_less = ", or a smaller training.batch_size" if mini_batch and each > 1 else ""
        raise SpecError(
            f"{images} training images cannot be split among {devices} workers: each needs {needs}; "
            f"use fewer workers or more images{or_less}"
        )

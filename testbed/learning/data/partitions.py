"""Partitions of the training images among the devices, drawn by the seed.

Functions here are pure: labels in, indices out. Every partition is complete and, but for ``same``
and ``stream``, disjoint. Each kind draws from its own random stream, so that a change of the partition
changes no other random number of the experiment.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.durations.shares import apportion
from testbed.errors import SpecError
from testbed.streams import stream

Indices: TypeAlias = npt.NDArray[np.int64]

BY_LABEL = ("dirichlet", "shards")
"""The kinds of partition that depend on labels."""
REDRAWS = 10
"""The most draws of Dirichlet shares, which are repeated until every worker has enough images."""


def parts(
    partition: Mapping[str, Any],
    labels: npt.NDArray[np.integer[Any]],
    devices: int,
    seed: int,
    least: int = 1,
) -> list[Indices]:
    """Partition the training images.

    Args:
        partition: that of ``Settings``: ``kind``, and its options.
        labels: of the training images, (N,).
        devices: the number of devices that get a part.
        seed: the experiment's seed.
        least: images that a device needs, a mini-batch; only ``dirichlet`` ensures it.

    Returns:
        ``devices`` arrays of indices, int64, together 0 to N - 1; for ``same`` and ``stream`` each is
        all of them.

    Raises:
        SpecError: there are not enough images.
    """
    images = len(labels)
    if partition["kind"] in BY_LABEL and (labels.ndim != 1 or labels.dtype.kind == "f"):
        raise SpecError(
            f"partition: {partition['kind']} goes by the labels of the training examples, and these "
            "have none: use equal, sizes, same or stream"
        )
    match partition["kind"]:
        case "dirichlet":
            return dirichlet(labels, devices, partition["alpha"], seed, least)
        case "shards":
            return shards(labels, devices, partition["per_worker"], seed)
        case "same" | "stream":
            return same(images, devices, least)
        case "sizes":
            return sizes(images, partition["weights"][:devices], seed)
    return equal(images, devices, seed)


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
    _check(images, 1, least)
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
    function does so too, with at most ``REDRAWS`` draws, because with hundreds of devices and a small
    α no draw gives every device enough. After the last draw, images of the largest part are moved,
    one by one, to the devices that have too few.

    Args:
        alpha: α > 0; the smaller, the fewer labels a device has; as α → ∞ all devices have all labels.
        least: the least number of images per device.

    Raises:
        SpecError: there are fewer images than ``devices · least``.
    """
    _check(len(labels), devices, least)
    generator = stream(seed, "partition dirichlet")
    by_label = [
        generator.permutation(np.flatnonzero(labels == label)).astype(np.int64)
        for label in np.unique(labels)
    ]
    shared: list[Indices] = []
    for _ in range(REDRAWS):
        pieces: list[list[Indices]] = [[] for _ in range(devices)]
        for of_label in by_label:
            drawn = generator.dirichlet(np.full(devices, alpha))
            ends = (np.cumsum(drawn)[:-1] * len(of_label)).astype(int)
            for own, piece in zip(pieces, np.split(of_label, ends), strict=True):
                own.append(piece)
        shared = [np.concatenate(own) for own in pieces]
        if min(map(len, shared)) >= least:
            return shared
    return _topped_up([generator.permutation(part) for part in shared], least)


def _topped_up(shared: Sequence[Indices], least: int) -> list[Indices]:
    """Move the last images of the largest parts to the parts with fewer than ``least``."""
    found = [part.tolist() for part in shared]
    largest = [(-len(part), device) for device, part in enumerate(found)]
    heapq.heapify(largest)
    for part in found:
        while len(part) < least:
            size, giver = largest[0]
            if -size != len(found[giver]):  # the heap is out of date: this part has grown
                heapq.heapreplace(largest, (-len(found[giver]), giver))
                continue
            part.append(found[giver].pop())
            heapq.heapreplace(largest, (size + 1, giver))
    return [np.array(part, np.int64) for part in found]


def _check(images: int, devices: int, each: int) -> None:
    if not 1 <= devices * each <= images:
        needs = "one" if each == 1 else f"{each}"
        raise SpecError(
            f"{images} training images cannot be split among {devices} workers: each needs {needs}; "
            "use fewer workers or more images"
        )

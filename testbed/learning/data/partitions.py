"""Partitions of the training images: who has which, by the seed.

Pure: labels in, indices out. Every partition is disjoint and leaves no image out, and each kind draws
from a random stream of its own, so that no other number of the experiment moves when it is changed.
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

REDRAWS = 10
"""How often Dirichlet shares are drawn at most, until every worker has enough images."""


def parts(
    partition: Mapping[str, Any],
    labels: npt.NDArray[np.integer[Any]],
    devices: int,
    seed: int,
    least: int = 1,
) -> list[Indices]:
    """Share the training images out.

    Args:
        partition: of ``Settings``: ``kind``, and its options.
        labels: of the training images, (N,).
        devices: how many have a part.
        seed: the experiment's.
        least: images that a device needs, a mini-batch; only ``dirichlet`` sees to it.

    Returns:
        ``devices`` arrays of indices, int64, together 0 to N - 1.

    Raises:
        SpecError: there are not enough images.
    """
    images = len(labels)
    match partition["kind"]:
        case "dirichlet":
            return dirichlet(labels, devices, partition["alpha"], seed, least)
        case "shards":
            return shards(labels, devices, partition["per_worker"], seed)
        case "sizes":
            return sizes(images, partition["weights"][:devices], seed)
    return equal(images, devices, seed)


def equal(images: int, devices: int, seed: int) -> list[Indices]:
    """Random parts whose lengths differ by 1 at most.

    Raises:
        SpecError: more devices than images.
    """
    _check(images, devices, 1)
    order = stream(seed, "shards").permutation(images).astype(np.int64)
    return np.array_split(order, devices)


def sizes(images: int, weights: Sequence[float], seed: int) -> list[Indices]:
    """Random parts in proportion to weights above 0, by largest remainder.

    Raises:
        SpecError: more devices than images.
    """
    _check(images, len(weights), 1)
    total = sum(weights)
    counts = apportion([weight / total for weight in weights], images)
    order = stream(seed, "partition sizes").permutation(images).astype(np.int64)
    return np.split(order, np.cumsum(counts)[:-1])


def shards(
    labels: npt.NDArray[np.integer[Any]], devices: int, per_worker: int, seed: int
) -> list[Indices]:
    """Shards of labels, as McMahan et al. 2017 (section 3) have them for MNIST.

    The images are sorted by label and cut into ``devices · per_worker`` shards whose lengths differ by
    1 at most, of which each device is dealt ``per_worker``: with 2 most devices have two labels.

    Raises:
        SpecError: more shards than images.
    """
    count = devices * per_worker
    _check(len(labels), devices, per_worker)
    cut = np.array_split(np.argsort(labels, kind="stable").astype(np.int64), count)
    dealt = stream(seed, "partition shards").permutation(count).reshape(devices, per_worker)
    return [np.concatenate([cut[shard] for shard in of_device]) for of_device in dealt]


def dirichlet(
    labels: npt.NDArray[np.integer[Any]], devices: int, alpha: float, seed: int, least: int
) -> list[Indices]:
    """Each label's images shared out by a draw of Dirichlet(α) over the devices.

    Hsu et al. 2019 draw each device's labels by Dirichlet(α) and give all devices the same number of
    images; drawn over the devices, label by label, is the form of Yurochkin et al. 2019 and of
    NIID-Bench (Li et al. 2022), whose code draws again while a device has too few images. So does
    this, ``REDRAWS`` draws at most: with hundreds of devices and a small α no draw gives everybody
    enough. Of the last draw, who is short is then given images of whoever has most, one by one.

    Args:
        alpha: α > 0; the smaller, the fewer labels a device has; without end, all have all.
        least: images that every device ends with at least.

    Raises:
        SpecError: fewer images than that needs.
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
    """Move the last images of the largest parts to those that are short of ``least``."""
    found = [part.tolist() for part in shared]
    largest = [(-len(part), device) for device, part in enumerate(found)]
    heapq.heapify(largest)
    for part in found:
        while len(part) < least:
            size, giver = largest[0]
            if -size != len(found[giver]):  # it was short itself, and is not any more
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

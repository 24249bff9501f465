"""Partitions that give each device some classes or a mixture of its own: pathological, inner Dirichlet.

Both follow ``flwr_datasets``: every device's classes, or its mixture, are drawn first, and images after
that. Images that no device asks for are left out.
"""

from bisect import bisect
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.errors import SpecError
from testbed.random_streams import stream

Indices: TypeAlias = npt.NDArray[np.int64]
Assignment: TypeAlias = Literal["random", "deterministic", "first-deterministic"]
"""How devices get their classes, by the names of ``flwr_datasets``."""


def pathological(
    labels: npt.NDArray[np.integer[Any]],
    devices: int,
    classes: int,
    assignment: Assignment,
    seed: int,
) -> list[Indices]:
    """Return parts of exactly ``classes`` labels each, as NIID-Bench (Li et al. 2022) has them.

    A label's images are shared out evenly among the devices that have it.

    Args:
        assignment: ``random``: each device draws its classes; ``deterministic``: device i has the
            classes from i on, in a circle; ``first-deterministic``: i modulo their number, and drawn
            ones besides, as in the paper.

    Raises:
        SpecError: there are fewer classes, or a class has fewer images than devices.
    """
    known = np.unique(labels)
    count = len(known)
    if classes > count:
        raise SpecError(
            f"partition.classes_per_worker: {classes} for each worker, and the training images have "
            f"{count}: use {count} at most"
        )
    generator = stream(seed, "partition pathological")
    order = [generator.permutation(np.flatnonzero(labels == label)) for label in known]
    has = np.zeros((devices, count), bool)
    own: npt.NDArray[np.integer[Any]]
    for device in range(devices):
        match assignment:
            case "deterministic":
                own = (device + np.arange(classes)) % count
            case "random":
                own = generator.choice(count, classes, replace=False)
            case "first-deterministic":
                others = np.delete(np.arange(count), device % count)
                drawn = generator.choice(others, classes - 1, replace=False)
                own = np.append(drawn, device % count)
        has[device, own] = True
    wanted = has.sum(axis=0)
    for place, images in enumerate(order):
        if len(images) < wanted[place]:
            raise SpecError(
                f"partition: {wanted[place]} workers have the class {known[place]}, of which there are "
                f"{len(images)} training images: use fewer workers, a smaller classes_per_worker, or "
                "class_assignment deterministic"
            )
    found: list[list[Indices]] = [[] for _ in range(devices)]
    for place in np.flatnonzero(wanted).tolist():
        owners = np.flatnonzero(has[:, place])
        for owner, piece in zip(
            owners.tolist(), np.array_split(order[place], len(owners)), strict=True
        ):
            found[owner].append(piece)
    return [np.concatenate(pieces).astype(np.int64) for pieces in found]


def inner_dirichlet(
    labels: npt.NDArray[np.integer[Any]], sizes: Sequence[int], alpha: float, seed: int
) -> list[Indices]:
    """Return parts of given sizes, whose mixtures of labels are draws of Dirichlet(α) over the labels.

    As in FedDyn (Acar et al. 2021): images are dealt one by one, each to a device that still wants
    some, and have a label that is drawn by the device's mixture. When a label is used up, mixtures
    go on among the others.

    Args:
        alpha: α > 0; as α → 0 each device has one label as long as it lasts, as α → ∞ all alike.

    Raises:
        SpecError: the sizes add up to more than all images.
    """
    if sum(sizes) > len(labels):
        raise SpecError(
            f"partition.sizes: they add up to {sum(sizes):,}, and there are {len(labels):,} training "
            "images: use smaller ones"
        )
    generator = stream(seed, "partition inner-dirichlet")
    known = np.unique(labels)
    left = [
        generator.permutation(np.flatnonzero(labels == label)).astype(np.int64).tolist()
        for label in known
    ]
    # Logarithms of Gamma(α) draws: the draws themselves are all 0 where α is small. By
    # Gamma(α) = Gamma(α + 1) · U^(1/α) (Marsaglia and Tsang 2000).
    shape = len(sizes), len(known)
    mixtures = np.log(generator.gamma(alpha + 1, size=shape))
    mixtures += np.log1p(-generator.random(shape)) / alpha
    turns = generator.permutation(np.repeat(np.arange(len(sizes)), sizes)).tolist()
    chances = generator.random(len(turns)).tolist()
    found: list[list[int]] = [[] for _ in sizes]
    upto = _cumulative(mixtures)
    rows: dict[int, list[float]] = {}  # few devices draw between the ends of two labels
    for device, chance in zip(turns, chances, strict=True):
        if device not in rows:
            rows[device] = upto[device].tolist()
        label = bisect(rows[device], chance)
        found[device].append(left[label].pop())
        if not left[label]:
            mixtures[:, label] = -np.inf
            upto = _cumulative(mixtures)
            rows.clear()
    return [np.array(one, np.int64) for one in found]


def _cumulative(mixtures: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return each device's chances, summed up over the labels; infinite from the last one on."""
    highest: npt.NDArray[np.float64] = mixtures.max(axis=1, keepdims=True)
    if not np.isfinite(highest).all():
        return highest  # no label is left, and no image is wanted
    sums: npt.NDArray[np.float64] = np.cumsum(np.exp(mixtures - highest), axis=1)
    sums /= sums[:, -1:]
    last = int(np.flatnonzero(np.isfinite(mixtures[0]))[-1])
    sums[:, last:] = np.inf
    return sums

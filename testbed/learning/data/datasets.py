"""Datasets in the form that the models take.

Every dataset is images of one shape with values from 0 to 255, split into training and test images by
its publisher (``catalogue``). The experiment's seed chooses only the training images that are used, and
the device that gets each (``partitions``). Arrays are made once, before the devices are forked, and
shared by all devices.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError
from testbed.learning.data import catalogue, digits
from testbed.learning.data.catalogue import DIGITS, inputs_of
from testbed.learning.inputs import GREY_28, Inputs
from testbed.streams import stream

Scaling: TypeAlias = Literal["standardised", "unit", "per-channel"]

Statistics: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""The mean and the standard deviation of each channel."""
_CHUNK = 1024
"""Images scaled at a time, so that the float64 values of all images are never in memory."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images and labels; all arrays contiguous.

    Attributes:
        name: the name in the experiment file.
        train_images: float32, (N, channels, height, width).
        train_labels: int64, (N,), from 0.
        test_images: float32, (M, channels, height, width).
        test_labels: int64, (M,).
        inputs: the images' shape and the number of classes.
    """

    name: str
    train_images: npt.NDArray[np.float32]
    train_labels: npt.NDArray[np.int64]
    test_images: npt.NDArray[np.float32]
    test_labels: npt.NDArray[np.int64]
    inputs: Inputs = GREY_28

    def take(self, train: npt.NDArray[np.int64], *, test: bool) -> "Dataset":
        """Return the dataset itself, which is loaded already; sharing it takes no memory."""
        return self


def load(
    name_or_directory: str | Path,
    scaling: Scaling = "standardised",
    train_images: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Load a dataset.

    Args:
        name_or_directory: a name of the catalogue, or a path.
        scaling: ``"standardised"``: each image by itself, (x - mean) / max(std, 1/√D) with x in
            [0, 1] and std over the D values of the image (the AdaComp authors', for whose images
            1/√D is 1/28); ``"unit"``: x; ``"per-channel"``: (x - mean) / std, with the mean and the std
            of each channel over all training images that are used.
        train_images: how many training images to use, the first of a shuffle by the seed; None
            uses all, in the order of the file.
        seed: the experiment's seed.

    Raises:
        DataError: the files are missing, incomplete or corrupt, or hold too few training images.
        SpecError: there is no such dataset.
    """
    return contents(name_or_directory, scaling, train_images, seed).whole()


def contents(
    name_or_directory: str | Path,
    scaling: Scaling = "standardised",
    train_images: int | None = None,
    seed: int = 0,
) -> "Contents":
    """Read a dataset without scaling it; arguments and errors are those of ``load``."""
    name = str(name_or_directory)
    raw = catalogue.read(name, lambda labels: _chosen(name, len(labels), train_images, seed))
    train, test = (raw.train_images, raw.train_labels), (raw.test_images, raw.test_labels)
    return Contents(name, scaling, train, test, inputs_of(name))


def _chosen(name: str, images: int, wanted: int | None, seed: int) -> npt.NDArray[np.int64] | None:
    if wanted is None:
        return None
    if not 1 <= wanted <= images:
        raise DataError(f"dataset {name} has {images} training images, {wanted} were asked for")
    return stream(seed, "train-images").permutation(images)[:wanted]


@dataclass(slots=True)
class Contents:
    """A dataset as read from its files: bytes, a quarter of the memory of scaled images.

    Attributes:
        name: the name in the experiment file.
        scaling: the scaling to apply.
        train, test: images, uint8 (N, channels, height, width), and labels, uint8 (N,).
        inputs: the images' shape and the number of classes.
    """

    name: str
    scaling: Scaling
    train: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
    test: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
    inputs: Inputs = GREY_28

    def whole(self) -> Dataset:
        """Return the whole dataset, scaled."""
        return self.part(None, test=True)

    def part(self, train: npt.NDArray[np.int64] | None, *, test: bool) -> Dataset:
        """Return the images that one role needs, scaled, at their indices in the whole dataset.

        Args:
            train: indices of the training images that are needed; None for all.
            test: True if the test images are needed.

        Returns:
            The dataset; images that are not needed are zeros, which take neither time nor memory.
        """
        images, labels = self.train
        statistics = channel_statistics(images) if self.scaling == "per-channel" else None
        return Dataset(
            self.name,
            _scaled(images, self.scaling, statistics, train),
            labels.astype(np.int64),
            _scaled(self.test[0], self.scaling, statistics, None if test else np.arange(0)),
            self.test[1].astype(np.int64),
            self.inputs,
        )

    def take(self, train: npt.NDArray[np.int64], *, test: bool) -> Dataset:
        """Return ``part`` and free the arrays as read, for a process that needs no other part."""
        taken = self.part(train, test=test)
        nothing = (np.empty((0, *self.inputs.image), np.uint8), np.empty(0, np.uint8))
        self.train = self.test = nothing
        return taken


def _scaled(
    images: npt.NDArray[np.uint8],
    scaling: Scaling,
    statistics: Statistics | None,
    needed: npt.NDArray[np.int64] | None,
) -> npt.NDArray[np.float32]:
    if needed is None:
        return scale(images, scaling, statistics)
    # The kernel allocates a zeroed page only when something is written to it.
    result = np.zeros(images.shape, np.float32)
    result[needed] = scale(images[needed], scaling, statistics)
    return result


def check(name: str, train_images: int | None) -> int:
    """Check that a dataset can be loaded; return how many training images will be used.

    Raises:
        DataError: as ``load``.
        SpecError: as ``load``.
    """
    # The bundled digits are not read here, because enlarging them would import torch.
    size = digits.TRAINING_IMAGES if name == DIGITS else len(catalogue.training_labels(name))
    if train_images is not None and train_images > size:
        raise DataError(
            f"dataset {name} has {size} training images, {train_images} were asked for "
            "(dataset.train_images)"
        )
    return size if train_images is None else train_images


def training_labels(name: str, train_images: int | None, seed: int) -> npt.NDArray[np.uint8]:
    """Return the labels of the training images that ``contents`` will use, without torch.

    Raises:
        DataError: as ``load``.
        SpecError: as ``load``.
    """
    labels = catalogue.training_labels(name)
    chosen = _chosen(name, len(labels), train_images, seed)
    return labels if chosen is None else labels[chosen]


def channel_statistics(images: npt.NDArray[np.uint8]) -> Statistics:
    """Return the mean and the standard deviation of each channel, from 0 to 255, over all images.

    The sums are of integers, and exact.
    """
    count = images[:, 0].size
    total, squares = np.zeros(images.shape[1], np.int64), np.zeros(images.shape[1], np.int64)
    for start in range(0, len(images), _CHUNK):
        chunk = images[start : start + _CHUNK].astype(np.int64)
        total += chunk.sum(axis=(0, 2, 3))
        squares += (chunk**2).sum(axis=(0, 2, 3))
    deviation = np.sqrt(squares / count - (total / count) ** 2)
    return total / count, np.maximum(deviation, 1.0)


def scale(
    images: npt.NDArray[np.uint8], scaling: Scaling, statistics: Statistics | None = None
) -> npt.NDArray[np.float32]:
    """Scale images, uint8 (N, channels, height, width), to float32 of the same shape.

    An image's mean and variance come from integer sums, which are exact, and the rest is float64
    rounded once to float32: the same bits on every machine.

    Args:
        statistics: those of the channels, for ``"per-channel"``.
    """
    values = math.prod(images.shape[1:])
    result = np.empty(images.shape, dtype=np.float32)
    for start in range(0, len(images), _CHUNK):
        chunk = images[start : start + _CHUNK].reshape(-1, values).astype(np.int64)
        if scaling == "unit":
            scaled = chunk / 255
        elif scaling == "per-channel":
            assert statistics is not None
            mean, deviation = (np.repeat(one, values // len(one)) for one in statistics)
            scaled = (chunk - mean) / deviation
        else:
            total = chunk.sum(axis=1, keepdims=True)
            spread = values * (chunk**2).sum(axis=1, keepdims=True) - total**2  # (D · 255 · std)²
            deviation = np.maximum(np.sqrt(spread) / values, 255 / math.sqrt(values))
            scaled = (chunk - total / values) / deviation
        result[start : start + _CHUNK] = scaled.reshape(-1, *images.shape[1:])
    return result

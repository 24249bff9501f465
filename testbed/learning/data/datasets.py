"""Datasets in the form that the models take.

Every dataset is examples of one shape, split into training and test examples by its publisher
(``catalogue``); most are images with values from 0 to 255, which are scaled. The experiment's seed
chooses only the training images that are used, and the device that gets each (``partitions``). Arrays
are made once, before the devices are forked, and shared by all devices.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError
from testbed.learning.data import catalogue, digits
from testbed.learning.data.catalogue import DIGITS, inputs_of
from testbed.learning.data.choice import Named, as_choice
from testbed.learning.data.raw import Array
from testbed.learning.inputs import GREY_28, Inputs
from testbed.random_streams import stream

Scaling: TypeAlias = Literal["standardised", "unit", "per-channel"]

Statistics: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""The mean and the standard deviation of each channel."""
_CHUNK = 1024
"""Images scaled at a time, so that the float64 values of all images are never in memory."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images, or other examples, and labels; all arrays contiguous.

    Attributes:
        name: the name in the experiment file.
        train_images: float32, of images (N, channels, height, width); of tokens int64, (N, positions).
        train_labels: int64, (N,), from 0; of tokens (N, positions); of other targets float32, (N, …).
        test_images, test_labels: likewise, of M examples.
        inputs: the examples' shape and the number of classes.
    """

    name: str
    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array
    inputs: Inputs = GREY_28

    def take(self, train: npt.NDArray[np.int64], *, test: bool) -> "Dataset":
        """Return the dataset itself, which is loaded already; sharing it takes no memory."""
        return self


def load(
    named: Named,
    scaling: Scaling | None = "standardised",
    train_images: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Load a dataset.

    Args:
        named: a name of the catalogue, a path, or a function with its arguments.
        scaling: ``"standardised"``: each image by itself, (x - mean) / max(std, 1/√D) with x in
            [0, 1] and std over the D values of the image (the AdaComp authors', for whose images
            1/√D is 1/28); ``"unit"``: x; ``"per-channel"``: (x - mean) / std, with the mean and the std
            of each channel over all training images that are used. None: the first, of bytes.
        train_images: how many training images to use, the first of a shuffle by the seed; None
            uses all, in the order of the file.
        seed: the experiment's seed.

    Raises:
        DataError: the files are missing, incomplete or corrupt, or hold too few training images.
        SpecError: there is no such dataset.
    """
    return contents(named, scaling, train_images, seed).whole()


def contents(
    named: Named,
    scaling: Scaling | None = "standardised",
    train_images: int | None = None,
    seed: int = 0,
) -> "RawDataset":
    """Read a dataset without scaling it; arguments and errors are those of ``load``."""
    name = str(named)
    raw = catalogue.read(named, lambda labels: _chosen(name, len(labels), train_images, seed))
    train, test = (raw.train_images, raw.train_labels), (raw.test_images, raw.test_labels)
    # The chosen images may not show all classes.
    inputs = raw.inputs if raw.classes is not None else inputs_of(named)
    return RawDataset(name, scaling or "standardised", train, test, inputs)


def _chosen(name: str, images: int, wanted: int | None, seed: int) -> npt.NDArray[np.int64] | None:
    if wanted is None:
        return None
    if not 1 <= wanted <= images:
        raise DataError(f"dataset {name} has {images} training images, {wanted} were asked for")
    return stream(seed, "train-images").permutation(images)[:wanted]


@dataclass(slots=True)
class RawDataset:
    """A dataset as read from its files: bytes, a quarter of the memory of scaled images.

    Attributes:
        name: the name in the experiment file.
        train, test: images and labels, as ``Raw`` has them.
        inputs: the examples' shape and the number of classes.
    """

    name: str
    scaling: Scaling
    train: tuple[Array, Array]
    test: tuple[Array, Array]
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
        if images.dtype != np.uint8:  # shared, and never written to
            return Dataset(self.name, images, labels, *self.test, self.inputs)
        statistics = channel_statistics(images) if self.scaling == "per-channel" else None
        return Dataset(
            self.name,
            _scaled(images, self.scaling, statistics, train),
            _targets(labels),
            _scaled(self.test[0], self.scaling, statistics, None if test else np.arange(0)),
            _targets(self.test[1]),
            self.inputs,
        )

    def take(self, train: npt.NDArray[np.int64], *, test: bool) -> Dataset:
        """Return ``part`` and free the arrays as read, for a process that needs no other part."""
        taken = self.part(train, test=test)
        nothing = (np.empty((0, *self.inputs.image), np.uint8), np.empty(0, np.uint8))
        self.train = self.test = nothing
        return taken


def _targets(labels: Array) -> Array:
    return labels if labels.dtype.kind == "f" else labels.astype(np.int64)


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


def check(named: Named, train_images: int | None, scaling: Scaling | None = None) -> int:
    """Check that a dataset can be loaded; return how many training images will be used.

    Args:
        scaling: what is to be scaled must be bytes, and in channels for ``"per-channel"``.

    Raises:
        DataError: as ``load``.
        SpecError: as ``load``.
    """
    name, facts = str(named), catalogue.facts_of(as_choice(named))
    if facts is not None and scaling is not None:
        if not facts.is_scaled:
            raise DataError(
                f"dataset {name}: its examples are no bytes, and are not scaled: take "
                "dataset.scaling out"
            )
        if scaling == "per-channel" and not facts.inputs.are_images:
            raise DataError(f"dataset {name}: its examples have no channels: use another scaling")
    # The bundled digits are not read here, because enlarging them would import torch.
    size = digits.TRAINING_IMAGES if name == DIGITS else len(catalogue.training_labels(named))
    if train_images is not None and train_images > size:
        raise DataError(
            f"dataset {name} has {size} training images, {train_images} were asked for "
            "(dataset.train_images)"
        )
    return size if train_images is None else train_images


def training_labels(named: Named, train_images: int | None, seed: int) -> Array:
    """Return the labels of the training images that ``contents`` will use, without torch.

    Images are not read where labels have a file of their own: ``check`` checks them.

    Raises:
        DataError: as ``load``.
        SpecError: as ``load``.
    """
    labels = catalogue.training_labels(named, alone=True)
    chosen = _chosen(str(named), len(labels), train_images, seed)
    return labels if chosen is None else labels[chosen]


def training_column(named: Named, train_images: int | None, seed: int, column: str) -> list[str]:
    """Return the values of a column, of the training images that ``contents`` will use.

    Raises:
        DataError: as ``load``; or there is no such column.
        SpecError: as ``load``.
    """
    values = catalogue.training_column(named, column)
    chosen = _chosen(str(named), len(values), train_images, seed)
    return values if chosen is None else [values[i] for i in chosen.tolist()]


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

"""Datasets in the form that the models take.

Every dataset is images of 28 × 28 grey levels, 0 to 255, in ten classes, split into training and test
images by its publisher. The experiment's seed chooses only the training images that are used, and the
device that gets each (``partitions``). Arrays are made once, before the devices are forked, and shared
by all devices.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError, SpecError
from testbed.learning.data import digits, sources
from testbed.learning.inputs import GREY_28, Inputs
from testbed.streams import stream

Scaling: TypeAlias = Literal["standardised", "unit"]

DIGITS = "digits"
_CHUNK = 1024
"""Images scaled at a time, so that the float64 values of all images are never in memory."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images and labels; all arrays contiguous.

    Attributes:
        name: the name in the experiment file.
        train_images: float32, (N, 1, 28, 28).
        train_labels: int64, (N,), 0 to 9.
        test_images: float32, (M, 1, 28, 28).
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


def names() -> tuple[str, ...]:
    """Return the names of the known datasets; a directory of idx files is a dataset too."""
    return (DIGITS, *sources.SOURCES)


def inputs_of(name: str) -> Inputs:
    """Return the images and classes of a dataset, without reading all of it."""
    return GREY_28


def load(
    name_or_directory: str | Path,
    scaling: Scaling = "standardised",
    train_images: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Load a dataset.

    Args:
        name_or_directory: ``digits``, ``mnist``, ``fashion-mnist``, or a directory of idx files
            with MNIST's file names.
        scaling: ``"standardised"``: each image by itself, (x - mean) / max(std, 1/28) with x in
            [0, 1] and std over the 784 pixels of the image (the AdaComp authors'); ``"unit"``: x.
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
    x_train, y_train, x_test, y_test = _contents(name)
    if train_images is not None:
        chosen = _chosen(name, len(x_train), train_images, seed)
        x_train, y_train = x_train[chosen], y_train[chosen]
    return Contents(name, scaling, (x_train, y_train), (x_test, y_test))


def _chosen(name: str, images: int, wanted: int, seed: int) -> npt.NDArray[np.int64]:
    if not 1 <= wanted <= images:
        raise DataError(f"dataset {name} has {images} training images, {wanted} were asked for")
    return stream(seed, "train-images").permutation(images)[:wanted]


@dataclass(slots=True)
class Contents:
    """A dataset as read from its files: grey levels, a quarter of the memory of scaled images.

    Attributes:
        name: the name in the experiment file.
        scaling: the scaling to apply.
        train, test: images, uint8 (N, 28, 28), and labels, uint8 (N,).
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
        return Dataset(
            self.name,
            _scaled(images, self.scaling, train),
            labels.astype(np.int64),
            _scaled(self.test[0], self.scaling, None if test else np.arange(0)),
            self.test[1].astype(np.int64),
        )

    def take(self, train: npt.NDArray[np.int64], *, test: bool) -> Dataset:
        """Return ``part`` and free the arrays as read, for a process that needs no other part."""
        taken = self.part(train, test=test)
        nothing = (np.empty((0, 28, 28), np.uint8), np.empty(0, np.uint8))
        self.train = self.test = nothing
        return taken


def _scaled(
    images: npt.NDArray[np.uint8], scaling: Scaling, needed: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.float32]:
    if needed is None:
        return scale(images, scaling)
    # The kernel allocates a zeroed page only when something is written to it.
    result = np.zeros((len(images), 1, 28, 28), np.float32)
    result[needed] = scale(images[needed], scaling)
    return result


def check(name: str, train_images: int | None) -> int:
    """Check that a dataset can be loaded; return how many training images will be used.

    Raises:
        DataError: as ``load``.
        SpecError: as ``load``.
    """
    # The bundled digits are not read here, because enlarging them would import torch.
    size = digits.TRAINING_IMAGES if name == DIGITS else len(_contents(name)[0])
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
    labels = digits.training_labels() if name == DIGITS else _contents(name)[1]
    if train_images is None:
        return labels
    chosen: npt.NDArray[np.uint8] = labels[_chosen(name, len(labels), train_images, seed)]
    return chosen


def _contents(name: str) -> tuple[npt.NDArray[np.uint8], ...]:
    if name == DIGITS:
        return digits.read()
    if name in sources.SOURCES:
        return sources.read(sources.locate(name), sources.SOURCES[name].md5)
    if Path(name).is_dir():
        return sources.read(sources.files_in(Path(name)), None)
    raise SpecError(
        f"there is no dataset {name!r}: it is neither one of {', '.join(names())} nor a directory"
    )


def scale(images: npt.NDArray[np.uint8], scaling: Scaling) -> npt.NDArray[np.float32]:
    """Scale grey levels (N, 28, 28) to float32 (N, 1, 28, 28).

    An image's mean and variance come from integer sums, which are exact, and the rest is float64
    rounded once to float32: the same bits on every machine.
    """
    result = np.empty((len(images), 1, 28, 28), dtype=np.float32)
    for start in range(0, len(images), _CHUNK):
        chunk = images[start : start + _CHUNK].reshape(-1, 784).astype(np.int64)
        if scaling == "unit":
            scaled = chunk / 255
        else:
            total = chunk.sum(axis=1, keepdims=True)
            spread = 784 * (chunk**2).sum(axis=1, keepdims=True) - total**2  # (784 · 255 · std)²
            deviation = np.maximum(np.sqrt(spread) / 784, 255 / 28)
            scaled = (chunk - total / 784) / deviation
        result[start : start + _CHUNK] = scaled.reshape(-1, 1, 28, 28)
    return result

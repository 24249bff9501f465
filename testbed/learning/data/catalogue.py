"""The datasets: their names, where they are, and how their images and labels are read.

A dataset is one of ``NAMES``; a path: a directory of idx files, a directory or tar archive of images
in a folder for each class (``image_folders``), a file of arrays (``arrays``); or what a function
returns (``own``). Images are read as uint8.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError, SpecError
from testbed.learning.data import (
    arrays,
    decoded_images,
    digits,
    huggingface,
    image_folders,
    own,
    sources,
)
from testbed.learning.data.choice import DatasetChoice, Named, as_choice
from testbed.learning.data.cifar import CIFARS
from testbed.learning.data.raw import Array, Raw
from testbed.learning.inputs import COLOUR_32, GREY_28, Inputs

DIGITS, CIFAR10_JPEG = "digits", "cifar10-jpeg"
HUGGING_FACE = "huggingface"
"""The name of a dataset that Hugging Face's library has saved."""

_FILES = (arrays.SUFFIX, *image_folders.ARCHIVES)
"""The ends of the names of files that are datasets."""

Choice: TypeAlias = Callable[[Array], npt.NDArray[np.int64] | None]
"""Returns, from the labels of all training images, those that are used; None for all."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a dataset that a function returns, with which a run is planned.

    Attributes:
        inputs: the shape of its examples, and the number of classes.
        labels: of the training examples, (N, …).
        test: the number of test examples.
        digest: the SHA-256 of all its arrays.
        is_scaled: True if its examples are bytes.
    """

    inputs: Inputs
    labels: Array
    test: int
    digest: str
    is_scaled: bool


def names() -> tuple[str, ...]:
    """Return the names of the known datasets; a path is a dataset too."""
    return (DIGITS, *sources.SOURCES, *CIFARS, CIFAR10_JPEG)


def place_of(name: str) -> Path | None:
    """Return the directory or file that has a dataset; None if it is bundled with a library.

    Raises:
        DataError: it is not on this host, or the path is of something else.
        SpecError: there is no such dataset.
    """
    if name == DIGITS:
        return None
    if name in sources.SOURCES:
        return sources.locate(name)[0].parent
    if name in CIFARS:
        return _cifar(name)[0].parent
    if name == CIFAR10_JPEG:
        place = _jpeg()
        return place if place.is_dir() else place.parent
    path = Path(name)
    if path.is_dir() or (path.is_file() and path.name.endswith(_FILES)):
        return path
    if path.exists():  # reading a pipe or a device would never end
        raise DataError(
            f"{path} is not a dataset: a path is a directory, or a file {', '.join(_FILES)}"
        )
    raise SpecError(
        f"there is no dataset {name!r}: it is neither one of {', '.join(names())} nor a path"
    )


def facts_of(choice: DatasetChoice) -> Facts | None:
    """Return what planning needs of a dataset that a function returns; None of any other.

    Raises:
        DataError: the function fails, or does not return a dataset.
        SpecError: it cannot be imported.
    """
    if not choice.is_function:
        return None
    paths = choice.paths
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise DataError(f"dataset {choice}: there is no {missing[0]}")
    return _facts(_Call(choice), choice.function, tuple(map(_modified, paths)))


class _Call:
    """A choice as a key of a cache: its options need not be hashable."""

    def __init__(self, choice: DatasetChoice) -> None:
        self.choice = choice

    def __hash__(self) -> int:
        return hash(self.choice.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and other.choice.key == self.choice.key


@functools.lru_cache(maxsize=8)
def _facts(call: _Call, _function: Callable[..., object], _at: tuple[object, ...]) -> Facts:
    """Call the function; its arrays are not kept."""
    raw = own.read(call.choice)
    is_scaled = raw.train_images.dtype == np.uint8
    return Facts(raw.inputs, raw.train_labels, len(raw.test_labels), raw.digest, is_scaled)


def inputs_of(named: Named) -> Inputs:
    """Return the images' shape and the number of classes; of a named dataset, without reading it.

    Raises:
        DataError: it cannot be read.
        SpecError: there is no such dataset.
    """
    choice = as_choice(named)
    if (facts := facts_of(choice)) is not None:
        return facts.inputs
    name = choice.name
    if name in CIFARS:
        return CIFARS[name].inputs
    if name == CIFAR10_JPEG:
        return COLOUR_32
    if name in names() or _is_idx(Path(name)):
        return GREY_28
    place = place_of(name)
    assert place is not None
    return _inputs_at(place, _modified(place))


def _modified(path: Path) -> tuple[int, ...]:
    """Return when a file changed, or the files in a dataset's folders came and went."""
    folders = sorted(one for one in path.glob("*/*") if one.is_dir()) if path.is_dir() else []
    return tuple(one.stat().st_mtime_ns for one in (path, *sorted(path.glob("*")), *folders))


@functools.cache
def _inputs_at(path: Path, _at: tuple[int, ...]) -> Inputs:
    if path.suffix == arrays.SUFFIX:
        images, train, _, test = arrays.read(path)
        channels, height, width = images.shape[1:]
        return Inputs((channels, height, width), int(max(train.max(), test.max())) + 1)
    found = image_folders.index(path)
    first, _ = found.images(np.arange(1))
    channels, height, width = first.shape[1:]
    return Inputs((channels, height, width), len(found.classes))


def read(named: Named, choose: Choice = lambda _: None) -> Raw:
    """Read a dataset.

    Args:
        choose: the training images that are used.

    Raises:
        DataError: it is missing, incomplete or damaged; or a function returns other data than when the
            run was planned.
        SpecError: there is no such dataset.
    """
    choice = as_choice(named)
    if choice.is_function:
        return _returned(choice, choose)
    name = choice.name
    if (folders := _folders(name)) is not None:
        train, test = folders.labels()
        chosen = choose(train)
        images, test_images = decoded_images.images(folders, chosen)
        return Raw(images, train if chosen is None else train[chosen], test_images, test)
    images, train, test_images, test = _arrays(name)
    chosen = choose(train)
    if chosen is not None:
        images, train = images[chosen], train[chosen]
    return Raw(_with_channels(images), train, _with_channels(test_images), test)


def _returned(choice: DatasetChoice, choose: Choice) -> Raw:
    raw = own.read(choice)
    if choice.digest is not None and raw.digest != choice.digest:
        raise DataError(
            f"dataset {choice}: its function returns other data than when the run was planned: it must "
            "return the same each time, so seed what it draws, and do not change its files"
        )
    raw = raw._replace(classes=raw.inputs.classes)  # fewer may occur among those that are chosen
    chosen = choose(raw.train_labels)
    if chosen is None:
        return raw
    images, labels = raw.train_images[chosen], raw.train_labels[chosen]
    return raw._replace(train_images=images, train_labels=labels)


def training_labels(named: Named, *, alone: bool = False) -> Array:
    """Return the labels of all training images, without torch.

    Args:
        alone: True to read no images where labels have a file of their own.

    Raises:
        DataError, SpecError: as ``read``.
    """
    choice = as_choice(named)
    if (facts := facts_of(choice)) is not None:
        return facts.labels
    name = choice.name
    if name == DIGITS:  # enlarging them would import torch
        return digits.training_labels()
    if alone and name in sources.SOURCES:
        return sources.training_labels(name)
    if (folders := _folders(name)) is not None:
        return folders.labels()[0]
    return _arrays(name)[1]


def training_column(named: Named, column: str) -> list[str]:
    """Return the values of a column, one for each training image.

    Raises:
        DataError: the dataset has no such column, or cannot be read.
        SpecError: there is no such dataset.
    """
    choice = as_choice(named)
    found = None
    if choice.name == HUGGING_FACE:
        found = huggingface.column(column, **choice.arguments())
    elif not choice.is_function and choice.name not in names():
        place = place_of(choice.name)
        assert place is not None
        found = arrays.read_column(place, column) if place.suffix == arrays.SUFFIX else None
    if found is None:
        raise DataError(
            f"dataset {choice} has no column '{column}': columns are those of a dataset that was saved "
            f"by Hugging Face's library, and arrays train_{column} of a file {arrays.SUFFIX}; or write "
            "the owner of each training image into a file, `partition: {kind: natural, file: ...}`"
        )
    return found


def fingerprint(name: str) -> str:
    """Return a SHA-256, hexadecimal, that is the same on all hosts that have the same dataset.

    It is that of all arrays. Of folders of images it is that of the names and the sizes of the files,
    as none is decoded; of a dataset that is bundled with a library it is empty.

    Raises:
        DataError, SpecError: as ``read``.
    """
    place = place_of(name)
    return "" if place is None else _fingerprint(name, _modified(place))


@functools.lru_cache(maxsize=4)
def _fingerprint(name: str, _at: tuple[int, ...]) -> str:
    if (folders := _folders(name)) is not None:
        return folders.fingerprint
    images, train, test_images, test = _arrays(name)
    return Raw(images, train, test_images, test).digest


def counts(name: str) -> tuple[int, int]:
    """Return the numbers of training and of test images; contents are checked, as far as they can be.

    Raises:
        DataError, SpecError: as ``read``.
    """
    if (folders := _folders(name)) is not None:
        return len(folders.train), len(folders.test)
    found = _arrays(name)
    return len(found[0]), len(found[2])


def files_of(name: str) -> list[Path]:
    """Return the files of a named dataset that is on this host.

    Raises:
        DataError: it is not.
    """
    if name in sources.SOURCES:
        return sources.locate(name)
    if name in CIFARS:
        return _cifar(name)
    place = _jpeg()
    return [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]


def _arrays(name: str) -> tuple[Array, ...]:
    if name == DIGITS:
        return digits.read()
    if name in sources.SOURCES:
        return sources.read(sources.locate(name), sources.SOURCES[name].md5)
    if name in CIFARS:
        return CIFARS[name].read(_cifar(name))
    place = place_of(name)
    assert place is not None
    if place.suffix == arrays.SUFFIX:
        return arrays.read(place)
    return sources.read(sources.files_in(place), None)


def _folders(name: str) -> image_folders.ImageFolders | None:
    """Return a dataset of image files; None if it is none."""
    path = Path(name)
    if name == CIFAR10_JPEG:
        path = _jpeg()
    elif name in names() or not (_is_archive(path) or (path.is_dir() and not _is_idx(path))):
        return None
    return _index(path, _modified(path))


@functools.lru_cache(maxsize=4)
def _index(path: Path, _at: tuple[int, ...]) -> image_folders.ImageFolders:
    return image_folders.index(path)


def _is_archive(path: Path) -> bool:
    return path.is_file() and path.name.endswith(image_folders.ARCHIVES)


def _is_idx(path: Path) -> bool:
    """Return True for a directory that is not one of image files."""
    return path.is_dir() and not (path / image_folders.TRAIN).is_dir()


def _with_channels(images: Array) -> Array:
    return images[:, None] if images.ndim == 3 else images


def _cifar(name: str) -> list[Path]:
    places = sources.places(name)
    for place in places:
        if (found := CIFARS[name].files_in(place)) is not None:
            return found
    raise DataError(
        f"dataset {name} is not in {', '.join(map(str, places))}: run `testbed data fetch {name}`, or "
        "set TESTBED_DATA to the directory that holds it"
    )


def _jpeg() -> Path:
    """Return the directory, or the archive, of CIFAR-10's images as JPEG."""
    places = [place for place in sources.places(CIFAR10_JPEG) if place.name == CIFAR10_JPEG]
    for place in places:
        # Not Path.is_dir, which raises where this user may not look.
        if os.path.isdir(place / image_folders.TRAIN):  # noqa: PTH112
            return place
        archives = [path for path in sorted(place.glob("*")) if _is_archive(path)]
        if archives:
            return archives[0]
    raise DataError(
        f"dataset {CIFAR10_JPEG} is not in {', '.join(map(str, places))}: it is CIFAR-10 re-encoded as "
        "JPEG, which nobody publishes; set TESTBED_DATA to the directory that holds it, or use "
        "cifar10"
    )

"""The files of a dataset: their names, the places to look for them, and their checksums.

A dataset of idx files is four files with MNIST's file names, with or without ``.gz``. Known datasets
are looked for in ``$TESTBED_DATA/<name>``, in ``$TESTBED_DATA`` itself and in the user's cache, in
this order, and checked against the MD5 of their unpacked contents (gzip headers vary).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError
from testbed.learning.data import idx

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""Training images and labels, test images and labels."""


@dataclass(frozen=True, slots=True)
class Source:
    """A public dataset.

    Attributes:
        md5: checksums of the unpacked contents, in the order of ``FILES``.
        mirrors: addresses to which ``<file>.gz`` is appended.
    """

    md5: tuple[str, str, str, str]
    mirrors: tuple[str, ...]


SOURCES: dict[str, Source] = {
    "mnist": Source(
        md5=(
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "fashion-mnist": Source(
        md5=(
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
        mirrors=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
    ),
}


def cache(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of a dataset in the user's cache; it need not exist."""
    base = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification says that relative paths are ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "testbed" / name


def places(name: str, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the directories in which a known dataset is looked for, in order."""
    given = environment.get("TESTBED_DATA")
    own = [Path(given) / name, Path(given)] if given else []
    return [*own, cache(name, environment)]


def locate(name: str, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the four files of a known dataset, from the first directory that has them.

    ``$TESTBED_DATA`` itself counts only if its files are this dataset's: it may hold another dataset.

    Raises:
        DataError: no directory has all four files.
    """
    looked = []
    for place in places(name, environment):
        found = [path for file in FILES if (path := _present(place, file))]
        if len(found) == len(FILES) and (place.name == name or _is(name, found[-1])):
            return found
        incomplete = 0 < len(found) < len(FILES)
        looked.append(f"{place} ({len(found)} of 4 files)" if incomplete else str(place))
    raise DataError(
        f"dataset {name} is not in {', '.join(looked)}: run `testbed data fetch {name}`, "
        "or set TESTBED_DATA to the directory that holds it"
    )


def files_in(directory: Path) -> list[Path]:
    """Return the four files of a dataset in a directory that the user names.

    Raises:
        DataError: a file is missing.
    """
    found = [(file, _present(directory, file)) for file in FILES]
    if missing := [file for file, path in found if path is None]:
        raise DataError(
            f"{directory} is not a dataset: {', '.join(missing)} (.gz or not) not there"
        )
    return [path for _, path in found if path is not None]


def read(paths: Sequence[Path], md5: Sequence[str] | None) -> tuple[npt.NDArray[np.uint8], ...]:
    """Read and check a dataset's four files.

    Args:
        paths: in the order of ``FILES``.
        md5: checksums of their contents, or None if unknown.

    Returns:
        Training images (N, 28, 28), their labels (N,), test images, their labels; all uint8.

    Raises:
        DataError: a file is damaged or has another checksum, or images and labels do not match.
    """
    contents = [_values(path, i, md5) for i, path in enumerate(paths)]
    for images, labels in ((0, 1), (2, 3)):
        _check(paths[images], contents[images], paths[labels], contents[labels])
    return tuple(contents)


def training_labels(name: str) -> npt.NDArray[np.uint8]:
    """Read and check the labels of a known dataset's training images, and no images.

    Raises:
        DataError: as ``locate`` and ``read``.
    """
    return _values(locate(name)[1], 1, SOURCES[name].md5)


def _values(path: Path, place: int, md5: Sequence[str] | None) -> npt.NDArray[np.uint8]:
    """Read the file at a place of ``FILES``."""
    file = idx.read(path, dimensions=1 if place % 2 else 3)
    if md5 is not None and file.md5 != md5[place]:
        raise DataError(
            f"{path} is not the published file: the MD5 of its contents is {file.md5}, not "
            f"{md5[place]}; remove it and fetch it again"
        )
    return file.values


def _check(
    images_path: Path,
    images: npt.NDArray[np.uint8],
    labels_path: Path,
    labels: npt.NDArray[np.uint8],
) -> None:
    if images.shape[1:] != (28, 28):
        raise DataError(
            f"{images_path} holds images of {images.shape[1]} × {images.shape[2]}; the models take "
            "28 × 28"
        )
    if not len(images):
        raise DataError(f"{images_path} holds no image")
    if len(images) != len(labels):
        raise DataError(
            f"{images_path} holds {len(images)} images but {labels_path} {len(labels)} labels"
        )
    if labels.max() > 9:
        raise DataError(
            f"{labels_path} holds the label {labels.max()} at byte {8 + int(labels.argmax())}; the "
            "models have classes 0 to 9"
        )


def _present(place: Path, file: str) -> Path | None:
    candidates = (place / file, place / f"{file}.gz")
    # Not Path.is_file, which raises where this user may not look.
    return next((path for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113


def _is(name: str, test_labels: Path) -> bool:
    """Return True if a file of test labels, the smallest of the four, is this dataset's."""
    try:
        return idx.read(test_labels, 1).md5 == SOURCES[name].md5[3]
    except DataError:
        return True  # it must be found, so that the damage is reported

"""Datasets of image files in a folder for each class, or in a tar archive of such folders.

``train/<class>/<image>`` and ``test/<class>/<image>``, or ``val`` where there is no ``test``, as in
ImageNet; the classes are the folders, by name.
All images have one size, and are all grey or else all read as RGB. They are in one fixed random
order, because evaluations may take the first test images, and those of a folder are all of one class.
Pillow decodes them (``image_files``).
"""

import hashlib
import itertools
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Protocol

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError
from testbed.learning.data import image_files
from testbed.learning.data.raw import Array
from testbed.random_streams import stream

ARCHIVES = (".tar", ".tar.gz", ".tgz")
_COMMON = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_PORTABLE = (".ppm", ".pgm", ".pbm", ".pnm")
SUFFIXES = frozenset((*_COMMON, *_PORTABLE))
UNREAD = frozenset(
    (".avif", ".exr", ".heic", ".heif", ".ico", ".jfif", ".jp2", ".jxl", ".npy", ".svg", ".tga")
)
"""Suffixes of images that are not read; a dataset that has one would lack those images silently."""
_LARGEST = 1 << 28
"""The most bytes of an image file: as many as the pixels of the largest in RGBA."""
TRAIN, TEST, VALIDATION = "train", "test", "val"
_MOST_CLASSES = 1 << 16
_UNREADABLE = (OSError, EOFError, ValueError, tarfile.TarError, zlib.error, lzma.LZMAError)
"""The errors that reading an archive can raise, whatever its bytes are."""


class _Files(Protocol):
    """The image files of a dataset."""

    def names(self) -> list[PurePosixPath]:
        """Return the paths of all files."""

    def contents(self, wanted: Sequence[PurePosixPath]) -> Iterator[tuple[PurePosixPath, bytes]]:
        """Yield the files that are wanted, in any order."""


@dataclass(frozen=True, slots=True)
class ImageFolders:
    """A dataset of image files.

    Attributes:
        path: the directory that has ``train`` and ``test``, or the archive.
        classes: the names of the classes, by their labels.
        train, test: the images of each part, in order, with their labels.
    """

    path: Path
    classes: tuple[str, ...]
    train: tuple[tuple[PurePosixPath, int], ...]
    test: tuple[tuple[PurePosixPath, int], ...]

    def labels(self) -> tuple[Array, Array]:
        """Return the labels of the training and of the test images; uint8 where that holds them."""
        kind = np.min_scalar_type(len(self.classes) - 1)
        train, test = (
            np.array([label for _, label in part], kind) for part in (self.train, self.test)
        )
        return train, test

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the names of all images, and of the sizes of their files or of the archive."""
        names = [str(name) for name, _ in (*self.train, *self.test)]
        alone = self.path.is_file()
        files = [self.path] if alone else [self.path / name for name in names]
        sizes = [one.stat().st_size for one in files]
        return hashlib.sha256(repr((names, sizes)).encode()).hexdigest()

    def images(
        self, train: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Decode images, uint8, (N, channels, height, width).

        Args:
            train: the training images that are needed; None for all.

        Raises:
            DataError: Pillow is missing, an image cannot be decoded, or has another size.
        """
        chosen = self.train if train is None else [self.train[i] for i in train.tolist()]
        wanted = [name for name, _ in (*chosen, *self.test)]
        at = {name: position for position, name in enumerate(wanted)}
        missing = set(wanted)
        decoded: npt.NDArray[np.uint8] | None = None
        with _opened(self.path) as files:
            for name, content in files.contents(wanted):
                image = image_files.decoded(self.path / name, content)
                if decoded is None:
                    decoded = np.empty((len(wanted), *image.shape), np.uint8)
                if image.shape != decoded.shape[1:]:
                    raise DataError(
                        f"{self.path / name} is an image of {_size(image)}, others are of "
                        f"{_size(decoded[0])}: make them all of one size, and all grey or all in "
                        "colour"
                    )
                decoded[at[name]] = image
                missing.discard(name)
        if missing:
            raise DataError(
                f"{self.path} no longer has {min(missing)}: it changed while it was read"
            )
        assert decoded is not None
        return decoded[: len(chosen)], decoded[len(chosen) :]


def index(path: Path) -> ImageFolders:
    """Find the images of a dataset, without decoding them.

    Raises:
        DataError: there are no images, or the test images have classes of their own.
    """
    with _opened(path) as files:
        found = sorted(
            name
            for name in files.names()
            if len(name.parts) == 3 and name.parts[0] in (TRAIN, TEST, VALIDATION)
        )
    for name, following in itertools.pairwise(found):
        if name == following:
            raise DataError(f"{path} has {name} twice: an archive has each image once")
    for name in found:
        if name.suffix.lower() in UNREAD:
            raise DataError(
                f"{path / name} is not read: images are {', '.join(sorted(SUFFIXES))}; convert it, or "
                "take it out"
            )
    parts = {
        part: [name for name in found if name.parts[0] == part and name.suffix.lower() in SUFFIXES]
        for part in (TRAIN, TEST, VALIDATION)
    }
    validation = parts.pop(VALIDATION)
    parts[TEST] = parts[TEST] or validation
    for part, names in parts.items():
        if not names:
            raise DataError(
                f"{path} has no images {part}/<class>/<image>: a dataset of images has folders train "
                "and test, each with a folder for each class"
            )
    classes = tuple(sorted({name.parts[1] for name in parts[TRAIN]}))
    if len(classes) > _MOST_CLASSES:
        raise DataError(f"{path} has {len(classes)} classes, and {_MOST_CLASSES} are the most")
    strange = {name.parts[1] for name in parts[TEST]}.difference(classes)
    if strange:
        raise DataError(f"{path}: test has a class that train has not, {min(strange)}")
    label = {name: number for number, name in enumerate(classes)}
    ordered = {
        part: tuple(
            (names[i], label[names[i].parts[1]])
            for i in stream(0, f"order of {part} images").permutation(len(names)).tolist()
        )
        for part, names in parts.items()
    }
    return ImageFolders(path, classes, ordered[TRAIN], ordered[TEST])


def _size(image: npt.NDArray[np.uint8]) -> str:
    channels, height, width = image.shape
    return f"{width} × {height} pixels {'in grey' if channels == 1 else 'in colour'}"


def _check_size(path: PurePath, size: int) -> None:
    """Check a file's size before it is read: an archive can unpack to any size."""
    if size > _LARGEST:
        raise DataError(f"{path} has {size:,} bytes, and {_LARGEST:,} are the most of an image")


@contextmanager
def _opened(path: Path) -> Iterator[_Files]:
    if path.is_dir():
        yield _Folder(path)
        return
    try:
        with tarfile.open(path) as archive:
            yield _Archive(archive)
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path

    def names(self) -> list[PurePosixPath]:
        return [
            PurePosixPath(file.relative_to(self.path).as_posix())
            for part in (TRAIN, TEST, VALIDATION)
            for file in self.path.glob(f"{part}/*/*")
            if file.is_file()
        ]

    def contents(self, wanted: Sequence[PurePosixPath]) -> Iterator[tuple[PurePosixPath, bytes]]:
        for name in wanted:
            try:
                _check_size(self.path / name, (self.path / name).stat().st_size)
                content = (self.path / name).read_bytes()
            except OSError as error:
                text = f"{self.path / name} cannot be read: {error.strerror or error}"
                raise DataError(text) from error
            yield name, content


@dataclass(frozen=True, slots=True)
class _Archive:
    """A tar archive of image files; a compressed one can be read only from its beginning."""

    archive: tarfile.TarFile

    def names(self) -> list[PurePosixPath]:
        names = []
        for member in self.archive:
            name = PurePosixPath(member.name)
            if member.isfile():
                names.append(name)
            elif name.parts[:1] in ((TRAIN,), (TEST,), (VALIDATION,)) and (
                member.islnk() or member.issym()
            ):
                raise DataError(
                    f"{self.archive.name!s} has a link, {name}, and links are not read: pack what they "
                    "lead to, with tar's --dereference and --hard-dereference"
                )
        return names

    def contents(self, wanted: Sequence[PurePosixPath]) -> Iterator[tuple[PurePosixPath, bytes]]:
        missing = set(wanted)
        for member in self.archive:
            name = PurePosixPath(member.name)
            if name in missing and (file := self.archive.extractfile(member)) is not None:
                missing.remove(name)
                _check_size(PurePosixPath(str(self.archive.name), name), member.size)
                yield name, file.read()

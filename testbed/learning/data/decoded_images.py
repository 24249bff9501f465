"""Keep the decoded images of a large dataset of image files, so that later starts read them at once.

CIFAR-10's 60,000 images as JPEG take many seconds to decode, in each start of each run. The decoded
values of all images are one file in the user's cache, named by the digest of what they were decoded
from: the names, sizes and times of change of the files, or those of the archive. A cache that cannot
be written only costs the time.
"""

import contextlib
import os
import tempfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.learning.data import sources
from testbed.learning.data.image_folders import ImageFolders

FEWEST = 5_000
"""The fewest images whose decoded values are kept; fewer are decoded in a second or two."""
_FILES = 4
"""The most datasets that are kept, the newest ones."""


def images(
    folders: ImageFolders, train: npt.NDArray[np.int64] | None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return what ``folders.images`` does, from the cache where it has it.

    All images are kept once all are wanted; a choice of them is decoded if they are not there.

    Raises:
        DataError: as ``folders.images``.
    """
    count = len(folders.train)
    if count + len(folders.test) < FEWEST:
        return folders.images(train)
    path = sources.cache("decoded") / f"{_digest(folders)}.npy"
    with contextlib.suppress(OSError, ValueError):  # it is not there, or was cut off
        kept = np.load(path, mmap_mode="r")
        if len(kept) == count + len(folders.test):
            chosen = kept[:count] if train is None else kept[train]
            return np.array(chosen), np.array(kept[count:])
    found = folders.images(train)
    if train is None:
        with contextlib.suppress(OSError):
            _keep(path, np.concatenate(found))
    return found


def _digest(folders: ImageFolders) -> str:
    """Return the digest of the names of all images, and of the state of their files."""
    names = [str(name) for name, _ in (*folders.train, *folders.test)]
    alone = folders.path.is_file()
    files = [folders.path] if alone else [folders.path / name for name in names]
    states = [(one.st_size, one.st_mtime_ns) for one in map(os.stat, files)]
    return sha256(repr((str(folders.path.resolve()), names, states)).encode()).hexdigest()


def _keep(path: Path, decoded: npt.NDArray[np.uint8]) -> None:
    """Write a file that is complete or not there, and remove the oldest ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".partial", delete=False) as file:
        try:
            np.save(file, decoded)
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    kept = sorted(path.parent.glob("*.npy"), key=lambda one: one.stat().st_mtime_ns)
    for old in kept[:-_FILES]:
        old.unlink(missing_ok=True)

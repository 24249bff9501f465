"""Tar archives that depend on what is in them and on nothing else: sorted, with settled times."""

import os
import stat
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import IO

EPOCH = 1686355200
"""Seconds since 1970 of what has no time of its own: Debian 12's release, 2023-06-10."""


def add_file(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file as root's, readable by all, of the time ``EPOCH``.

    Raises:
        OSError: it cannot be read.
    """
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = path.stat().st_size, EPOCH, 0o644
    with path.open("rb") as content:
        archive.addfile(entry, content)


def write_tree(
    file: IO[bytes], root: Path, since: float, wanted: Callable[[PurePosixPath], bool]
) -> None:
    """Write a root file system as a tar archive, hard links and owners included.

    Args:
        since: what was changed after this time, in seconds since 1970, gets the time ``EPOCH``; what
            is older has the time that its package gave it, on which compiled Python modules rely.
        wanted: whether a path, relative to the root, is to be in it; of a folder that is not, nothing
            is. Devices and sockets never are.

    Raises:
        OSError: the tree cannot be read, or the file not be written.
    """
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in _walk(root, PurePosixPath(), wanted):
            entry = archive.gettarinfo(root / path, str(path))
            if entry is None or not (
                entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()
            ):
                continue
            entry.uname = entry.gname = ""
            entry.mtime = EPOCH if entry.mtime >= since else int(entry.mtime)
            if entry.isreg():
                with (root / path).open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)


def _walk(
    root: Path, folder: PurePosixPath, wanted: Callable[[PurePosixPath], bool]
) -> Iterable[PurePosixPath]:
    for name in sorted(os.listdir(root / folder)):
        path = folder / name
        if not wanted(path):
            continue
        yield path
        if stat.S_ISDIR((root / path).lstat().st_mode):
            yield from _walk(root, path, wanted)

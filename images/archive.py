"""Tar archives whose bytes depend only on their content: sorted, with fixed times."""

import os
import stat
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import IO

EPOCH = 1686355200
"""The time of files without one of their own, seconds since 1970: Debian 12's release, 2023-06-10."""


def add_file(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file, owned by root, readable by all, with the time ``EPOCH``.

    Raises:
        OSError: the file cannot be read.
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
        since: files changed at or after this time, in seconds since 1970, get the time ``EPOCH``;
            older ones keep the time from their package, on which compiled Python modules rely.
        wanted: returns True for a path, relative to the root, that is to be included; a folder that is
            not takes its content with it. Devices and sockets are never included.

    Raises:
        OSError: the tree cannot be read, or the archive cannot be written.
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

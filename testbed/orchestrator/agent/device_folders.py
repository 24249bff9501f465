"""The folders of devices that run programs of users: made, and brought home from another host.

On the orchestrator's host they are in the run directory. On another host they are in a folder of their
own, which is seen in the place of the run directory's: so homes have one path in all devices. What
programs say there is reported as it is written; what they have written to their homes is sent as a tar
archive of all that is newer than the copies of the experiment's files.
"""

import contextlib
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from testbed.messages.agent_reports import HomePartRead, OutputWritten
from testbed.nodes import run_names
from testbed.nodes.confinement import HOME, HOST_FOLDERS
from testbed.untrusted_text import open_file

_PART = 1 << 20
"""Bytes in one message."""
_ATTEMPTS, _PAUSE = 20, 0.1
"""How often a folder is to be removed, and the seconds between."""


def make(folder: Path, devices: Sequence[str], files: Sequence[str]) -> None:
    """Make each device's folder, with copies of the files that programs find in their home.

    Raises:
        OSError: they cannot be made.
    """
    for device in devices:
        own = folder / device / HOME
        own.mkdir(parents=True)
        for file in map(Path, files):
            try:
                if file.is_dir():
                    shutil.copytree(file, own / file.name, symlinks=True)
                else:
                    shutil.copy2(file, own / file.name)
            except shutil.Error as error:  # a list of all that is not copied
                source, _, why = error.args[0][0]
                text = f"'{source}', one of `files`, cannot be copied into the devices: {why}"
                raise OSError(text) from error


@contextlib.contextmanager
def host_folder() -> Iterator[Path]:
    """Yield a new folder on this host, which is removed in the end.

    If this process is killed, `testbed clean` removes it: it has the name of a run.

    Raises:
        OSError: it cannot be made.
    """
    folder = HOST_FOLDERS / run_names.new()
    folder.mkdir(0o700)
    try:
        yield folder
    finally:
        _remove(folder)


@contextlib.contextmanager
def elsewhere(place: str | None) -> Iterator[str | None]:
    """Yield a folder for the devices of this host; see ``host_folder``.

    Args:
        place: the path at which devices see it, which is made if it is missing, and then removed as
            well; None if no programs run, and there is no such folder.

    Raises:
        OSError: it cannot be made.
    """
    if place is None:
        yield None
        return
    missing = [one for one in (Path(place), *Path(place).parents) if not one.exists()]
    with host_folder() as folder:
        try:
            Path(place).mkdir(parents=True, exist_ok=True)
            yield str(folder)
        finally:
            for one in missing:
                with contextlib.suppress(OSError):  # another run has something there
                    one.rmdir()


def _remove(folder: Path) -> None:
    """Remove a folder; the last programs of an agent that was killed may still write to it."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_PAUSE)
    print(f"{folder} could not be removed", flush=True)


class FoldersElsewhere:
    """The folders of a run's devices on a host that is not the orchestrator's."""

    def __init__(self, folder: Path, devices: Sequence[str], files: Sequence[str]) -> None:
        """Make them; see ``make``."""
        make(folder, devices, files)
        self._folder, self._devices = folder, devices
        self._made = time.time_ns()
        self._read: dict[Path, int] = {}
        self._archive: IO[bytes] | None = None

    def written(self) -> Iterator[OutputWritten]:
        """Yield the output that was written since the last call, at most a part for each program."""
        for device in self._devices:
            for log in sorted((self._folder / device).glob("*.log")):
                with contextlib.suppress(OSError):  # a program may have put something else there
                    with os.fdopen(open_file(log), "rb") as opened:
                        opened.seek(self._read.get(log, 0))
                        new = opened.read(_PART)
                    if new:
                        self._read[log] = self._read.get(log, 0) + len(new)
                        yield OutputWritten(device, log.stem, new)

    def part_of_home(self, device: str) -> HomePartRead:
        """Return the next part of what was written to a device's home; an empty one is the last."""
        if self._archive is None:
            self._archive = self._packed(device)
        part = self._archive.read(_PART)
        if not part:
            self._archive.close()
            self._archive = None
        return HomePartRead(device, part)

    def _packed(self, device: str) -> IO[bytes]:
        """Return an archive of the files of a home that are new or have changed; no links."""
        home = self._folder / device / HOME
        file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed after its last part
        with tarfile.open(fileobj=file, mode="w") as archive:
            for parent, _, names in os.walk(home):
                for one in (Path(parent, name) for name in names):
                    with contextlib.suppress(FileNotFoundError):
                        found = one.lstat()
                        if stat.S_ISREG(found.st_mode) and found.st_ctime_ns > self._made:
                            archive.add(one, one.relative_to(home), recursive=False)
        file.seek(0)
        return file


def unpack(archive: IO[bytes], home: Path) -> None:
    """Write what ``part_of_home`` has sent to the home of the device in the run directory.

    Raises:
        OSError: it cannot be written, or has something that may not be.
    """
    archive.seek(0)
    try:
        with tarfile.open(fileobj=archive) as opened:
            opened.extractall(home, filter="data")
    except tarfile.TarError as error:
        raise OSError(f"what another host has sent for {home} is not written: {error}") from error

"""The two files that hold a run's checkpoints in turn: while one is written, the other is intact.

A file is overwritten in place and then flushed to the disk. A writer needs nothing but its descriptor,
so a process that may write nothing else can be handed it. A checksum tells whether a file is intact; of
two intact files the newer version counts. The second checkpoint of a version empties the first's file.
"""

import os
import stat
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Self

from testbed.checkpoints.records import Record, content_at, number_at, number_of, state_of_bytes
from testbed.checkpoints.stateful import State
from testbed.untrusted_text import open_file

NAMES = ("even", "odd")
"""The names of the two files in a run's folder of checkpoints."""


class CheckpointFiles:
    """The two checkpoint files of one run; closed at the end of a ``with``, or by ``close``.

    Attributes:
        descriptors: the descriptors of both files, to hand to another process.
        damaged: the number of checkpoints that ``newest`` could not read.
    """

    def __init__(self, descriptors: tuple[int, int], types: Collection[type]) -> None:
        """Use two descriptors that were opened, inherited or received.

        Args:
            types: the classes whose objects a state may hold.
        """
        self.descriptors = descriptors
        self._types = types
        self._next = 0
        self._version: int | None = None  # of the file that is not written next
        self.damaged = 0

    @classmethod
    def open(cls, folder: Path, types: Collection[type]) -> Self:
        """Open the two files in ``folder``; make the folder and the files if they do not exist.

        What is in a file's place and is none is put aside.

        Raises:
            OSError: the folder cannot be made, or a file cannot be opened.
        """
        folder.mkdir(exist_ok=True)
        aside = 0
        for path in (folder / name for name in NAMES):
            if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
                path.rename(path.with_suffix(".damaged"))
                aside += 1
        even, odd = (open_file(folder / name, os.O_RDWR | os.O_CREAT) for name in NAMES)
        files = cls((even, odd), types)
        files.damaged = aside
        return files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, version: int, state: State) -> int:
        """Store a state in place of the older checkpoint; return the file's size in bytes.

        Raises:
            OSError: it could not be written; the other file is intact.
            TypeError: something in the state cannot be stored.
        """
        record = Record(version, state, self._types)
        descriptor = self.descriptors[self._next]
        record.write(descriptor)
        os.ftruncate(descriptor, record.size)
        os.fsync(descriptor)
        self._next = 1 - self._next
        if version == self._version:
            os.ftruncate(self.descriptors[self._next], 0)
        self._version = version
        return record.size

    def newest(self, fits: Callable[[State], bool] = lambda _: True) -> Any:
        """Return the newest intact state that fits, or None; the other file is written next."""
        found = []
        for number, descriptor in enumerate(self.descriptors):
            content = content_at(descriptor)
            if content is not None:
                found.append((number_of(content), number, content))
            elif os.fstat(descriptor).st_size:
                self.damaged += 1
        for version, number, content in sorted(
            found, key=lambda candidate: candidate[0], reverse=True
        ):
            try:
                state = state_of_bytes(content, self._types)
                is_right = fits(state)
            except (ValueError, LookupError, TypeError):  # of another form than a run's
                self.damaged += 1
                continue
            if is_right:
                self._next, self._version = 1 - number, version
                return state
        return None

    def cut_back(self, version: int) -> None:
        """Remove the checkpoints of later versions than ``version``."""
        for descriptor in self.descriptors:
            written = number_at(descriptor)
            if written is None or written > version:
                os.ftruncate(descriptor, 0)

    def close(self) -> None:
        """Close both descriptors."""
        for descriptor in self.descriptors:
            os.close(descriptor)

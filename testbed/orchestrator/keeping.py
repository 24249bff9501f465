"""The orchestrator's part of a run's checkpoints: their files, and a mark for each.

The server writes the files; the orchestrator opens them, notes in a mark up to which rows of its
journals each checkpoint goes, and removes all when the run is complete.
"""

import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.marks import Mark, Marks
from testbed.orchestrator.ingress import Ingress
from testbed.roles.sharing import CHECKPOINTS, EVERY
from testbed.runs.resuming import FOLDER, Resumption


class Keeping:
    """The checkpoints of one run.

    Attributes:
        mark: the mark of the checkpoint from which the run is resumed; None if it begins.
    """

    def __init__(self, directory: Path, every: int | None, again: Resumption | None) -> None:
        """Prepare; no file is opened.

        Args:
            directory: the run directory.
            every: updates from one checkpoint to the next; None: none is written.
            again: what is left of the run, if it is resumed.
        """
        self.mark = again.mark if again else None
        self._folder = directory / FOLDER
        self._every = every
        self._files = again.files if again and self.mark else None
        self._marks = Marks(self._folder)
        self._unwritten: list[tuple[float, Mark]] = []

    def open(self, opened: ExitStack) -> None:
        """Open the files, and remove every checkpoint later than the mark.

        A server that is killed before it has written a new checkpoint would be restored from a later
        one. A run that begins anew has no mark: all earlier checkpoints are removed.

        Args:
            opened: closes what is opened here.

        Raises:
            OSError: the files cannot be opened or cut back.
        """
        if self.mark is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._every is None:
            return
        if self._files is None:
            self._files = opened.enter_context(CheckpointFiles.open(self._folder, ()))
        self._marks = Marks.load(self._folder)
        if self.mark is not None:
            self._files.cut_back(self.mark.version)
            self._marks.cut_back(self.mark.version)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The files' descriptors, to hand to the server."""
        return self._files.descriptors if self._files else ()

    @property
    def told(self) -> dict[str, Any]:
        """The arguments of the server's role that concern checkpoints; empty if it writes none."""
        if self._files is None:
            return {}
        return {CHECKPOINTS: list(self.descriptors), EVERY: self._every}

    def note(self, mark: Mark, when: float) -> None:
        """Note that the server is about to write a checkpoint; its wire bytes are not known yet.

        Args:
            mark: the checkpoint's, whose ``wire_bytes`` are set later.
            when: in seconds of CLOCK_MONOTONIC.
        """
        self._unwritten.append((when, mark))

    def write_marks(self, ingress: Ingress) -> None:
        """Write the marks whose wire bytes are known by now.

        Raises:
            OSError: there is no room.
        """
        while self._unwritten and ingress.read_after(self._unwritten[0][0]):
            when, mark = self._unwritten.pop(0)
            self._marks.note(replace(mark, wire_bytes=ingress.wire_bytes(when)))

    def of(self, version: int) -> Mark:
        """Return the mark of a checkpoint that the server has written."""
        waiting = (mark for _, mark in reversed(self._unwritten) if mark.version == version)
        found = next(waiting, None) or self._marks.of(version)
        assert found is not None, f"nobody has told of the checkpoint of update {version}"
        return found

    def remove(self) -> None:
        """Remove all checkpoints of the run, which is complete."""
        if self._files is not None:
            shutil.rmtree(self._folder)

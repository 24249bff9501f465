"""The orchestrator's part of a run's checkpoints: their files, and a mark for each.

The server writes; the orchestrator opens the files, says to which of its journals' rows a checkpoint
belongs, and removes them when the run is complete.
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
    """Of one run.

    Attributes:
        mark: of the checkpoint from which the run goes on; None if it begins.
    """

    def __init__(self, directory: Path, every: int | None, again: Resumption | None) -> None:
        """Prepare.

        Args:
            directory: the run's.
            every: updates from one checkpoint to the next; None: none is written.
            again: what there is of the run, if it is resumed.
        """
        self.mark = again.mark if again else None
        self._folder = directory / FOLDER
        self._every = every
        self._files = again.files if again and self.mark else None
        self._marks = Marks(self._folder)
        self._unwritten: list[tuple[float, Mark]] = []

    def open(self, opened: ExitStack) -> None:
        """Open the files, without what the run does not go on from.

        Nothing of a run that begins anew is of use; nor is what was written behind the mark: from there
        a server would go on that is killed before it has written another checkpoint.

        Args:
            opened: closes what is opened here.

        Raises:
            OSError: they cannot be.
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
        """Of the files, which the server is to have."""
        return self._files.descriptors if self._files else ()

    @property
    def told(self) -> dict[str, Any]:
        """What the server is told of them, as arguments of its role."""
        if self._files is None:
            return {}
        return {CHECKPOINTS: list(self.descriptors), EVERY: self._every}

    def note(self, mark: Mark, when: float) -> None:
        """The server is about to write a checkpoint; its wire bytes are not known yet.

        Args:
            when: in seconds of CLOCK_MONOTONIC.
        """
        self._unwritten.append((when, mark))

    def write_marks(self, ingress: Ingress) -> None:
        """Write down the marks whose wire bytes are known by now.

        Raises:
            OSError: there is no room.
        """
        while self._unwritten and ingress.read_after(self._unwritten[0][0]):
            when, mark = self._unwritten.pop(0)
            self._marks.note(replace(mark, wire_bytes=ingress.wire_bytes(when)))

    def of(self, version: int) -> Mark:
        """The mark of a checkpoint that the server has written."""
        waiting = (mark for _, mark in reversed(self._unwritten) if mark.version == version)
        found = next(waiting, None) or self._marks.of(version)
        assert found is not None, f"nobody has told of the checkpoint of update {version}"
        return found

    def remove(self) -> None:
        """The run is complete."""
        if self._files is not None:
            shutil.rmtree(self._folder)

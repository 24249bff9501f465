"""The store of a run's checkpoints in its run directory: their files, and a mark for each.

A server writes the files; the orchestrator opens them, notes in a mark up to which rows of its
journals each checkpoint goes, and removes all when the run is complete. Under the wall clock each of
several servers writes its own, by its own versions, in a folder of its own. Under the virtual clock the
process with the clock writes one of the whole run, and workers write what only they remember
(``testbed.roles.worker.memory``).
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from testbed.checkpoints.checkpoint_marks import Mark, Marks
from testbed.checkpoints.files import CheckpointFiles
from testbed.orchestrator.server_ingress import ServerIngress
from testbed.roles.arguments import SharedArguments
from testbed.runs.resuming import FOLDER, Resumption, folders
from testbed.untrusted_text import open_file


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A mark that waits for its wire bytes, and when its checkpoint was begun (CLOCK_MONOTONIC)."""

    when: float
    mark: Mark


class CheckpointStore:
    """The checkpoints of one server, or of all servers together.

    Attributes:
        mark: the mark of the checkpoint from which the run is resumed; None if it begins.
    """

    def __init__(self, folder: Path, mark: Mark | None, files: CheckpointFiles | None) -> None:
        """Prepare; no file is opened.

        Args:
            mark: that of the checkpoint from which the run is resumed; None if it begins.
            files: those that are open, if the run is resumed.
        """
        self.mark = mark
        self._folder = folder
        self._files = files if mark else None
        self._marks = Marks(self._folder)
        self._unwritten: list[_Unwritten] = []

    def open(self, opened: ExitStack) -> None:
        """Open the files, and remove every checkpoint later than the mark.

        A server that is killed before it has written a new checkpoint would be restored from a later
        one. A run that begins anew has no mark: all earlier checkpoints are removed.

        Raises:
            OSError: the files cannot be opened or cut back.
        """
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

    def begin(self, mark: Mark, when: float) -> None:
        """Expect a checkpoint that the server is about to write; its wire bytes are not known yet.

        Args:
            mark: the checkpoint's, whose ``wire_bytes`` are the least that they can be.
            when: in seconds of CLOCK_MONOTONIC.
        """
        self._unwritten.append(_Unwritten(when, mark))

    def write_marks(self, ingress: Sequence[ServerIngress]) -> None:
        """Write the marks whose wire bytes are known by now.

        Args:
            ingress: of each server whose state the checkpoints hold.

        Raises:
            OSError: there is no room.
        """
        while self._unwritten and all(one.read_after(self._unwritten[0].when) for one in ingress):
            next_one = self._unwritten.pop(0)
            wire_bytes = [
                max(least, one.wire_bytes(next_one.when))
                for least, one in zip(next_one.mark.wire_bytes, ingress, strict=True)
            ]
            self._marks.note(replace(next_one.mark, wire_bytes=wire_bytes))

    def of(self, version: int) -> Mark:
        """Return the mark of a checkpoint that the server has written."""
        marks = [one.mark for one in reversed(self._unwritten) if one.mark.version == version]
        found = marks[0] if marks else self._marks.of(version)
        assert found is not None, f"the checkpoint of update {version} was never reported"
        return found


class CheckpointStores:
    """The checkpoints of one run.

    Attributes:
        each: those of each server, by its index; or those of all, as the only ones.
    """

    def __init__(
        self,
        directory: Path,
        every: int | None,
        resumption: Resumption | None,
        servers: Sequence[str],
        *,
        whole: bool,
    ) -> None:
        """Prepare; no file is opened.

        Args:
            every: updates from one checkpoint to the next; None: none is written.
            resumption: what is left of the run, if it is resumed.
            servers: the servers' names; none among peers.
            whole: True if a checkpoint is one of the whole run, and not of each server.
        """
        # By their place in ``each``: the servers whose state checkpoints hold.
        self._covered = [range(index, index + 1) for index in range(len(servers))]
        if whole and servers:
            self._covered = [range(len(servers))]
        self.resumed = resumption is not None and bool(resumption.marks)
        self._folder = directory / FOLDER
        self._every = every
        self.each = [
            CheckpointStore(folder, mark, files)
            for folder, mark, files in zip_longest(
                folders(self._folder, servers[: len(self._covered)]),
                resumption.marks if resumption else (),
                resumption.files if resumption and self.resumed else (),
            )
        ]

    @property
    def marks(self) -> list[Mark]:
        """The marks of the checkpoints from which the run is resumed; none if it begins."""
        return [one.mark for one in self.each if one.mark is not None]

    def of(self, server: int) -> tuple[CheckpointStore, Sequence[int]]:
        """Return the checkpoints with a server's state, and all servers whose states they hold."""
        at = next(at for at, covered in enumerate(self._covered) if server in covered)
        return self.each[at], self._covered[at]

    def open(self, opened: ExitStack) -> None:
        """Open all files; see ``CheckpointStore.open``.

        Raises:
            OSError: the files cannot be opened or cut back.
        """
        if not self.resumed:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._every is None:
            return
        self._folder.mkdir(exist_ok=True)
        for one in self.each:
            one.open(opened)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The files' descriptors, two of each server or two of the run."""
        return tuple(descriptor for one in self.each for descriptor in one.descriptors)

    def open_states(self, opened: ExitStack, devices: Sequence[str]) -> list[int]:
        """Open a file for each device, for what it remembers itself; return their descriptors.

        Raises:
            OSError: a file cannot be opened.
        """
        found = []
        for name in devices:
            found.append(open_file(self._folder / name, os.O_RDWR | os.O_CREAT))
            opened.callback(os.close, found[-1])
        return found

    @property
    def arguments(self) -> SharedArguments:
        """The arguments of roles that concern checkpoints; empty if none are written."""
        found = list(self.descriptors)
        return {"checkpoints": found, "checkpoint_every": self._every} if found else {}

    def write_marks(self, ingress: Sequence[ServerIngress]) -> None:
        """Write the marks whose wire bytes are known by now.

        Raises:
            OSError: there is no room.
        """
        for one, covered in zip(self.each, self._covered, strict=True):
            one.write_marks([ingress[server] for server in covered])

    def remove(self) -> None:
        """Remove all checkpoints of the run, which is complete."""
        if self.descriptors:
            shutil.rmtree(self._folder)

"""Marks: how far an emulated run was when its server wrote a checkpoint.

The server writes its own state, or the process with the virtual clock that of all servers. Only the
orchestrator knows how much of the journals and of the traffic belongs to it, and notes that here, for
the two checkpoints that exist and one being written.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from testbed.json_dataclasses import of_plain
from testbed.untrusted_text import parse_json, read_file

NAME = "marks.json"
"""The file's name, in the folder of checkpoints."""
_KEPT = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one checkpoint: how far the run was.

    Attributes:
        version: the checkpoint's version.
        time: the run's seconds since training began, by the host's clock.
        updates, faults: rows of these journals that come before it.
        suspected, welcomed, workers_lost: how often each of these was reported before.
        forgotten: payload and message bytes that had reached a server that was killed, and that the
            server of that time does not count; for each server of the checkpoint.
        wire_bytes: wire bytes that had reached each server of the checkpoint by then.
        left_out: versions whose evaluation had been left out.
    """

    version: int
    time: float
    updates: int
    faults: int
    suspected: int
    welcomed: int
    workers_lost: int
    forgotten: list[dict[str, int]]
    wire_bytes: list[int]
    left_out: list[int] = field(default_factory=list)


def latest(marks: Sequence[Mark]) -> Mark:
    """Return the mark of the newest checkpoint, of those of several servers."""
    return max(marks, key=lambda mark: mark.time)


class Marks:
    """The marks of one server's last checkpoints."""

    def __init__(self, folder: Path) -> None:
        """Start without marks, in a run's folder of checkpoints, which must exist."""
        self._path = folder / NAME
        self._marks: list[Mark] = []

    @classmethod
    def load(cls, folder: Path) -> "Marks":
        """Read the marks that were noted before; none if there is no such file.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is damaged.
        """
        marks = cls(folder)
        if os.path.lexists(marks._path):
            marks._marks = of_plain(list[Mark], parse_json(read_file(marks._path)))
            if any(len(one.forgotten) != len(one.wire_bytes) for one in marks._marks):
                raise ValueError("a mark is of no number of servers")
        return marks

    def __iter__(self) -> Iterator[Mark]:
        return iter(self._marks)

    def of(self, version: int) -> Mark | None:
        """Return the mark of the checkpoint of ``version``, or None."""
        return next((mark for mark in reversed(self._marks) if mark.version == version), None)

    def note(self, mark: Mark) -> None:
        """Add a mark; the file is replaced as a whole, never left half written.

        Raises:
            OSError: the file cannot be written.
        """
        # A server that went back to a checkpoint passes the same versions again.
        before = [earlier for earlier in self._marks if earlier.version < mark.version]
        self._write([*before, mark][-_KEPT:])

    def cut_back(self, version: int) -> None:
        """Remove the marks of later versions than ``version``.

        Raises:
            OSError: the file cannot be written.
        """
        self._write([mark for mark in self._marks if mark.version <= version])

    def _write(self, marks: list[Mark]) -> None:
        self._marks = marks
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps([asdict(mark) for mark in self._marks]), encoding="utf-8")
        partial.replace(self._path)

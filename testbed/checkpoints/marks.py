"""Where an emulated run stood when its server wrote a checkpoint.

The server writes its own state; how much of the journals and of the traffic belongs to it only the
orchestrator knows. It notes that here: for the two checkpoints that there are, and one on its way.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

NAME = "marks.json"
"""Of the file, beside the checkpoints."""
_KEPT = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """One checkpoint.

    Attributes:
        version: that it is of.
        time: the run's seconds since training began, by the host's clock.
        updates, faults: rows of these journals that come before it.
        suspected, welcomed, workers_lost: how often that was told before.
        forgotten: payload and message bytes that had reached a server that was killed, and of which the
            one of that time does not know.
        wire_bytes: that had reached the server by then.
        left_out: versions whose evaluation had been left out.
    """

    version: int
    time: float
    updates: int
    faults: int
    suspected: int
    welcomed: int
    workers_lost: int
    forgotten: dict[str, int]
    wire_bytes: int
    left_out: list[int] = field(default_factory=list)


class Marks:
    """Of the last checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        """None yet, in a run's folder of checkpoints, which is there."""
        self._path = folder / NAME
        self._marks: list[Mark] = []

    @classmethod
    def load(cls, folder: Path) -> "Marks":
        """Those that were noted before; none if there is no such file.

        Raises:
            OSError: it cannot be read.
            ValueError: it is damaged.
        """
        marks = cls(folder)
        if marks._path.exists():
            marks._marks = [Mark(**one) for one in json.loads(marks._path.read_bytes())]
        return marks

    def __iter__(self) -> Iterator[Mark]:
        return iter(self._marks)

    def of(self, version: int) -> Mark | None:
        """That of the checkpoint of a version."""
        return next((one for one in reversed(self._marks) if one.version == version), None)

    def note(self, mark: Mark) -> None:
        """Note another one; what is noted is never half written.

        Raises:
            OSError: there is no room.
        """
        # A server that has gone back passes the same versions again.
        before = [one for one in self._marks if one.version < mark.version]
        self._write([*before, mark][-_KEPT:])

    def cut_back(self, version: int) -> None:
        """Have none of a later version any more.

        Raises:
            OSError: there is no room.
        """
        self._write([one for one in self._marks if one.version <= version])

    def _write(self, marks: list[Mark]) -> None:
        self._marks = marks
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps([asdict(one) for one in self._marks]), encoding="utf-8")
        partial.replace(self._path)

"""The checkpoints of a run: when they are due, and what they cost."""

import time
from typing import Any

from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.stateful import State


class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        last: the version of the newest checkpoint; 0 before the first.
    """

    def __init__(self, every: int, files: CheckpointFiles) -> None:
        """Start at version 0, with nothing written.

        Args:
            every: updates from one checkpoint to the next.
        """
        self.last = 0
        self._every = every
        self._files = files
        self._written = 0
        self._bytes = 0
        self._seconds = 0.0

    def due(self, version: int) -> bool:
        """Return True if a checkpoint is to be written now that the run is at ``version``."""
        return version // self._every > self.last // self._every

    def write(self, version: int, state: State) -> None:
        """Write a checkpoint.

        Raises:
            OSError: it could not be written; the one before it is intact.
        """
        began = time.monotonic()
        self._bytes = self._files.write(version, state)
        self.last = version
        self._written += 1
        self._seconds += time.monotonic() - began

    def newest(self) -> Any:
        """Return the state of the newest checkpoint, from which to go on, or None."""
        state = self._files.newest()
        if state is not None:
            self.last = state["version"]
        return state

    def account(self) -> dict[str, object]:
        """Return how many checkpoints this process wrote, the last one's bytes and the seconds."""
        return {
            "written": self._written,
            "bytes": self._bytes,
            "seconds": round(self._seconds, 3),
        }

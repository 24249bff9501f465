"""When a run's checkpoints are due, and what they cost."""

import time
from collections.abc import Mapping
from typing import Any

from testbed.checkpoints.files import CheckpointFiles


class Checkpoints:
    """One run's.

    Attributes:
        last: the version of the last one, or of the beginning.
    """

    def __init__(self, every: int, files: CheckpointFiles) -> None:
        """Begin at version 0.

        Args:
            every: updates from one to the next.
        """
        self.last = 0
        self._every = every
        self._files = files
        self._written = 0
        self._bytes = 0
        self._seconds = 0.0

    def due(self, version: int) -> bool:
        """Whether one is to be written now that there is this version."""
        return version // self._every > self.last // self._every

    def write(self, version: int, state: Mapping[str, Any]) -> None:
        """Write one.

        Raises:
            OSError: it could not be written; the one before is still there.
        """
        began = time.monotonic()
        self._bytes = self._files.write(version, state)
        self.last = version
        self._written += 1
        self._seconds += time.monotonic() - began

    def newest(self) -> Any:
        """The state of the last one, from which its writer or another one goes on; None without one."""
        state = self._files.newest()
        if state is not None:
            self.last = state["version"]
        return state

    def account(self) -> dict[str, Any]:
        """How many this process wrote, the last one's bytes, and the seconds it took to write them."""
        return {
            "written": self._written,
            "bytes": self._bytes,
            "seconds": round(self._seconds, 3),
        }

"""A file in memory, for readers that take a path."""

import os
from pathlib import Path


class MemoryFile:
    """A file that holds one input after the other.

    Attributes:
        path: for the readers of this process.
    """

    def __init__(self, name: str) -> None:
        self._descriptor = os.memfd_create(name)
        self.path = Path(f"/proc/self/fd/{self._descriptor}")

    def hold(self, data: bytes) -> Path:
        """Replace what the file holds; return its path."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)
        return self.path

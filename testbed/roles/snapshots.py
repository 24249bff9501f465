"""A queue of parameter vectors that waits for the evaluator, in bounded memory.

The server must neither wait for the evaluator nor skip an evaluation that was asked for. The first
few snapshots wait in memory, the others in an unlinked temporary file.
"""

import tempfile
from collections import deque
from collections.abc import Iterator
from typing import IO

IN_MEMORY = 32


class SnapshotQueue:
    """First in, first out."""

    def __init__(self, size: int) -> None:
        """Make a queue of snapshots of ``size`` bytes each."""
        self._size = size
        self._memory: deque[tuple[int, bytes]] = deque()
        self._on_disk: deque[int] = deque()
        self._file: IO[bytes] | None = None
        self._first = 0

    def __len__(self) -> int:
        return len(self._memory) + len(self._on_disk)

    def put(self, version: int, parameters: memoryview) -> None:
        """Append a copy of the parameters of one version."""
        if not self._on_disk and len(self._memory) < IN_MEMORY:
            self._memory.append((version, bytes(parameters)))
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the queue
        self._file.seek((self._first + len(self._on_disk)) * self._size)
        self._file.write(parameters)
        self._on_disk.append(version)

    def all(self) -> Iterator[tuple[int, bytes]]:
        """What waits, the oldest first; nothing is taken."""
        yield from self._memory
        for at, version in enumerate(self._on_disk, self._first):
            assert self._file is not None
            self._file.seek(at * self._size)
            yield version, self._file.read(self._size)

    def get(self) -> tuple[int, bytes]:
        """Take the oldest: (version, parameters).

        Raises:
            IndexError: the queue is empty.
        """
        if self._memory:
            return self._memory.popleft()
        version = self._on_disk.popleft()
        assert self._file is not None
        self._file.seek(self._first * self._size)
        parameters = self._file.read(self._size)
        self._first += 1
        if not self._on_disk:
            self._file.close()
            self._file, self._first = None, 0
        return version, parameters

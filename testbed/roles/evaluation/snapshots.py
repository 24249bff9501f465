"""A queue of parameter vectors that wait for the evaluator, in bounded memory.

The first few snapshots wait in memory, the others in a ``Spill``. If that has no room left, or a limit
is reached, the queue refuses a snapshot with the reason, and the caller leaves the evaluation out, or
waits.
"""

import contextlib
import os
from collections import deque
from collections.abc import Iterator

IN_MEMORY = 32
ROOM_LEFT = 64 << 20
"""Bytes of the file system that are left free for everything else that the run writes."""
LIMIT = 256 << 20
"""Bytes of a limited queue, which is the queue of a server that stores it in every checkpoint."""


class Spill:
    """Room for snapshots in a file without a name in the run directory, which a process receives open.

    So a process can use it that may write no other file (a container's root is read-only, and its /tmp
    is small). The file is divided into slots of one size, which only this process uses. Slots that were
    read are used again, so that the file is never longer than the most snapshots that waited at a time.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        """Start with an empty file.

        Args:
            descriptor: of the file; what a killed process left in it is removed.
            size: of a slot, in bytes.
        """
        self._descriptor = descriptor
        self._size = size
        self._free: list[int] = []
        self._slots = 0
        os.ftruncate(descriptor, 0)

    def write(self, snapshot: memoryview) -> int:
        """Write a snapshot of a slot's size, and return its slot.

        Raises:
            OSError: there is no room for it, or it cannot be written.
        """
        slot = self._free[-1] if self._free else self._slots
        if not self._free:
            self._check_room()
        at = slot * self._size
        try:
            while snapshot:
                written = os.pwrite(self._descriptor, snapshot, at)
                snapshot, at = snapshot[written:], at + written
        except OSError:
            if not self._free:
                self._cut()
            raise
        if self._free:
            self._free.pop()
        else:
            self._slots += 1
        return slot

    def read(self, slot: int) -> bytes:
        """Return a slot's snapshot.

        Raises:
            OSError: it cannot be read.
        """
        parts: list[bytes] = []
        at, left = slot * self._size, self._size
        while left:
            part = os.pread(self._descriptor, left, at)
            if not part:
                raise OSError(f"the file ends {left:,} bytes too early")
            parts.append(part)
            at, left = at + len(part), left - len(part)
        return b"".join(parts)

    def free(self, slot: int) -> None:
        """Mark a slot as free; when all slots are free, give the file's space back."""
        self._free.append(slot)
        if len(self._free) == self._slots:
            self._free.clear()
            self._slots = 0
            self._cut()

    def _check_room(self) -> None:
        system = os.fstatvfs(self._descriptor)
        free = system.f_bavail * system.f_frsize
        if free - self._size < ROOM_LEFT:
            raise OSError(
                f"{free / 1e6:,.0f} MB are free where the run directory is, and "
                f"{ROOM_LEFT / 1e6:,.0f} MB are left to the rest of the run"
            )

    def _cut(self) -> None:
        with contextlib.suppress(OSError):  # the space is not given back, and nothing worse happens
            os.ftruncate(self._descriptor, self._slots * self._size)


class NoRoomError(Exception):
    """There is no room for a snapshot; the message says why."""


class UnreadableError(Exception):
    """A snapshot that waited cannot be read; it is removed from the queue."""

    def __init__(self, version: int, reason: str) -> None:
        super().__init__(reason)
        self.version = version


class SnapshotQueue:
    """A first-in, first-out queue of snapshots."""

    def __init__(self, size: int, spill: int | None = None, *, limited: bool = False) -> None:
        """Make a queue.

        Args:
            size: of each snapshot, in bytes.
            spill: descriptor of the file for snapshots that memory is not to hold; None: there is none.
            limited: True if at most ``LIMIT`` bytes may wait, or ``IN_MEMORY`` snapshots if those are
                more.
        """
        self._spill = None if spill is None else Spill(spill, size)
        self._most = max(IN_MEMORY, LIMIT // size) if limited else None
        self._waiting: deque[tuple[int, bytes | int]] = deque()
        self._in_memory = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def crowded(self) -> bool:
        """True if snapshots are kept for which there was no room."""
        too_many = self._most is not None and len(self._waiting) > self._most
        return too_many or self._in_memory > IN_MEMORY

    def put(self, version: int, parameters: memoryview, *, always: bool = False) -> None:
        """Append a copy of the parameters of one version.

        Args:
            always: keep it in memory if there is no room for it elsewhere.

        Raises:
            NoRoomError: there is no room.
        """
        try:
            if self._most is not None and len(self._waiting) >= self._most:
                raise NoRoomError(
                    f"{self._most:,} wait for the evaluator, the most that a checkpoint is to hold"
                )
            if self._in_memory >= IN_MEMORY:
                self._waiting.append((version, self._write(parameters)))
                return
        except NoRoomError:
            if not always:
                raise
        self._waiting.append((version, bytes(parameters)))
        self._in_memory += 1

    def _write(self, parameters: memoryview) -> int:
        if self._spill is None:
            raise NoRoomError(f"{IN_MEMORY} wait for the evaluator, and memory is to hold no more")
        try:
            return self._spill.write(parameters)
        except OSError as error:
            raise NoRoomError(
                f"{len(self._waiting):,} wait for the evaluator, and there is no room for more: "
                f"{error.strerror or error}"
            ) from error

    def all(self) -> Iterator[tuple[int, bytes]]:
        """Yield the snapshots that wait, the oldest first, without taking them.

        Raises:
            OSError: a snapshot cannot be read.
        """
        for version, snapshot in self._waiting:
            if isinstance(snapshot, int):
                assert self._spill is not None
                yield version, self._spill.read(snapshot)
            else:
                yield version, snapshot

    def get(self) -> tuple[int, bytes]:
        """Take the oldest snapshot: (version, parameters).

        Raises:
            IndexError: the queue is empty.
            UnreadableError: the snapshot cannot be read.
        """
        version, snapshot = self._waiting.popleft()
        if not isinstance(snapshot, int):
            self._in_memory -= 1
            return version, snapshot
        assert self._spill is not None
        try:
            parameters = self._spill.read(snapshot)
        except OSError as error:
            raise UnreadableError(
                version, f"it cannot be read: {error.strerror or error}"
            ) from error
        finally:
            self._spill.free(snapshot)
        return version, parameters

"""Room for snapshots in a file of the run directory, which is handed over open and has no name.

A process that may write nothing else (a container's root is read-only, and its /tmp is small) can be
handed a descriptor. The file is divided into slots of one size; slots that were read are used again, so
that it is never longer than what waits at one time.
"""

import contextlib
import os

ROOM_LEFT = 64 << 20
"""Bytes of the file system that are left to everything else that the run writes."""


class Spill:
    """The slots of one process; nobody else uses them at the same time."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Begin with an empty file.

        Args:
            descriptor: of the file; what a process that was killed left in it goes.
            size: of a slot, in bytes.
        """
        self._descriptor = descriptor
        self._size = size
        self._free: list[int] = []
        self._slots = 0
        os.ftruncate(descriptor, 0)

    def write(self, snapshot: memoryview) -> int:
        """Write a snapshot, of a slot's size; returns its slot.

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
        """A slot's snapshot.

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
        """Use a slot again; when all of them are free, the file's room is given back."""
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
        with contextlib.suppress(OSError):  # the room is not given back, and that is all
            os.ftruncate(self._descriptor, self._slots * self._size)

"""Room for snapshots in a file without a name in the run directory, which a process receives open.

So a process can use it that may write no other file (a container's root is read-only, and its /tmp is
small). The file is divided into slots of one size. Slots that were read are used again, so that the
file is never longer than the most snapshots that waited at one time.
"""

import contextlib
import os

ROOM_LEFT = 64 << 20
"""Bytes of the file system that are left free for everything else that the run writes."""


class Spill:
    """The slots of one process; no other process uses them at the same time."""

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

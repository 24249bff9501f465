"""Turns at computing: at most as many devices of a run compute at once as there are processors.

Otherwise the scheduler would preempt two hundred devices that all have work in the middle of every
computation, each time at the cost of the caches' content. A device that has a turn computes to the
end, and the turn's number names memory that is warm from the turn before. Turns change only when a
device computes, as the host's load does anyway, never what it computes.

A turn is a record lock, which the kernel releases when its holder dies. The next holder is chosen by a
token in a socket, whose readers are woken one at a time (a lock or a poll wakes all of them) and
roughly in the order in which they came: a device that comes at the same time as a token may be first.
Tokens are hints: a device that reads one still has to get the lock, and a device that has waited in
vain for a second looks for turns whose token was lost with the holder. If all turns are held by devices
that make no progress (frozen ones), a device computes without a turn. The time at which a turn is given
back is recorded, so that a long queue, in which that happens again and again, is not taken for this
case.
"""

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

LOOK_AROUND = 1.0
"""Seconds without a token after which a waiter looks for turns that are free anyway."""
PATIENCE = 15.0
"""Seconds without any turn given back after which a waiter computes without one."""
_WHEN = struct.Struct("d")


class ComputingTurns:
    """The turns of a run, made before the devices are forked and used by all of them."""

    def __init__(self, most: int = 200) -> None:
        """Make a turn for each processor that this process may use, numbered from 0.

        Args:
            most: the largest number of turns: a token is one byte, and 278 fill a socket's buffer.
        """
        self._locks = os.memfd_create("turns")
        self._tokens, self._returned = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._count(most)
        os.ftruncate(self._locks, _WHEN.size * self.count)
        # The kernel's own timeout: Python's would poll, and a poll wakes every waiter.
        timeout = struct.pack("ll", int(LOOK_AROUND), int(LOOK_AROUND % 1 * 1e6))
        self._tokens.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        for turn in range(self.count):
            self._returned.send(bytes((turn,)))

    @classmethod
    def handed(cls, descriptors: Sequence[int]) -> Self:
        """Return the turns whose ``descriptors`` another process on this host has sent."""
        turns = cls.__new__(cls)
        turns._locks, tokens, returned = descriptors
        turns._tokens, turns._returned = (
            socket.socket(fileno=tokens),
            socket.socket(fileno=returned),
        )
        turns._count(200)
        return turns

    @property
    def descriptors(self) -> Sequence[int]:
        """The descriptors that another process needs to use the turns, too."""
        return self._locks, self._tokens.fileno(), self._returned.fileno()

    def _count(self, most: int) -> None:
        self._processors = sorted(os.sched_getaffinity(0))[:most]
        self.count = len(self._processors)
        self._patience = PATIENCE

    @contextlib.contextmanager
    def take(self) -> Iterator[int | None]:
        """Wait for a turn and hold it in the body.

        Yields:
            The turn's number, or None if all are held by devices that make no progress.
        """
        turn = self._acquire()
        # A turn stays on its processor, and so does its memory: otherwise the kernel may run the
        # process on any of them.
        os.sched_setaffinity(0, self._processors if turn is None else {self._processors[turn]})
        try:
            yield turn
        finally:
            if turn is not None:
                os.pwrite(self._locks, _WHEN.pack(time.monotonic()), _WHEN.size * turn)
                fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, turn)
                self._returned.send(bytes((turn,)))

    def _acquire(self) -> int | None:
        deadline = time.monotonic() + self._patience
        while True:
            token = self._read_token()
            for turn in token if token else range(self.count):
                with contextlib.suppress(BlockingIOError):
                    fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, turn)
                    self._patience = PATIENCE
                    return turn
            if not token and time.monotonic() >= deadline:
                moved = self._last_given_back()
                if moved + PATIENCE > time.monotonic():
                    self._patience, deadline = PATIENCE, moved + PATIENCE
                    continue
                self._patience = 0.0  # until a turn is available again
                return None

    def _last_given_back(self) -> float:
        """Return when a turn was last given back, by CLOCK_MONOTONIC; 0 if none was."""
        times = os.pread(self._locks, _WHEN.size * self.count, 0)
        return max(float(when) for (when,) in _WHEN.iter_unpack(times))

    def _read_token(self) -> bytes:
        """Wait for a token and return it; empty if none came in time."""
        # A device without patience left only looks: it must not wait again at every computation.
        flags = 0 if self._patience else socket.MSG_DONTWAIT
        with contextlib.suppress(BlockingIOError):
            return self._tokens.recv(1, flags)
        return b""


def holds_turn(network: int) -> bool:
    """Return True if a process of a network namespace holds a turn.

    A process that is frozen for long while it holds one keeps a processor idle.

    Args:
        network: descriptor of the namespace.
    """
    wanted = os.fstat(network).st_ino
    for line in Path("/proc/locks").read_text("utf-8", "replace").splitlines():
        _, kind, _, _, process, *_ = line.split()
        if kind == "POSIX":  # a role has no other record lock
            # It may have just ended, or be another user's and so not of this run.
            with contextlib.suppress(OSError):
                if Path(f"/proc/{process}/ns/net").stat().st_ino == wanted:
                    return True
    return False

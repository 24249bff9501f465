"""Turns at computing: at most so many devices of a run compute at once as there are processors.

Two hundred devices that all have work would otherwise be cut into by the scheduler in the middle of
every computation, each time at the price of what the caches held. Whoever has a turn runs to its
end, and the turn's number names memory that is warm from the turn before. It changes when a device
computes, within what the host's load decides anyway, and never what it computes.

A turn is a record lock, which the kernel releases when its holder dies. Who gets the next one is
told by a token that waits in a socket: its readers are woken one at a time, where a lock or a poll
wakes them all, and roughly in the order in which they came (who comes just when a token does, may be
first). Tokens are hints: whoever reads one still has to get the lock, and whoever waits in vain for
a second looks for turns whose token died with its holder. If all turns are held by devices that do
not move (frozen ones), a device goes ahead without. When a turn is given back is written down, so that
a long queue, in which that happens again and again, is not taken for such a case.
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
"""Seconds without a token after which a waiter looks for turns that are free all the same."""
PATIENCE = 15.0
"""Seconds without any turn given back after which it goes ahead without one."""
_WHEN = struct.Struct("d")


class Turns:
    """Made before the devices are forked and used by all of them."""

    def __init__(self, most: int = 200) -> None:
        """Make a turn for each processor that this process may use, numbered from 0.

        Args:
            most: at most so many: a token is one byte, and 278 of them fill a socket's buffer.
        """
        self._locks = os.memfd_create("turns")
        self._tokens, self._given = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._count(most)
        os.ftruncate(self._locks, _WHEN.size * self.count)
        # The kernel's own timeout: Python's would poll, and a poll wakes every waiter.
        timeout = struct.pack("ll", int(LOOK_AROUND), int(LOOK_AROUND % 1 * 1e6))
        self._tokens.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        for turn in range(self.count):
            self._given.send(bytes((turn,)))

    @classmethod
    def handed(cls, descriptors: Sequence[int]) -> Self:
        """Those of which another process has sent the ``descriptors``; it is on the same host."""
        turns = cls.__new__(cls)
        turns._locks, tokens, given = descriptors
        turns._tokens, turns._given = socket.socket(fileno=tokens), socket.socket(fileno=given)
        turns._count(200)
        return turns

    @property
    def descriptors(self) -> Sequence[int]:
        """What another process needs to use them too."""
        return self._locks, self._tokens.fileno(), self._given.fileno()

    def _count(self, most: int) -> None:
        self._processors = sorted(os.sched_getaffinity(0))[:most]
        self.count = len(self._processors)
        self._patience = PATIENCE

    @contextlib.contextmanager
    def take(self) -> Iterator[int | None]:
        """Wait for a turn and hold it in the body.

        Yields:
            The turn's number, or None if all are held by devices that do not move.
        """
        turn = self._acquire()
        # A turn stays on its processor, and its memory with it: which of them runs a process next
        # is otherwise up to chance.
        os.sched_setaffinity(0, self._processors if turn is None else {self._processors[turn]})
        try:
            yield turn
        finally:
            if turn is not None:
                os.pwrite(self._locks, _WHEN.pack(time.monotonic()), _WHEN.size * turn)
                fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, turn)
                self._given.send(bytes((turn,)))

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
                self._patience = 0.0  # until a turn is to be had again
                return None

    def _last_given_back(self) -> float:
        """When a turn was given back last, by CLOCK_MONOTONIC; 0 if none was."""
        times = os.pread(self._locks, _WHEN.size * self.count, 0)
        return max(float(when) for (when,) in _WHEN.iter_unpack(times))

    def _read_token(self) -> bytes:
        """Wait for a token; empty if none came for a while."""
        # Whoever has run out of patience looks, and does not wait once more at every computation.
        flags = 0 if self._patience else socket.MSG_DONTWAIT
        with contextlib.suppress(BlockingIOError):
            return self._tokens.recv(1, flags)
        return b""


def holds_turn(network: int) -> bool:
    """Whether a process of a network namespace holds a turn.

    Whoever is stopped for long while it does keeps a processor idle.

    Args:
        network: descriptor of the namespace.
    """
    wanted = os.fstat(network).st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, _, _, process, *_ = line.split()
        if kind == "POSIX":  # a role has no other record lock
            # It has just ended, or is another user's and none of the run's.
            with contextlib.suppress(OSError):
                if Path(f"/proc/{process}/ns/net").stat().st_ino == wanted:
                    return True
    return False

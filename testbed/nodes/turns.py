"""Turns at computing: at most so many devices of a run compute at once as there are processors.

Two hundred devices that all have work would otherwise be cut into by the scheduler in the middle of
every computation, each time at the price of what the caches held. Whoever has a turn runs to its
end, and the turn's number names memory that is warm from the turn before. It changes when a device
computes, within what the host's load decides anyway, and never what it computes.

A turn is a record lock, which the kernel releases when its holder dies. Who gets the next one is
told by a token in a pipe, because a pipe wakes one waiter where a lock wakes them all. Tokens are
hints: whoever reads one still has to get the lock, and whoever waits in vain for a second looks for
turns whose token died with its holder. If all turns are held by devices that do not move (frozen
ones), a device goes ahead without.
"""

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Iterator

LOOK_AROUND = 1.0
"""Seconds without a token after which a waiter looks for turns that are free all the same."""
PATIENCE = 15.0
"""Seconds after which it goes ahead without one: more than a queue of a thousand devices takes."""


class Turns:
    """Made before the devices are forked and used by all of them, not by the process that made it."""

    def __init__(self, count: int) -> None:
        """Make ``count`` turns, numbered from 0; at most 255."""
        self.count = count
        self._locks = os.memfd_create("turns")
        self._take, self._give = os.pipe2(os.O_NONBLOCK)
        self._waiting: select.epoll | None = None
        os.write(self._give, bytes(range(count)))
        self._patience = PATIENCE

    @contextlib.contextmanager
    def take(self) -> Iterator[int | None]:
        """Wait for a turn and hold it in the body.

        Yields:
            The turn's number, or None if all are held by devices that do not move.
        """
        turn = self._acquire()
        try:
            yield turn
        finally:
            if turn is not None:
                fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, turn)
                os.write(self._give, bytes((turn,)))

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
                self._patience = 0.0  # until a turn is to be had again
                return None

    def _read_token(self) -> bytes:
        """Wait for a token; empty if none came for a while."""
        if self._waiting is None:
            # Of this process's own: entries of one that was inherited would wake its parent.
            self._waiting = select.epoll()
            self._waiting.register(self._take, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        with contextlib.suppress(BlockingIOError):
            return os.read(self._take, 1)
        self._waiting.poll(LOOK_AROUND)
        with contextlib.suppress(BlockingIOError):  # somebody else was quicker
            return os.read(self._take, 1)
        return b""

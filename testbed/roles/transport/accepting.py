"""Accepting connections, and not asking again and again while there is no descriptor for another one.

A connection that cannot be accepted stays in the kernel's queue, where it makes the listener readable
for ever. The listener is not watched then until a connection has been closed, or for a while.
"""

import errno
import selectors
import socket
import time
from collections.abc import Callable

REST = 1.0
"""Seconds until it is tried again."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})
"""Errors that say nothing of the connection: this process or this host has no more to give."""


class Accepting:
    """One listener's; it is watched by ``selector`` whenever a connection could be accepted."""

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        warn: Callable[[str], None],
    ) -> None:
        """Watch the listener.

        Args:
            warn: told why a connection cannot be accepted; once, until one can be again.
        """
        listener.setblocking(False)
        self._listener = listener
        self._selector = selector
        self._warn = warn
        self._warned = False
        self._rests_until: float | None = None
        selector.register(listener, selectors.EVENT_READ)

    def accept(self, opened: Callable[[socket.socket, str, int], None]) -> None:
        """Accept a connection, if there is one that can be.

        Args:
            opened: given the connection, its peer's address and port; may raise OSError if it has no
                room for it.
        """
        try:
            accepted, (address, port) = self._listener.accept()
        except OSError as error:
            self._failed(error)
            return
        try:
            opened(accepted, address, port)
        except OSError as error:
            accepted.close()
            self._failed(error)
            return
        self._warned = False

    def _failed(self, error: OSError) -> None:
        if error.errno not in EXHAUSTED:  # the peer has gone already
            self._warn(f"a connection could not be accepted: {error}")
            return
        if not self._warned:
            self._warned = True
            self._warn(
                f"no connection can be accepted for now ({error.strerror}); it is tried again when one "
                f"was closed, and every {REST:g} s"
            )
        self._selector.unregister(self._listener)
        self._rests_until = time.monotonic() + REST

    def again(self, *, at_once: bool = False) -> None:
        """Watch the listener again if it has rested for long enough.

        Args:
            at_once: whether it has in any case, because a descriptor is free.
        """
        if self._rests_until is None:
            return
        if at_once or time.monotonic() >= self._rests_until:
            self._rests_until = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Listen no more."""
        if self._rests_until is None:
            self._selector.unregister(self._listener)
        self._listener.close()

"""Accepting connections, without a busy loop while no descriptor is free for another connection.

A connection that cannot be accepted stays in the kernel's queue, where it keeps the listener readable.
The listener is then not watched until a connection has been closed, or a while has passed.
"""

import errno
import selectors
import socket
import time
from collections.abc import Callable

REST = 1.0
"""Seconds until accepting is tried again."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})
"""Errors that are not the connection's: this process or this host has run out of a resource."""


class Accepting:
    """Accepts connections of a listener, which ``selector`` watches while one can be accepted."""

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        warn: Callable[[str], None],
    ) -> None:
        """Watch the listener.

        Args:
            warn: called with the reason why a connection cannot be accepted; if resources have run
                out, only once until a connection is accepted again.
        """
        listener.setblocking(False)
        self._listener = listener
        self._selector = selector
        self._warn = warn
        self._warned = False
        self._rests_until: float | None = None
        selector.register(listener, selectors.EVENT_READ)

    def accept(self, opened: Callable[[socket.socket, str, int], object]) -> None:
        """Accept a connection, if possible.

        Args:
            opened: called with the connection and its other side's address and port; may raise OSError
                if it has no room for the connection.
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
        if error.errno not in EXHAUSTED:  # the other side is gone already
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
        """Watch the listener again if it has rested for ``REST`` seconds.

        Args:
            at_once: watch it in any case, because a descriptor is free.
        """
        if self._rests_until is None:
            return
        if at_once or time.monotonic() >= self._rests_until:
            self._rests_until = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def close(self) -> None:
        if self._rests_until is None:
            self._selector.unregister(self._listener)
        self._rests_until = None
        self._listener.close()

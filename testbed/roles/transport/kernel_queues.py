"""Bytes that wait in the kernel for a socket: to be read, to be sent, to be acknowledged."""

import array
import fcntl
import socket
import termios

_SIOCOUTQNSD = 0x894B

STALLED = 1.0
"""Seconds without a further byte after which a message that is there in part has stalled."""


def unread(connection: socket.socket) -> int:
    """Return the number of bytes that have arrived and that this process has not read."""
    return _bytes_in(connection, termios.FIONREAD)


def under_way(connection: socket.socket) -> int:
    """Return the number of bytes sent that the other side's kernel has not acknowledged.

    For a Unix socket: the bytes that the other side has not read, with the kernel's overhead.
    """
    return _bytes_in(connection, termios.TIOCOUTQ)


def unsent(connection: socket.socket) -> int:
    """Return the number of bytes of the TCP stream that the kernel has never put on the wire yet."""
    return _bytes_in(connection, _SIOCOUTQNSD)


def is_idle(connection: socket.socket) -> bool:
    """Return True if nothing is to be read, and all bytes sent have reached the other side's kernel."""
    return not (unread(connection) or under_way(connection))


def _bytes_in(connection: socket.socket, request: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(connection, request, count)
    return count[0]

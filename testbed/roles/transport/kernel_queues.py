"""How many bytes wait in the kernel for a socket: to be read, to be sent, to be acknowledged."""

import array
import fcntl
import socket
import termios

_SIOCOUTQNSD = 0x894B


def unread(connection: socket.socket) -> int:
    """Bytes that have arrived, and that this process has not read."""
    return _bytes_in(connection, termios.FIONREAD)


def under_way(connection: socket.socket) -> int:
    """Bytes that were sent, and that the other side's kernel has not acknowledged.

    Of a Unix socket: what the other side has not read, with the kernel's overhead.
    """
    return _bytes_in(connection, termios.TIOCOUTQ)


def unsent(connection: socket.socket) -> int:
    """Bytes that the kernel took of TCP's stream, and has not put on the wire yet, not even once."""
    return _bytes_in(connection, _SIOCOUTQNSD)


def is_idle(connection: socket.socket) -> bool:
    """Return True if nothing is to be read, and all that was sent has reached the other's kernel."""
    return not (unread(connection) or under_way(connection))


def _bytes_in(connection: socket.socket, request: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(connection, request, count)
    return count[0]

"""Bytes that wait in the kernel for a socket: to be read, to be sent, to be acknowledged."""

import array
import fcntl
import socket
import struct
import termios

_SIOCOUTQNSD = 0x894B
_MIN_RTT = struct.Struct("148xI")
"""Of the kernel's tcp_info: tcpi_min_rtt, the shortest round trip of the last minutes, in µs."""
_NO_RTT = 2**32 - 1

STALLED = 1.0
"""Seconds without a further byte after which a message that is there in part has stalled."""


def unread(connection: socket.socket) -> int:
    """Return the number of bytes that have arrived and that this process has not read."""
    return _bytes_in(connection, termios.FIONREAD)


def under_way(connection: socket.socket) -> int:
    """Return the number of bytes sent that the other side's kernel has not acknowledged."""
    return _bytes_in(connection, termios.TIOCOUTQ)


def unsent(connection: socket.socket) -> int:
    """Return the number of bytes of the TCP stream that the kernel has never put on the wire yet."""
    return _bytes_in(connection, _SIOCOUTQNSD)


def shortest_round_trip(connection: socket.socket) -> float | None:
    """Return the shortest round trip of a TCP connection in seconds; None if none was measured."""
    if connection.family == socket.AF_UNIX:
        return None
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MIN_RTT.size)
    if len(info) < _MIN_RTT.size:
        return None
    (microseconds,) = _MIN_RTT.unpack(info)
    return None if microseconds == _NO_RTT else microseconds / 1e6


def _bytes_in(connection: socket.socket, request: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(connection, request, count)
    return count[0]

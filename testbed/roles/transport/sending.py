"""Sending a message in pieces, as far as the kernel takes them now."""

import contextlib
import socket
from collections.abc import Sequence
from typing import TypeAlias

Pieces: TypeAlias = Sequence[bytes | memoryview]


def send_available(connection: socket.socket, pieces: Pieces, flags: int = 0) -> bytes:
    """Send what the kernel has room for, in one call, and return a copy of the rest.

    The pieces may lie in memory that changes after the call.

    Args:
        flags: of the call, besides MSG_DONTWAIT.

    Raises:
        OSError: the connection broke.
    """
    sent = 0
    with contextlib.suppress(BlockingIOError):
        sent = connection.sendmsg(pieces, [], socket.MSG_DONTWAIT | flags)
    rest = []
    for piece in pieces:
        if sent < len(piece):
            rest.append(bytes(piece[sent:]))
        sent -= min(sent, len(piece))
    return b"".join(rest)

"""Sending a message in pieces, as far as the kernel takes them now."""

import contextlib
import socket
from collections.abc import Sequence
from typing import TypeAlias

Pieces: TypeAlias = Sequence[bytes | memoryview]


def send_available(connection: socket.socket, pieces: Pieces) -> bytes:
    """Send what the kernel has room for, gathered by it; returns a copy of the rest.

    Pieces may lie in memory that changes after the call: what was not sent is a copy.

    Raises:
        OSError: the connection broke.
    """
    sent = 0
    with contextlib.suppress(BlockingIOError):
        sent = connection.sendmsg(pieces, [], socket.MSG_DONTWAIT)
    rest = []
    for piece in pieces:
        if sent < len(piece):
            rest.append(bytes(piece[sent:]))
        sent -= min(sent, len(piece))
    return b"".join(rest)

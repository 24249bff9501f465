"""Receiving whole messages from the server, as workers and the evaluator do."""

import socket
from collections.abc import Mapping

from testbed.wire.frames import HEADER, Head, Kind, parse


def receive_header(connection: socket.socket, accepts: Mapping[Kind, int]) -> Head:
    """Receive and check one header."""
    head = bytearray(HEADER.size)
    receive_exactly(connection, memoryview(head))
    return parse(bytes(head), accepts)


def receive_exactly(connection: socket.socket, memory: memoryview) -> None:
    """Fill ``memory`` from a connection.

    Raises:
        ConnectionError: the connection ended first.
    """
    filled = 0
    while filled < len(memory):
        count = connection.recv_into(memory[filled:], flags=socket.MSG_WAITALL)
        if count == 0:
            raise ConnectionResetError("the server closed the connection")
        filled += count

"""Connecting: to the server, as workers and the evaluator do, or to a peer."""

import socket
import time

from testbed.roles.receiving import receive_header
from testbed.roles.settings import PORT, Settings
from testbed.wire import WireError
from testbed.wire.frames import Kind, header

CONNECT_TIMEOUT = 20.0
"""Seconds to wait for the server to listen and to answer the greeting."""
_RETRY = 0.05


def call(address: str, seconds: float) -> socket.socket:
    """Connect to a device, as soon as it listens.

    Raises:
        OSError: it does not within so many seconds.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection((address, PORT), timeout=seconds)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def connect(settings: Settings, number: int, parameters: int) -> socket.socket:
    """Connect to the server and greet it.

    Args:
        number: the device's number; workers count from 0, the evaluator has ``settings.workers``.
        parameters: the model's size, which the server's must equal.

    Raises:
        WireError: the server refused the greeting or has another model.
        OSError: there is no way to the server.
    """
    connection = call(settings.server_address, CONNECT_TIMEOUT)
    secret = bytes.fromhex(settings.secret)
    connection.sendall(header(Kind.HELLO, number, length=len(secret)) + secret)
    _, _, theirs, _, _ = receive_header(connection, {Kind.WELCOME: 0})
    if theirs != parameters:
        raise WireError(f"the server's model has {theirs} parameters, this device's {parameters}")
    connection.settimeout(None)
    return connection

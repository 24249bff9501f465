"""Connecting to the server, as workers and the evaluator do, or to a peer."""

import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from testbed.training.run_devices import PORT
from testbed.training.settings import Settings
from testbed.updates import FloatVector, as_bytes
from testbed.wire import WireError
from testbed.wire.frames import HEADER, Head, Kind, header, parse

CONNECT_TIMEOUT = 20.0
"""Seconds to wait for the server to listen and to answer the greeting."""
_RETRY = 0.05
_RETRY_GREETING = 0.1
_ALIVE_PERIOD = 5
"""Seconds of silence after which the kernel probes a server that may be killed (keepalive)."""
_ALIVE_COUNT = 127
"""Probes that may stay unanswered: a link that is down for minutes is not the server's end."""
RESET, FINISH = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)
"""Values of SO_LINGER for a worker's connection while it works, and once training is over.

Bytes that a killed worker had handed to its kernel must not be sent after its end: over a link that
was down, they would still arrive while the next incarnation works.
"""
_INCARNATION, _KILLS = 32, 48
"""Bits of a greeting's number below the device's incarnation, and below the kills of the server."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity in a greeting; its integer value is the greeting's number.

    Attributes:
        number: the device's; workers count from 0, the evaluator has ``Settings.evaluator``.
        incarnation: the number of times that the device was killed and came back.
        kills: the number of times that the server had been killed when this process was started.
    """

    number: int
    incarnation: int = 0
    kills: int = 0

    def __int__(self) -> int:
        return self.number | self.incarnation << _INCARNATION | self.kills << _KILLS

    @classmethod
    def of(cls, number: int) -> "Identity":
        """Return the identity that a greeting's number encodes."""
        incarnation = number >> _INCARNATION & (1 << _KILLS - _INCARNATION) - 1
        return cls(number & (1 << _INCARNATION) - 1, incarnation, number >> _KILLS)


@dataclass(frozen=True, slots=True)
class Greeted:
    """A connection over which the server has answered a greeting.

    Attributes:
        goes_on: True if the server was restored, and says from where this worker goes on.
        base: the vector that the worker was sent last, if the next answer only states its changes.
    """

    connection: socket.socket
    goes_on: bool = False
    base: FloatVector | None = None


def call(address: str, seconds: float) -> socket.socket:
    """Connect to a device as soon as it listens.

    Raises:
        OSError: it does not listen within ``seconds``.
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


def connect(
    settings: Settings,
    identity: Identity,
    parameters: int,
    *,
    server: int = 0,
    before: Callable[[], None] = lambda: None,
) -> Greeted:
    """Connect to a server and greet it; wait for a server that may be away for a while.

    Args:
        parameters: the size of the model, or of the server's slice, which must equal the server's.

    Raises:
        WireError: the server refused the greeting or has another model.
        OSError: the server cannot be reached.
    """
    absence = settings.absence(server)
    deadline = time.monotonic() + CONNECT_TIMEOUT + (absence or 0.0)
    while True:
        connection = None
        try:
            # The server may also be killed during the call.
            connection = call(settings.address(server), max(_RETRY, deadline - time.monotonic()))
            if absence is not None and settings.timing.clock == "wall":
                _notice_its_end(connection)
            before()
            return _greet(connection, settings, int(identity), parameters)
        except (ConnectionError, TimeoutError):
            if connection is not None:
                connection.close()
            if absence is None or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_GREETING)


def _notice_its_end(connection: socket.socket) -> None:
    """Turn keepalive on, because the server's end may be reported only once, while the link is down."""
    for option, value in (
        (socket.TCP_KEEPIDLE, _ALIVE_PERIOD),
        (socket.TCP_KEEPINTVL, _ALIVE_PERIOD),
        (socket.TCP_KEEPCNT, _ALIVE_COUNT),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _greet(connection: socket.socket, settings: Settings, number: int, parameters: int) -> Greeted:
    secret = bytes.fromhex(settings.network.secret)
    connection.sendall(header(Kind.HELLO, number, length=len(secret)) + secret)
    accepts = {Kind.WELCOME: 0, Kind.RESUME: 4 * parameters}
    head = _receive_header(connection, accepts)
    theirs, length = head.number, head.length
    if theirs != parameters:
        raise WireError(f"the server's model has {theirs} parameters, this device's {parameters}")
    base = None
    if length:
        base = np.empty(parameters, np.float32)
        if length != base.nbytes:
            raise WireError(f"parameters of {length} bytes, expected {base.nbytes}")
        _receive_exactly(connection, as_bytes(base))
    connection.settimeout(None)
    return Greeted(connection, head.kind is Kind.RESUME, base)


def _receive_header(connection: socket.socket, accepts: Mapping[Kind, int]) -> Head:
    head = bytearray(HEADER.size)
    _receive_exactly(connection, memoryview(head))
    return parse(bytes(head), accepts)


def _receive_exactly(connection: socket.socket, memory: memoryview) -> None:
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

"""The worker: pull, one SGD step, compress, wait, push (paper 001, Algorithm 1).

The parameters are received straight into the model's own memory and a dense gradient is sent from
where it was computed. A push and the next pull leave in one call. While it waits, the worker
listens, so that the end of training does not have to wait for it.
"""

import select
import socket
from collections.abc import Mapping

import numpy as np

from testbed import durations
from testbed.algorithms import ALGORITHMS
from testbed.algorithms.interface import as_bytes
from testbed.learning.batches import Batches
from testbed.learning.datasets import Dataset, shards
from testbed.learning.learner import Learner
from testbed.roles.settings import PORT, Settings
from testbed.streams import stream
from testbed.wire import WireError
from testbed.wire.encodings import encode
from testbed.wire.frames import HEADER, Kind, header, parse

CONNECT_TIMEOUT = 20.0
"""Seconds to wait for the server to listen and to answer the greeting."""


def connect(settings: Settings, number: int, parameters: int) -> socket.socket:
    """Connect to the server and greet it.

    Args:
        number: the device's number; workers count from 0, the evaluator has ``settings.workers``.
        parameters: the model's size, which the server's must equal.

    Raises:
        WireError: the server refused the greeting or has another model.
        OSError: there is no way to the server.
    """
    connection = socket.create_connection((settings.server_address, PORT), timeout=CONNECT_TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secret = bytes.fromhex(settings.secret)
    connection.sendall(header(Kind.HELLO, number, length=len(secret)) + secret)
    _, _, theirs, _, _ = receive_header(connection, {Kind.WELCOME: 0})
    if theirs != parameters:
        raise WireError(f"the server's model has {theirs} parameters, this device's {parameters}")
    connection.settimeout(None)
    return connection


def receive_header(
    connection: socket.socket, accepts: Mapping[Kind, int]
) -> tuple[Kind, int, int, float, int]:
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


def send_pieces(connection: socket.socket, pieces: list[bytes | memoryview]) -> None:
    """Send all pieces, gathered by the kernel, without joining them first."""
    pending = [memoryview(piece) for piece in pieces]
    while pending:
        sent = connection.sendmsg(pending)
        while pending and sent >= len(pending[0]):
            sent -= len(pending.pop(0))
        if pending:
            pending[0] = pending[0][sent:]


def work(settings: Settings, number: int, dataset: Dataset, learner: Learner) -> None:
    """Be worker ``number`` until the server says STOP."""
    algorithm = ALGORITHMS[settings.algorithm["name"]]
    options = algorithm.options_type.model_validate(settings.algorithm)
    half = algorithm.worker(options, learner.layout)
    shard = shards(len(dataset.train_images), settings.workers, settings.seed)[number]
    batches = Batches(dataset, shard, settings.batch_size, stream(settings.seed, "batches", number))
    waiting = durations.LAWS[settings.waiting_law](settings.waiting_mean)
    waiting_stream = stream(settings.seed, "waiting", number)

    parameters = as_bytes(learner.parameters)
    accepts = {Kind.PARAMETERS: len(parameters), Kind.STOP: 0}
    pull = header(Kind.PULL)
    with connect(settings, number, learner.layout.total) as connection:
        send_pieces(connection, [pull])
        while True:
            kind, _, version, _, length = receive_header(connection, accepts)
            if kind is Kind.STOP:
                return
            if length != len(parameters):
                raise WireError(f"parameters of {length} bytes, expected {len(parameters)}")
            receive_exactly(connection, parameters)
            gradient, loss = learner.gradient(*batches.next())
            encoding, body = encode(half.compress(gradient))
            if _stopped_while_waiting(connection, waiting.sample(waiting_stream)):
                return
            push = header(
                Kind.PUSH,
                version,
                encoding=encoding,
                loss=float(np.float32(loss)),
                length=sum(map(len, body)),
            )
            send_pieces(connection, [push, *body, pull])


def _stopped_while_waiting(connection: socket.socket, seconds: float) -> bool:
    """Wait; returns early, with True, if the server has something to say: that can only be STOP."""
    if seconds <= 0:
        return False
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    if not poll.poll(seconds * 1000):
        return False
    receive_header(connection, {Kind.STOP: 0})
    return True

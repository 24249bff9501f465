"""The worker: pull, one SGD step, compress, wait, push (paper 001, Algorithm 1).

The parameters are received straight into the model's own memory and a dense gradient is sent from
where it was computed. A push and the next pull leave in one call. While it waits, the worker
listens, so that the end of training does not have to wait for it.
"""

import contextlib
import select
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from testbed import durations
from testbed.algorithms import ALGORITHMS
from testbed.algorithms.interface import as_bytes
from testbed.learning.batches import Batches
from testbed.learning.datasets import Dataset, shards
from testbed.learning.learner import Learner
from testbed.nodes.turns import Turns
from testbed.roles.sending import send_available
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


@dataclass(frozen=True, slots=True)
class TurnTaking:
    """The learners that a worker computes with.

    Attributes:
        own: memory of this process's own; its pages are taken from the kernel when it is first used.
        shared: one per turn, in memory that all workers of the host share.
        turns: whose turn it is.
    """

    own: Learner
    shared: tuple[Learner, ...]
    turns: Turns

    @contextlib.contextmanager
    def take(self) -> Iterator[Learner]:
        """Wait for a turn; the learner may be used, and what it returned be read, in the body."""
        with self.turns.take() as turn:
            yield self.own if turn is None else self.shared[turn]


def work(settings: Settings, number: int, dataset: Dataset, learners: TurnTaking) -> None:
    """Be worker ``number`` until the server says STOP."""
    layout = learners.own.layout
    algorithm = ALGORITHMS[settings.algorithm["name"]]
    options = algorithm.options_type.model_validate(settings.algorithm)
    half = algorithm.worker(options, layout)
    shard = shards(len(dataset.train_images), settings.workers, settings.seed)[number]
    batches = Batches(dataset, shard, settings.batch_size, stream(settings.seed, "batches", number))
    waiting = durations.LAWS[settings.waiting_law](settings.waiting_mean)
    waiting_stream = stream(settings.seed, "waiting", number)

    size = as_bytes(learners.own.parameters).nbytes
    accepts = {Kind.PARAMETERS: size, Kind.STOP: 0}
    pull = header(Kind.PULL)
    with connect(settings, number, layout.total) as connection:
        # Woken once, by the whole answer (or by the end of the stream behind a STOP): a turn is not
        # spent waiting for a slow link. An answer longer than the kernel's buffers wakes early.
        answer = HEADER.size + size
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, answer)
        arrived = select.poll()
        arrived.register(connection, select.POLLIN)
        connection.sendall(pull)
        while True:
            arrived.poll()
            kind, _, version, _, length = receive_header(connection, accepts)
            if kind is Kind.STOP:
                return
            if length != size:
                raise WireError(f"parameters of {length} bytes, expected {size}")
            seconds = waiting.sample(waiting_stream)
            with learners.take() as learner:
                receive_exactly(connection, as_bytes(learner.parameters))
                gradient, loss = learner.gradient(*batches.next())
                encoding, body = encode(half.compress(gradient))
                push = header(
                    Kind.PUSH,
                    version,
                    encoding=encoding,
                    loss=float(np.float32(loss)),
                    length=sum(map(len, body)),
                )
                pieces: list[bytes | memoryview] = [push, *body, pull]
                # The gradient is there only for the turn; what is not sent in it is copied.
                rest = b"".join(pieces) if seconds else send_available(connection, pieces)
            if seconds and _stopped_while_waiting(connection, seconds, answer):
                return
            connection.sendall(rest)


def _stopped_while_waiting(connection: socket.socket, seconds: float, answer: int) -> bool:
    """Wait; returns early, with True, if the server has something to say: that can only be STOP.

    Args:
        answer: bytes from which on the connection is to count as readable again afterwards.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    if not poll.poll(seconds * 1000):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, answer)
        return False
    receive_header(connection, {Kind.STOP: 0})
    return True

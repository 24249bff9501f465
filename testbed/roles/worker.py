"""The worker: pull, one SGD step, compress, wait, push (paper 001, Algorithm 1).

The parameters are received straight into the model's own memory (unless pulls bring only what
changed) and a dense float32 gradient is sent from where it was computed. A push and the next pull
leave in one call. While it waits, the worker listens, so that the end of training does not have to
wait for it.
"""

import contextlib
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from testbed import durations
from testbed.algorithms import ALGORITHMS
from testbed.learning.batches import Batches
from testbed.learning.datasets import Dataset, shards
from testbed.learning.learner import Learner
from testbed.nodes.turns import Turns
from testbed.roles.pulling import ANSWERS
from testbed.roles.receiving import receive_header
from testbed.roles.sending import send_available
from testbed.roles.settings import PORT, Settings
from testbed.streams import stream
from testbed.wire import WireError
from testbed.wire.choice import EncodingChoice
from testbed.wire.encodings import Codec
from testbed.wire.frames import Kind, header

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

    codec = Codec(EncodingChoice.model_validate(settings.encoding), layout.sizes)
    pull = header(Kind.PULL)
    with connect(settings, number, layout.total) as connection:
        answers = ANSWERS[settings.pulls](connection, layout)
        answers.listen()
        connection.sendall(pull)
        while True:
            version = answers.wait()
            if version is None:
                return
            seconds = waiting.sample(waiting_stream)
            with learners.take() as learner:
                answers.take(learner.parameters)
                gradient, loss = learner.gradient(*batches.next())
                update = half.compress(gradient)
                encoding, body = codec.encode(update)
                if codec.lossy:
                    half.lost(update, codec.rounded(update))
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
            if seconds:
                if _stopped_while_waiting(connection, seconds):
                    return
                answers.listen()
            connection.sendall(rest)


def _stopped_while_waiting(connection: socket.socket, seconds: float) -> bool:
    """Wait; returns early, with True, if the server has something to say: that can only be STOP."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    if not poll.poll(seconds * 1000):
        return False
    receive_header(connection, {Kind.STOP: 0})
    return True

"""The worker that asks: pull, compute, compress, wait, push (paper 001, Algorithm 1).

Parameters are received straight into the model's own memory (unless pulls bring only what changed),
and a dense float32 gradient is sent from where it was computed. A push and the next pull are sent in
one call. While it waits, the worker listens, so that the end of training does not have to wait for it.
The worker that is sent every version unasked is in ``testbed.roles.worker.listener``.
"""

import socket

from testbed.roles.transport.sending import send_available
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.roles.worker.pauses import Pause
from testbed.roles.worker.pulling import Answers
from testbed.roles.worker.pushing import push
from testbed.telemetry.board import DeviceLine
from testbed.training.computation import Computation
from testbed.wire.frames import Kind, header


def ask(  # noqa: PLR0917 - what a worker is made of
    connection: socket.socket,
    answers: Answers,
    computation: Computation,
    learners: TurnTaking,
    pause: Pause,
    line: DeviceLine,
    parking: FaultsAfterPushes,
    *,
    asked: bool = False,
) -> None:
    """Run a worker that asks, over a greeted connection, until the server says STOP.

    Args:
        asked: True if it has asked already, over another connection.
    """
    pull = header(Kind.PULL)
    answers.listen()
    if not asked:
        connection.sendall(pull)
    while True:
        version = answers.wait()
        if version is None:
            return
        parking.answered(version)
        pause.begin()
        line.training()
        with learners.take() as learner:
            answers.take(learner.parameters)
            gradient, loss = computation.gradient(learner, computation.draw())
            pieces = [*push(version, computation.encode(gradient), loss), pull]
            # The gradient is valid only during the turn; what is not sent by then is copied.
            at_once = pause.over()
            rest = send_available(connection, pieces) if at_once else b"".join(pieces)
        line.waiting()
        if not at_once and not pause.wait(connection):
            return
        answers.listen()
        connection.sendall(rest)
        parking.pushed()

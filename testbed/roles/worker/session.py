"""One worker over one greeted connection: what it works with, and how it pushes."""

import socket
from dataclasses import dataclass

from testbed.roles.transport.sending import Pieces
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.roles.worker.pulling import Answers
from testbed.telemetry.board import DeviceLine
from testbed.training.computation import Computation
from testbed.training.parameter_service import as_loss
from testbed.updates import FloatVector
from testbed.wire.frames import Kind, header


@dataclass(frozen=True, slots=True)
class Session:
    """The parts that a worker works with.

    Attributes:
        answers: what the server sends over ``connection``.
        line: where the worker writes its state.
        faults: those that strike it after its pushes.
    """

    connection: socket.socket
    answers: Answers
    computation: Computation
    learners: TurnTaking
    line: DeviceLine
    faults: FaultsAfterPushes

    def push(self, version: int, gradient: FloatVector, loss: float) -> Pieces:
        """Return the pieces of the message that pushes a gradient; they may share its memory."""
        encoded = self.computation.encode(gradient)
        head = header(
            Kind.PUSH,
            version,
            encoding=encoded.encoding,
            loss=as_loss(loss),
            length=encoded.size,
        )
        return [head, *encoded.body]

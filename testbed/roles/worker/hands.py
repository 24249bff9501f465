"""The hands of a worker: the part of it that has tensors, whoever decides what it does."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from testbed.engine.events import Message, Pull, Push, Report
from testbed.roles.sockets.parameters import ReceivedParameters, Take
from testbed.roles.transport.endpoint import Pieces
from testbed.roles.turn_taking import TurnTaking
from testbed.telemetry.state_board import DeviceLine
from testbed.training.computation import Computation
from testbed.training.parameter_service import as_loss
from testbed.training.pushed_parts import Encoded
from testbed.updates import FloatVector
from testbed.wire.frames import Kind, header

PULL: Pieces = [header(Kind.PULL)]


def report(version: int) -> Pieces:
    """Return the message that a computation at a version is over, and nothing is pushed."""
    return [header(Kind.FINISHED, version)]


class Hands:
    """One worker's computation, its parameters, and the messages that it makes of both."""

    def __init__(
        self,
        computation: Computation,
        parameters: ReceivedParameters,
        take: Take,
        learners: TurnTaking,
        line: DeviceLine,
    ) -> None:
        """Start with nothing computed.

        Args:
            take: receives parameters that have not been received yet.
        """
        self.computation, self.parameters = computation, parameters
        self._take, self._learners, self.line = take, learners, line
        self._bases: Sequence[int] = ()
        self._gradient: FloatVector = np.empty(0, np.float32)
        self._kept: FloatVector | None = None
        self._loss = 0.0
        self._pushes: list[Pieces] | None = None

    @contextlib.contextmanager
    def computed(self, bases: Sequence[int]) -> Iterator[None]:
        """Take a turn and compute a leg at parameters that have come.

        In the body, what is sent lies in the learner's memory; ``keep`` what is to be sent later.

        Raises:
            ConnectionError: the parameters are lost with their connection; nothing was drawn.
        """
        self.line.training()
        with self._learners.take() as learner:
            own = self.computation
            if not own.goes_on:
                self.parameters.put(bases, learner.parameters, self._take)
            drawn = own.draw(self.parameters.dealt.get(bases[0], 0))
            self._gradient, self._loss = own.gradient(learner, drawn, min(bases))
            self._bases, self._pushes = bases, None
            yield
        self.line.waiting()

    def encode(self) -> None:
        """Select and encode what is pushed, unless that was done."""
        if self._pushes is None:
            parts = self.computation.encode(self._gradient)
            self._pushes = [
                self._message(base, part) for base, part in zip(self._bases, parts, strict=True)
            ]

    def _message(self, base: int, part: Encoded) -> Pieces:
        head = header(
            Kind.PUSH,
            base,
            encoding=part.encoding,
            loss=as_loss(self._loss),
            length=part.size,
        )
        return [head, *part.body]

    def keep(self) -> None:
        """Keep what was computed beyond the turn: what is encoded, or else the gradient."""
        if self._pushes is not None:
            self._pushes = [[b"".join(pieces)] for pieces in self._pushes]
            return
        if self._kept is None:
            self._kept = np.empty_like(self._gradient)
        np.copyto(self._kept, self._gradient)
        self._gradient = self._kept

    def message(self, conversation: int, message: Message) -> Pieces:
        """Return the pieces of a message, a push only once; they may lie where it was computed."""
        if isinstance(message, Pull):
            return PULL
        if isinstance(message, Report):
            return report(message.version)
        assert isinstance(message, Push)
        return self.push(conversation)

    def push(self, conversation: int) -> Pieces:
        """Return the message that pushes a server's part; call it once for each."""
        self.encode()
        assert self._pushes is not None
        pieces, self._pushes[conversation] = self._pushes[conversation], ()
        return pieces

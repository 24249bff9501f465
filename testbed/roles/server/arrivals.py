"""Workers' messages, handled in the order in which they arrive, and the answers to them.

Under the virtual clock the order is the clock's: ``clock.star`` gives pushes to the service,
and uses this module for what it decodes and answers.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from testbed.roles.recording import Recorder
from testbed.roles.server.connections import Connections
from testbed.roles.server.evaluator import Evaluator
from testbed.roles.server.phase import Phase
from testbed.roles.server.quorum import Quorum
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.telemetry.board import ServerLine
from testbed.training.parameter_service import Answer, ParameterService, Pushed
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, Codec
from testbed.wire.frames import Frame, Kind, header


class Arrivals:
    """Tells the service what has arrived, and sends what workers are due.

    Attributes:
        note: called with every answer before it is sent, and its worker; None: nothing is called.
    """

    def __init__(
        self,
        connections: Connections,
        service: ParameterService,
        codec: Codec,
        *,
        evaluator: Evaluator,
        recorder: Recorder,
        quorum: Quorum,
        callers: Collection[int],
        line: ServerLine,
        phase: Phase,
        now: Callable[[], float],
        others: bool = False,
    ) -> None:
        """Connect the service to its workers.

        Args:
            callers: the numbers of the workers that belong here.
            now: returns the seconds since training began, by the run's clock; 0 before that.
            others: True if there are other servers, with which workers may train on after STOP.
        """
        self._others = others
        self.note: Callable[[int, Answer], None] | None = None
        self._connections = connections
        self._service = service
        self._codec = codec
        self._evaluator = evaluator
        self._recorder = recorder
        self._quorum = quorum
        self._callers = callers
        self._line = line
        self._phase = phase
        self._now = now

    def greet(self, connection: Connection, frame: Frame) -> bool:
        """Take a device into the run; return True if it is a worker.

        Raises:
            WireError: it has no place in this run.
        """
        identity, workers = self._connections.identify(frame), self._connections.workers
        number = identity.number
        if number in workers and identity.incarnation < workers[number].incarnation:
            raise WireError(f"an earlier process of device {number} than the one that is connected")
        if self._quorum.workers_return and number in workers and self._phase.began is not None:
            # It was killed while its link was down, so that the end of its connection did not arrive.
            self._connections.close(workers[number], "it came back over another connection")
        is_evaluator = number == self._evaluator.number
        if number in workers or not (is_evaluator or number in self._callers):
            raise WireError(f"device {number} is not of this run, or is connected already")
        self._connections.welcome(connection)
        if is_evaluator:
            self._evaluator.greeted(connection)
            return False
        self._connections.is_worker(connection, number)
        connection.incarnation = identity.incarnation
        workers[number] = connection
        self._service.join(number, self._now())
        self._service.count(number, frame.size)
        self._quorum.greeted()
        return True

    def greeted(self, connection: Connection) -> None:
        """Send a worker that has greeted what it is due: STOP, if training is over."""
        if self._phase.over:
            self.say_stop([connection])
        self.send_due()

    def say_stop(self, connections: Iterable[Connection]) -> None:
        """Say STOP to workers; one that may train on with other servers gets parameters before it.

        Those are the last ones, and only for a worker that this server has sent none before: one that
        has just come back.
        """
        found = list(connections)
        if self._others:
            half = self._service.half
            body = as_bytes(half.parameters)
            head = header(Kind.PARAMETERS, half.version, encoding=DENSE, length=len(body))
            for connection in found:
                if connection.informed or connection.ending:
                    continue
                try:
                    connection.send([head, body])
                    self._line.sent(len(head) + len(body), len(body))
                except BrokenConnectionError as error:
                    self._connections.broke(connection, error)
        self._connections.say_stop(found)

    def take(self, connection: Connection, frame: Frame) -> None:
        """Take in a worker's message, and answer the workers that are due after it."""
        number = connection.device
        assert number is not None
        self._service.count(number, frame.size)
        if self._phase.over and self._others:
            # The worker trains on with other servers.
            if frame.kind is Kind.PUSH:
                connection.payload_bytes += len(frame.body)
                self._service.count_late(number, 0, len(frame.body))
            return
        if frame.kind is Kind.PULL:
            if self._service.is_asking(number) or connection.pending:
                raise WireError("a pull before the parameters of the last one were read")
            self._recorder.record(self._service.asked(number, self._now()))
        else:
            connection.payload_bytes += len(frame.body)
            pushed = self.decode(frame)
            if self._phase.began is None:
                raise WireError("a push before training began")
            now = self._phase.host_time()
            self._recorder.record(self._service.pushed(number, pushed, now, now))
            self._phase.over = self._phase.over or self._service.finished
        self.send_due()

    def decode(self, frame: Frame) -> Pushed:
        """Return the push or report that a frame holds."""
        if frame.kind is Kind.FINISHED:
            return Pushed(frame.number, None, 0, math.nan)
        # A push that is too late to be an update is counted, and not decoded.
        late = self._service.finished
        update = None if late else self._codec.decode(frame.encoding, frame.body)
        return Pushed(frame.number, update, len(frame.body), frame.loss, frame.count)

    def send_due(self) -> None:
        """Send parameters to the workers that are due."""
        for number in self._service.due(self._has_room, self._now()):
            connection = self._connections.workers[number]
            try:
                self.answer(connection, number)
                self._service.sent(number, self._now())
            except BrokenConnectionError as error:
                self._connections.broke(connection, error)

    def _has_room(self, number: int) -> bool:
        return not self._connections.workers[number].pending

    def answer(self, connection: Connection, number: int) -> int:
        """Send a worker that is due its parameters, and return the message's bytes."""
        answer = self._service.answer(number)
        if self.note is not None:
            self.note(number, answer)
        return self.send(
            connection, answer.version, answer.encoding, answer.body, dealt=answer.dealt
        )

    def send(
        self,
        connection: Connection,
        version: int,
        encoding: int,
        body: Sequence[bytes | memoryview],
        *,
        dealt: int = 0,
    ) -> int:
        """Send a worker parameters, and return the message's bytes.

        Args:
            dealt: the number of its mini-batch in the run's stream, if there is one.
        """
        length = sum(map(len, body))
        head = header(Kind.PARAMETERS, version, encoding=encoding, count=dealt, length=length)
        connection.send([head, *body])
        connection.informed = True
        self._line.sent(len(head) + length, length)
        if connection.pending:
            self._connections.watch(connection)
        return len(head) + length

    def suspect_silent(self) -> None:
        """Suspect workers that have been silent for too long; others may have waited for them."""
        now = self._now()
        for worker in self._service.overdue(now):
            self._recorder.record(self._service.suspect(worker, now))
            self.go_on()

    def leave(self, worker: int) -> None:
        """Go on without a worker that is gone; others may have waited for it."""
        self._recorder.record(self._service.leave(worker))
        self.go_on()

    def go_on(self) -> None:
        """Go on with fewer workers, which may have led to an update."""
        if self._phase.began is not None:
            self._recorder.tell_reached(self._service.half.version)
            self._phase.over = self._service.finished
            self.send_due()

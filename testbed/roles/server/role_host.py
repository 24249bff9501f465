"""A role that serves, on its device: what its connections bring becomes events, and it is answered.

Under the virtual clock the clock decides, and the host only decodes what has come, and sends.
"""

import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from testbed.engine.aggregator import ABOVE, Aggregator
from testbed.engine.events import (
    At,
    Closed,
    Compute,
    Due,
    Event,
    Heard,
    Opened,
    Parameters,
    Pull,
    Record,
    Send,
    Settled,
    WhenLeft,
)
from testbed.engine.server import Server
from testbed.roles.recorder import Recorder
from testbed.roles.server.server_connections import REPORT_PERIOD, ServerConnections, TrainingPhase
from testbed.roles.transport.connection import Connection
from testbed.telemetry.state_board import DeviceLine, ServerLine
from testbed.training.parameter_service import ParameterService, Pushed
from testbed.training.service_entries import TrainingBegan
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, UpdateCodec
from testbed.wire.frames import Frame, Kind, header

GREETING_TIMEOUT = 10.0
"""Seconds that a connection may stay silent before its greeting."""


class RoleHost:
    """Tells a role what has come of its callers, and does what it says.

    Attributes:
        role: the role that serves.
        began: called when training begins, or goes on.
        above: called with what an aggregator sends to its server, or computes at the parameters of
            that; what is sent is used up at once.
    """

    def __init__(
        self,
        role: Server | Aggregator,
        service: ParameterService,
        connections: ServerConnections,
        codec: UpdateCodec,
        *,
        recorder: Recorder,
        callers: Collection[int],
        line: ServerLine,
        own_line: DeviceLine,
        phase: TrainingPhase,
        now: Callable[[], float],
        others: bool = False,
    ) -> None:
        """Connect the role to its callers.

        Args:
            callers: the numbers of the workers that belong here.
            line, own_line: of the board: for all servers' figures, and for this device's.
            now: returns the seconds since training began, by the run's clock; 0 before that.
            others: True if there are other servers, with which workers may train on after STOP.
        """
        self.role = role
        self.began: Callable[[], None] = lambda: None
        self.above: Callable[[Send | Compute], None] = lambda _: None
        self._server = role.below if isinstance(role, Aggregator) else role
        self._service = service
        self._connections = connections
        self._codec = codec
        self._recorder = recorder
        self._callers = callers
        self._line, self._own_line = line, own_line
        self._phase = phase
        self._now = now
        self._others = others
        self._tokens: list[tuple[float, int, Due]] = []
        self._at_once: deque[Due] = deque()
        self._settled = Settled(self._has_room)
        self._count = itertools.count()
        self._last_look = 0.0

    # -- events and actions

    def happen(self, event: Event) -> None:
        """Tell the role of an event, and of what is due by then; have it answer those that are."""
        self.tell(event)
        self._tell_at_once()
        self.settle()

    def settle(self) -> None:
        """Have the role answer those that are due, and tell it of what is due after that."""
        self.tell(self._settled)
        while self._at_once:
            self._tell_at_once()
            self.tell(self._settled)

    def _tell_at_once(self) -> None:
        while self._at_once:
            self.tell(self._at_once.popleft())

    def tell(self, event: Event) -> None:
        """Tell the role of an event, and do what it says.

        Raises:
            ValueError: a caller has sent what it must not.
        """
        now = self._now()
        for action in self.role.handle(event, now):
            if isinstance(action, Send):
                self._carry(action)
            elif isinstance(action, Record):
                if isinstance(action.entry, TrainingBegan):
                    self.began()
                else:
                    self._recorder.record([action.entry])
            elif isinstance(action, At):
                self._tell_at(action, now)
            elif isinstance(action, WhenLeft):  # as far as this side knows
                self._at_once.append(Due(action.token))
            elif isinstance(action, Compute):
                self.above(action)
            else:
                self._phase.over = True
        if self._phase.began is not None:
            self._recorder.tell_reached(self._service.half.version)

    def _tell_at(self, at: At, now: float) -> None:
        due = Due(at.token, at.time)
        if at.time <= now:
            self._at_once.append(due)
        else:
            moment = time.monotonic() + (at.time - now)
            heapq.heappush(self._tokens, (moment, next(self._count), due))

    def _carry(self, send: Send) -> None:
        if send.conversation == ABOVE:
            self.above(send)
            return
        connection = self._connections.workers[send.conversation]
        if not isinstance(send.message, Parameters):
            self.say_stop([connection])
            return
        answer = self._service.answer(send.conversation)
        with self._connections.sending(connection):
            self.send(connection, answer.version, answer.encoding, answer.body, dealt=answer.dealt)

    @property
    def patience(self) -> float:
        """The seconds until something is due, or is to be looked after."""
        if not self._tokens:
            return REPORT_PERIOD
        return min(REPORT_PERIOD, max(0.0, self._tokens[0][0] - time.monotonic()))

    def tell_due(self) -> None:
        """Tell the role of the moments that have come."""
        while self._tokens and self._tokens[0][0] <= time.monotonic():
            self.happen(heapq.heappop(self._tokens)[2])

    def look_after(self) -> None:
        """Every now and then, close connections that do not greet, and report the rows so far."""
        now = time.monotonic()
        if now - self._last_look < REPORT_PERIOD:
            return
        self._last_look = now
        self._own_line.look()
        for connection in list(self._connections.open):
            if connection.device is None and now - connection.opened > GREETING_TIMEOUT:
                self._connections.close(connection, f"no greeting within {GREETING_TIMEOUT:g} s")
        self._recorder.report.flush()

    # -- what callers send

    def greet(self, connection: Connection, frame: Frame) -> None:
        """Take a device into the run.

        Raises:
            WireError: it has no place in this run.
        """
        identity, workers = self._connections.identify(frame), self._connections.workers
        number = identity.number
        if number in workers and identity.incarnation < workers[number].incarnation:
            raise WireError(f"an earlier process of device {number} than the one that is connected")
        if self._server.callers_return and number in workers and self._phase.began is not None:
            # It was killed while its link was down, so that the end of its connection did not arrive.
            self._connections.close(workers[number], "it came back over another connection")
        if number in workers or number not in self._callers:
            raise WireError(f"device {number} is not of this run, or is connected already")
        self._connections.welcome(connection)
        self._connections.is_worker(connection, number)
        connection.incarnation = identity.incarnation
        workers[number] = connection
        self.happen(Opened(number, size=frame.size))

    def take(self, connection: Connection, frame: Frame) -> None:
        """Take in a worker's message, and answer the workers that are due after it.

        Raises:
            ValueError: it must not send that.
        """
        number = connection.device
        assert number is not None
        if frame.kind is not Kind.PULL:
            connection.payload_bytes += len(frame.body)
            self.happen(Heard(number, self.decode(frame), frame.size))
            return
        if connection.pending and not self._phase.over:
            self._service.count(number, frame.size)
            raise WireError("a pull before the parameters of the last one were read")
        self.happen(Heard(number, Pull(), frame.size))

    def decode(self, frame: Frame) -> Pushed:
        """Return the push or report that a frame holds."""
        if frame.kind is Kind.FINISHED:
            return Pushed(frame.number, None, 0, math.nan)
        # A push that is too late to be an update is counted, and not decoded.
        late = self._service.finished or self._phase.over
        update = None if late else self._codec.decode(frame.encoding, frame.body)
        return Pushed(frame.number, update, len(frame.body), frame.loss, frame.count)

    def leave(self, worker: int) -> None:
        """Go on without a worker that is gone; others may have waited for it."""
        self.happen(Closed(worker))

    # -- what callers are sent

    def _has_room(self, number: int) -> bool:
        return not self._connections.workers[number].pending

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

    def say_stop(self, connections: Iterable[Connection]) -> None:
        """Say STOP to workers; one that may train on with other servers gets parameters before it.

        Those are the last ones, and only for a worker that this server has sent none before: one that
        has just come back.
        """
        found = list(connections)
        if self._others:
            half = self._service.half
            for connection in found:
                if connection.informed or connection.ending:
                    continue
                with self._connections.sending(connection):
                    self.send(connection, half.version, DENSE, [as_bytes(half.parameters)])
        self._connections.say_stop(found)

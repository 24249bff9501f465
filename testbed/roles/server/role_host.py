"""A role that serves, on its device: what its connections bring becomes events, and it is answered.

Under the virtual clock the clock decides, and the host only decodes what has come, and sends.
"""

import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from testbed.algorithms.aggregator_half import AggregatorHalf, CombiningHalf
from testbed.algorithms.server_half import ServerHalf
from testbed.engine.aggregator import Aggregator
from testbed.engine.events import (
    At,
    Closed,
    Compute,
    Due,
    Event,
    GivenUp,
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
from testbed.roles.evaluation.evaluator_link import Asked, EvaluatorLink
from testbed.roles.recorder import Recorder
from testbed.roles.reporting import RoleReporter
from testbed.roles.server.server_connections import (
    REPORT_PERIOD,
    ServerConnections,
    ServerDriver,
    TrainingPhase,
)
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.transport.connection import Connection
from testbed.telemetry.state_board import Board, ServerLine, further_lines, hub_line, lines_of
from testbed.training.aggregator_service import service_of
from testbed.training.parameter_service import Apply, Pushed, apply_update
from testbed.training.service_entries import EvaluationPoint, TrainingBegan
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE
from testbed.wire.frames import Frame, Kind, header
from testbed.wire.own_encoding import codec_of

GREETING_TIMEOUT = 10.0
"""Seconds that a connection may stay silent before its greeting."""


class RoleHost:
    """Tells a role what has come of its callers, and does what it says.

    Attributes:
        callers: the numbers of the workers that belong here.
        line, own_line: of the board: for all servers' figures, and for this device's.
        began: called when training begins, or goes on.
        above: called with what an aggregator sends to those that it calls, or computes at their
            parameters; what is sent is used up at once.
        others: True if callers may train on with other servers when this one is over.
    """

    def __init__(
        self,
        serving: ServerInputs,
        driver: ServerDriver,
        now: Callable[[], float] | None,
    ) -> None:
        """Make the role, its connections and its recorder, and connect them.

        Args:
            now: returns the seconds since training began by the wall clock; 0 before that. None under
                the virtual clock: it makes the faults happen, and evaluations are waited for, because
                the host's time is no part of a run's result.
        """
        virtual = now is None
        self._now = now or (lambda: 0.0)
        self.settings = settings = serving.settings
        half, layout, index = serving.half, serving.layout, serving.index
        of = settings.workers, settings.serving
        self.callers = callers = settings.callers(index)
        self.report, self.phase = RoleReporter(serving.channel, index), TrainingPhase()
        board = serving.board or Board.private(lines_of(*of))
        self.line = board.server(further_lines(*of)[index - 1] if index else None)
        self.own_line = board.device(hub_line(settings.workers, index))
        codec = codec_of(settings.encoding, layout.sizes)
        answer_to = Kind.PULL if half.protocol == "pull" else Kind.FINISHED
        size = len(half.parameters)
        accepted = {Kind.PUSH: codec.longest, answer_to: 0}
        if max(callers) >= settings.workers:  # an aggregator that has no devices reports that
            accepted[Kind.FINISHED] = 0
        self.connections = ServerConnections(
            settings,
            size,
            accepted,
            line=self.line,
            stamped=board.stamped,
            report=self.report,
            phase=self.phase,
            driver=driver,
        )
        evaluator = self.connections.evaluator = EvaluatorLink(
            *(self.connections, 4 * size, self.report, serving.spill),
            number=settings.evaluator,
            waited_for=virtual,
            patient=settings.servers > 1,
            comes_back=settings.faults.server_absence is not None,
            remembered=serving.remembers,
            expected=not isinstance(half, CombiningHalf),
        )
        schedule = settings.schedule()
        # Of several servers, the first one's versions are those at which faults happen.
        at_versions = None if virtual or index else schedule

        def evaluate(due: EvaluationPoint) -> None:
            asked = Asked(due.version, self._now(), due.ledger)
            evaluator.ask(asked, as_bytes(half.parameters), last=due.last)

        self.recorder = Recorder(self.report, evaluate, at_versions)
        self.service = service_of(half, layout, settings, measured(self.line), index=index)
        self.others = settings.servers > 1 and index < settings.servers
        absence = schedule.longest_absence
        self._server = Server(self.service, len(callers), absence=absence, others=self.others)
        self.role: Server | Aggregator = self._server
        if isinstance(half, AggregatorHalf) and not virtual:
            self.role = Aggregator(self._server, half)
        self.began: Callable[[], None] = lambda: None
        self.above: Callable[[Send | Compute], None] = lambda _: None
        self._codec = codec
        self._paces, self._given_up = serving.paces, set[int]()
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
            UnexpectedMessageError: a caller has sent what it must not.
        """
        now = self._now()
        for action in self.role.handle(event, now):
            if isinstance(action, Send):
                self._carry(action)
            elif isinstance(action, Record):
                if isinstance(action.entry, TrainingBegan):
                    self.began()
                else:
                    self.recorder.record([action.entry])
            elif isinstance(action, At):
                self._tell_at(action, now)
            elif isinstance(action, WhenLeft):  # as far as this side knows
                self._at_once.append(Due(action.token))
            elif isinstance(action, Compute):
                self.above(action)
            else:
                self.phase.over = True
        if self.phase.began is not None:
            self.recorder.tell_reached(self.service.half.version)

    def _tell_at(self, at: At, now: float) -> None:
        due = Due(at.token, at.time)
        if at.time <= now:
            self._at_once.append(due)
        else:
            moment = time.monotonic() + (at.time - now)
            heapq.heappush(self._tokens, (moment, next(self._count), due))

    def _carry(self, send: Send) -> None:
        if send.conversation < 0:
            self.above(send)
            return
        connection = self.connections.workers[send.conversation]
        if not isinstance(send.message, Parameters):
            self.say_stop([connection])
            return
        answer = self.service.answer(send.conversation)
        with self.connections.sending(connection):
            self.send(connection, answer.version, answer.encoding, answer.body, dealt=answer.dealt)

    @property
    def patience(self) -> float:
        """The seconds until something is due, or is to be looked after."""
        if not self._tokens:
            return REPORT_PERIOD
        return min(REPORT_PERIOD, max(0.0, self._tokens[0][0] - time.monotonic()))

    def tell_due(self) -> None:
        while self._tokens and self._tokens[0][0] <= time.monotonic():
            self.happen(heapq.heappop(self._tokens)[2])

    def look_after(self) -> None:
        """Every now and then, look for what has no place any more, and report the rows so far."""
        now = time.monotonic()
        if now - self._last_look < REPORT_PERIOD:
            return
        self._last_look = now
        self.own_line.look()
        for connection in list(self.connections.open):
            if connection.device is None and now - connection.opened > GREETING_TIMEOUT:
                self.connections.close(connection, f"no greeting within {GREETING_TIMEOUT:g} s")
        self._tell_given_up()
        self.report.flush()

    def _tell_given_up(self) -> None:
        """Tell the role of callers that never come back, once of each."""
        ended = self._paces.ended() if self._paces is not None else ()
        if not ended:
            return
        found = {one for one in self.callers if self._is_given_up(one, ended)} - self._given_up
        if found:
            self._given_up |= found
            self.happen(GivenUp(found))

    def _is_given_up(self, caller: int, ended: Collection[int]) -> bool:
        """Return True if a worker has ended for good, or all devices of an aggregator have."""
        settings = self.settings
        if caller < settings.workers:
            return caller in ended
        own = settings.callers(settings.serving_index(caller))
        return all(self._is_given_up(one, ended) for one in own)

    # -- what callers send

    def greet(self, connection: Connection, frame: Frame) -> None:
        """Take a device into the run.

        Raises:
            WireError: it has no place in this run.
        """
        identity, workers = self.connections.identify(frame), self.connections.workers
        number = identity.number
        if number in workers and identity.incarnation < workers[number].incarnation:
            raise WireError(f"an earlier process of device {number} than the one that is connected")
        if self._server.callers_return and number in workers and self.phase.began is not None:
            # It was killed while its link was down, so that the end of its connection did not arrive.
            self.connections.close(workers[number], "it came back over another connection")
        if number in workers or number not in self.callers:
            raise WireError(f"device {number} is not of this run, or is connected already")
        self.connections.welcome(connection)
        self.connections.is_worker(connection, number)
        connection.incarnation = identity.incarnation
        workers[number] = connection
        self.happen(Opened(number, size=frame.size))

    def take(self, connection: Connection, frame: Frame) -> None:
        """Take in a worker's message, and answer the workers that are due after it.

        Raises:
            UnexpectedMessageError: it must not send that.
        """
        number = connection.device
        assert number is not None
        if frame.kind is not Kind.PULL:
            connection.payload_bytes += len(frame.body)
            self.happen(Heard(number, self.decode(frame), frame.size))
            return
        if connection.pending and not self.phase.over:
            self.service.count(number, frame.size)
            raise WireError("a pull before the parameters of the last one were read")
        self.happen(Heard(number, Pull(), frame.size))

    def decode(self, frame: Frame) -> Pushed:
        if frame.kind is Kind.FINISHED:
            return Pushed(frame.number, None, 0, math.nan)
        # A push that is too late to be an update is counted, and not decoded.
        late = self.service.finished or self.phase.over
        update = None if late else self._codec.decode(frame.encoding, frame.body)
        return Pushed(frame.number, update, len(frame.body), frame.loss, frame.count)

    def leave(self, worker: int) -> None:
        """Go on without a worker that is gone; others may have waited for it."""
        self.happen(Closed(worker))

    # -- what callers are sent

    def _has_room(self, number: int) -> bool:
        return not self.connections.workers[number].pending

    def send(
        self,
        connection: Connection,
        version: int,
        encoding: int,
        body: Sequence[bytes | memoryview],
        *,
        dealt: int = 0,
    ) -> int:
        """Send a worker parameters, and return the message's bytes."""
        length = sum(map(len, body))
        head = header(Kind.PARAMETERS, version, encoding=encoding, count=dealt, length=length)
        connection.send([head, *body])
        connection.informed = True
        self.line.sent(len(head) + length, length)
        if connection.pending:
            self.connections.watch(connection)
        return len(head) + length

    def say_stop(self, connections: Iterable[Connection]) -> None:
        """Say STOP to workers; one that may train on with other servers gets parameters before it.

        Those are the last ones, and only for a worker that this server has sent none before: one that
        has just come back.
        """
        found = list(connections)
        if self.others:
            half = self.service.half
            for connection in found:
                if connection.informed or connection.ending:
                    continue
                with self.connections.sending(connection):
                    self.send(connection, half.version, DENSE, [as_bytes(half.parameters)])
        self.connections.say_stop(found)


def measured(line: ServerLine) -> Apply:
    """Return a way to apply updates that also writes on the board how long each took."""

    def apply(half: ServerHalf, worker: int, push: Pushed, at: float) -> int | None:
        began = time.monotonic_ns()
        delay = apply_update(half, worker, push, at)
        line.applied(time.monotonic_ns() - began)
        return delay

    return apply

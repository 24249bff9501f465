"""The parameter server: one thread that handles messages in the order in which they arrive.

``testbed.training.parameter_service`` makes the decisions; this module has the sockets. Under the
virtual clock the order is the clock's (``testbed.roles.server.virtual_server``); all else is the same.

The server answers pulls and takes in pushes until the run's number of updates is reached. Then it says
STOP to all devices, reads what is still on its way (so that every byte the kernel counted is accounted
for) and reports the final parameters. It sends the evaluator a copy of the parameters whenever an
evaluation is due. Under the wall clock it never waits for a device: an evaluation for which the queue
has no room is left out, and that is reported.

Training begins when every worker has greeted, or when no further worker has for some seconds; earlier
pulls wait until then, so that all workers start from version 0 together.

Input that is malformed, oversized or foreign closes the connection it came over, with the reason in the
run's events, and has no other effect. An error of the server's own (of its files, its memory, its
channel) ends the server, with the reason.
"""

import hmac
import math
import selectors
import socket
import time
from collections.abc import Iterable
from dataclasses import astuple
from functools import partial
from typing import Any

from testbed.encoding_choice import EncodingChoice
from testbed.errors import RunError
from testbed.faults.schedule import Schedule
from testbed.roles.evaluation.pending import Asked, Evaluations
from testbed.roles.evaluation.snapshots import NoRoomError, UnreadableError
from testbed.roles.reporting import Report
from testbed.roles.server.measuring import measured
from testbed.roles.server.serving import Serving
from testbed.roles.transport.accepting import Accepting
from testbed.roles.transport.connection import BrokenConnectionError, Connection
from testbed.roles.transport.greeting import Who
from testbed.telemetry.board import Board, hub_line, lines_of
from testbed.telemetry.records import UpdateRow
from testbed.training.parameter_service import Answer, ParameterService, Pushed
from testbed.training.settings import PORT
from testbed.updates import as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, Codec
from testbed.wire.frames import HEADER, SECRET_SIZE, Frame, Kind, Receiver, header

GREETING_TIMEOUT = 10.0
"""Seconds that a connection may stay silent before its greeting."""
GATHERING_TIMEOUT = 30.0
"""Seconds without a further greeting after which training begins with the connected workers."""
TOO_LATE = 1.0
"""Seconds that a connection without a greeting may stay open when training is over."""
DRAIN_TIMEOUT = 30.0
"""Seconds that workers have to close their connections after STOP."""
EVALUATOR_TIMEOUT = 600.0
"""Seconds that the evaluator may take for one evaluation, when training waits for it or is over."""
RETURN_TIMEOUT = 30.0
"""Seconds that a killed worker may take to come back, in addition to its planned absence."""
SUSPECTED_TIMEOUT = 5.0
"""Seconds that suspected workers have to close their connections after STOP."""
REPORT_PERIOD = 0.2
"""Seconds between two reports of applied updates."""


class Server:
    """The server of one run; see ``serve``.

    A restored server waits for the workers in ``_awaited``, which were connected before.
    """

    # True if the server waits for a slow evaluator when the queue has no more room, instead of leaving
    # evaluations out.
    _waits_for_evaluator = False

    _accepting: Accepting  # from ``serve`` on

    def __init__(self, serving: Serving) -> None:
        settings, half, layout = serving.settings, serving.half, serving.layout
        self._settings = settings
        self._report = Report(serving.channel)
        board = serving.board or Board.private(lines_of(settings.workers))
        self._line, self._own_line = board.server(), board.device(hub_line(settings.workers))
        self._stamps = board.shared
        self._service = ParameterService(half, layout, settings, self, measured(self._line))
        self._secret = bytes.fromhex(settings.network.secret)
        self._parameters = as_bytes(half.parameters)
        self._size = len(half.parameters)
        self._selector = selectors.EpollSelector()
        self._codec = Codec(EncodingChoice.model_validate(settings.training.encoding), layout.sizes)
        # One read takes a whole dense push and the pull after it.
        self._scratch = memoryview(bytearray(len(self._parameters) + 4096))
        self._greeting = {Kind.HELLO: SECRET_SIZE}
        self._working = {Kind.PUSH: self._codec.longest}
        self._working |= {Kind.PULL: 0} if half.protocol == "pull" else {Kind.FINISHED: 0}
        self._connections: set[Connection] = set()
        self._workers: dict[int, Connection] = {}
        self._evaluator: Connection | None = None
        self._evaluator_done = False
        self._evaluator_heard = -math.inf
        self._checkpoints = serving.checkpoints
        self._came_back = serving.came_back
        self._awaited: set[int] = set()
        remembered = serving.checkpoints is not None
        self._evaluations = Evaluations(
            len(self._parameters), remembered=remembered, spill=serving.spill
        )
        self._last_greeting = time.monotonic()
        self._last_report = 0.0
        self._started: float | None = None
        self._finished = False
        self._schedule = Schedule(settings.faults.rules, settings.seed, settings.workers)
        self._next_fault_iteration = self._schedule.next_iteration(0)
        absence = self._schedule.longest_absence
        self._returns = absence + RETURN_TIMEOUT if absence else 0.0
        self._last_departure = -math.inf

    def serve(self) -> None:
        """Listen, train and drain; return when the last connection is closed."""
        listener = socket.create_server(("", PORT), backlog=4096)
        warn = partial(self._report.event, "warning")
        self._accepting = Accepting(listener, self._selector, warn)
        self._report.send(listening=PORT)
        self._train(listener)
        self._drain(listener)
        self._report.parameters(self._parameters)
        self._own_line.done()
        self._report.send(
            finished=self._service.half.version,
            payload_bytes=self._service.payload_bytes,
            message_bytes=self._service.message_bytes,
        )

    # -- the loop

    def _train(self, listener: socket.socket) -> None:
        while not self._finished:
            self._handle_events(listener)
            self._look_after()

    def _handle_events(self, listener: socket.socket, patience: float = REPORT_PERIOD) -> None:
        self._accepting.again()
        for key, events in self._selector.select(patience):
            if key.fileobj is listener:
                self._accepting.accept(self._open)
                continue
            connection: Connection = key.data
            if connection not in self._connections:  # closed earlier in this same turn
                continue
            try:
                if events & selectors.EVENT_READ:
                    for frame in connection.receive():
                        if connection.arrived and frame.kind is Kind.PUSH:
                            self._line.queued(time.time_ns() - connection.arrived)
                        self._handle(connection, frame)
                if events & selectors.EVENT_WRITE and connection in self._connections:
                    self._send_pending(connection)
            except EOFError:
                self._close(connection, connection.broken)
            except (WireError, BrokenConnectionError, ValueError) as error:
                self._close(connection, f"{error}")

    def _send_pending(self, connection: Connection) -> None:
        try:
            connection.send_pending()
        except BrokenConnectionError as error:
            self._broke(connection, error)
            return
        self._watch(connection)
        self._sent(connection)

    def _broke(self, connection: Connection, error: BrokenConnectionError) -> None:
        """Note that nothing more can be sent; what arrived before is still read, up to the end."""
        connection.pending = b""
        connection.broken = f"{error}"
        self._watch(connection)

    def _open(self, accepted: socket.socket, address: str, port: int) -> None:
        """Set up a new connection, whose device is not known yet."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver = Receiver(self._greeting, self._scratch)
        connection = Connection(accepted, address, port, receiver, time.monotonic())
        if self._stamps:
            connection.stamp()
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        self._connections.add(connection)

    def _watch(self, connection: Connection) -> None:
        """Update what is waited for on a connection; to the evaluator, send what it has room for."""
        # As many as the kernel takes: with nothing pending, room for another one is not reported.
        while not connection.pending and connection is self._evaluator and self._evaluations:
            try:
                version, parameters = self._evaluations.next()
            except UnreadableError as error:
                self._report.left_out(error.version, f"{error}")
                continue
            head = header(Kind.PARAMETERS, version, encoding=DENSE, length=len(parameters))
            connection.send([head, parameters])
        connection.watch(self._selector, self._reads(connection))

    def _reads(self, connection: Connection) -> bool:
        """Return True if a connection is to be read from now."""
        return True

    def _look_after(self) -> None:
        """Report, and look for silent connections and missing workers, once per ``REPORT_PERIOD``."""
        now = time.monotonic()
        if now - self._last_report < REPORT_PERIOD:
            return
        self._last_report = now
        self._own_line.look()
        for connection in list(self._connections):
            if connection.device is None and now - connection.opened > GREETING_TIMEOUT:
                self._close(connection, f"no greeting within {GREETING_TIMEOUT:g} s")
        late = now - self._last_greeting > GATHERING_TIMEOUT
        if self._started is None and self._workers and late:
            missing = self._settings.workers - len(self._workers)
            self._report.event("warning", f"training begins without {missing} workers")
            self._start()
        if self._started is not None and not self._finished:
            self._suspect_silent()
        if self._started is not None or (late and not self._workers):
            self._check_workers()
        self._report.flush()

    def _suspect_silent(self) -> None:
        """Suspect workers that have been silent for too long; others may have waited for them."""
        now = self._now()
        for worker in self._service.overdue(now):
            self._service.suspect(worker, now)
            self._go_on()

    def _check_workers(self) -> None:
        """End the run if too few workers are left for another update, or all of them wait."""
        needed = self._service.half.needed
        if self._service.stalled and not self._finished:
            self._report.event("error", "all workers wait for parameters, and nobody will push")
            self._finished = True
        if len(self._workers) >= needed:
            return
        if time.monotonic() - self._last_departure < self._returns:
            return  # a worker may come back
        left = f"{len(self._workers)} workers are left, and an update needs {needed}"
        self._report.event("error", left if self._workers else "no worker is left")
        self._finished = True

    # -- messages

    def _handle(self, connection: Connection, frame: Frame) -> None:
        if connection.device is None:
            self._greet(connection, frame)
            return
        if connection is self._evaluator:
            self._evaluator_heard = time.monotonic()
            self._evaluations.heard(frame.number)
            return
        number = connection.device
        self._service.count(number, frame.size)
        if frame.kind is Kind.PULL:
            if self._service.is_asking(number) or connection.pending:
                raise WireError("a pull before the parameters of the last one were read")
            self._service.asked(number, 0.0 if self._started is None else self._now())
        else:
            connection.payload_bytes += len(frame.body)
            pushed = self._pushed(frame)
            if self._started is None:
                raise WireError("a push before training began")
            now = time.monotonic() - self._started
            self._service.pushed(number, pushed, now, now)
            self._finished = self._finished or self._service.finished
        self._send_due()

    def _pushed(self, frame: Frame) -> Pushed:
        if frame.kind is Kind.FINISHED:
            return Pushed(frame.number, None, 0, math.nan)
        # A push that is too late to be an update is counted, and not decoded.
        late = self._service.finished
        update = None if late else self._codec.decode(frame.encoding, frame.body)
        return Pushed(frame.number, update, len(frame.body), frame.loss)

    def _send_due(self) -> None:
        for number in self._service.due(self._has_room):
            connection = self._workers[number]
            try:
                self._answer(connection, number)
                self._service.sent(number, self._now())
            except BrokenConnectionError as error:
                self._broke(connection, error)

    def _sent(self, connection: Connection) -> None:
        """Note that pending bytes were sent."""
        if not connection.pending:
            self._send_due()

    def _left(self, worker: int) -> None:
        """Note that a worker is gone; others may have waited for it."""
        self._service.leave(worker)
        self._go_on()

    def _go_on(self) -> None:
        """Go on with fewer workers, which may have led to an update."""
        if self._started is not None:
            self._tell_reached()
            self._finished = self._service.finished
            self._send_due()

    def _has_room(self, number: int) -> bool:
        return not self._workers[number].pending

    def _greet(self, connection: Connection, frame: Frame) -> None:
        if not hmac.compare_digest(frame.body, self._secret):
            raise WireError("a greeting without this run's secret")
        number = Who.of(frame.number).number
        if self._returns and number in self._workers and self._started is not None:
            # It was killed while its link was down, so that the end of its connection did not arrive.
            self._close(self._workers[number], "it came back over another connection")
        if number > self._settings.workers or number in self._workers:
            raise WireError(f"device {number} is not of this run, or is connected already")
        connection.send([header(Kind.WELCOME, self._size)])
        if number == self._settings.workers:
            if self._evaluator is not None:
                raise WireError("the evaluator is connected already")
            connection.device = number
            connection.receiver.accept({Kind.FINISHED: 0})
            self._evaluator, self._evaluator_done = connection, False
            self._evaluator_heard = time.monotonic()
            self._watch(connection)
            return
        connection.device = number
        connection.receiver.accept(self._working)
        self._workers[number] = connection
        self._line.sent(HEADER.size)
        self._service.join(number, 0.0 if self._started is None else self._now())
        self._service.count(number, frame.size)
        self._last_greeting = time.monotonic()
        self._report.send(greeted=len(self._workers))
        if len(self._workers) == self._settings.workers:
            self._start()
        if self._finished:
            self._say_stop([connection])
        self._send_due()

    def _start(self) -> None:
        if self._started is not None:
            return
        self._started = time.monotonic()
        self._service.begin()
        self._before_training()
        self._report.send(training=self._started)
        self._send_due()

    def _before_training(self) -> None:
        """Note that training begins, before that is reported."""

    def _answer(self, connection: Connection, number: int) -> int:
        """Send a worker that is due its parameters, and return the message's bytes."""
        answer = self._service.answer(number)
        self._note(number, answer)
        length = sum(map(len, answer.body))
        head = header(Kind.PARAMETERS, answer.version, encoding=answer.encoding, length=length)
        connection.send([head, *answer.body])
        self._line.sent(len(head) + length, length)
        if connection.pending:
            self._watch(connection)
        return len(head) + length

    def _note(self, number: int, answer: Answer) -> None:
        """Note an answer that is about to be sent to a worker."""

    # -- the service's observer

    def row(self, row: UpdateRow, version: int) -> None:
        """Record a push that was taken in and led to ``version``."""
        self._report.row(row, version)
        self._tell_reached()

    def _tell_reached(self) -> None:
        """Report the versions reached at which faults are due."""
        while (
            self._next_fault_iteration is not None
            and self._service.half.version >= self._next_fault_iteration
        ):
            self._report.flush()
            self._report.send(reached=self._next_fault_iteration)
            self._next_fault_iteration = self._schedule.next_iteration(self._next_fault_iteration)

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        """Report that a worker, silent for ``silent`` seconds, is left out from now on."""
        self._report.send(suspected=worker, silent=silent, time=time, iteration=version)

    def welcomed(self, worker: int, time: float, version: int) -> None:
        """Report that a suspected worker has sent something, and takes part again."""
        self._report.send(welcomed=worker, time=time, iteration=version)

    def checkpoint(self) -> None:
        """Handle an evaluation point: report the ledgers' totals, and have this version evaluated."""
        service = self._service
        version = service.half.version
        asked = Asked(version, self._now(), service.payload_bytes, service.message_bytes)
        self._report.checkpoint(*astuple(asked))
        try:
            always = self._waits_for_evaluator or service.finished  # the result is never left out
            self._evaluations.ask(asked, self._parameters, always=always)
        except NoRoomError as error:
            self._report.left_out(version, f"{error}")
        if self._evaluator is not None and not self._evaluator.pending:
            self._watch(self._evaluator)

    # -- checkpoints

    def _write_checkpoint(self) -> None:
        """Write a checkpoint of the current state.

        Raises:
            RunError: it cannot be written; this is no error of the connection that led here.
        """
        assert self._checkpoints is not None
        version = self._service.half.version
        self._report.flush()
        self._report.send(keeping=version, time=time.monotonic())
        try:
            self._checkpoints.write(version, self._state())
        except OSError as error:
            raise RunError(
                f"the checkpoint of update {version:,} cannot be written: {error.strerror or error}; "
                "free some room and resume the run"
            ) from error

    def _state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; it shares the server's memory."""
        return {
            "version": self._service.half.version,
            "time": self._now(),
            "half": self._service.half.state(),
            "there": sorted(self._workers),
            "evaluations": self._evaluations.state(),
        }

    def _ask_again(self, evaluations: Iterable[Any]) -> None:
        """Ask again for the evaluations that had no result when the checkpoint was written."""
        for asked in self._evaluations.restore(evaluations):
            self._report.checkpoint(*astuple(asked), again=True)

    def _now(self) -> float:
        """Return the seconds since training began, by the run's clock."""
        assert self._started is not None
        return time.monotonic() - self._started

    # -- the end

    def _drain(self, listener: socket.socket) -> None:
        """Say STOP and read until all connections are closed; the evaluator first does its backlog.

        A worker that connects only now (it was killed, and is back) receives STOP, too: its greeting
        was captured, and has to be read.
        """
        self._report.flush()
        self._report.send(stopping=self._service.half.version)
        self._say_stop(self._workers.values())
        stopped = time.monotonic()
        while self._is_anybody_there(listener):
            evaluator = self._evaluator
            if evaluator and not (self._evaluator_done or evaluator.pending or self._evaluations):
                self._evaluator_done = True
                self._say_stop([evaluator])
            self._handle_events(listener)
            now = time.monotonic()
            for connection in list(self._connections):
                if (
                    self._is_unowned(connection)
                    and now - max(stopped, connection.opened) > TOO_LATE
                ):
                    self._close(connection, "training is over")
            for number, connection in list(self._workers.items()):
                patience = self._drain_patience(number)
                if now - stopped > patience:
                    self._report.send(stays=number)
                    self._close(connection, f"still connected {patience:g} s after STOP")
            self._give_up_evaluator(stopped)
        self._accepting.close()

    def _give_up_evaluator(self, since: float) -> None:
        """Close the evaluator's connection if nothing has come over it for too long.

        Args:
            since: when the wait began, in seconds of CLOCK_MONOTONIC.
        """
        evaluator, missing = self._evaluator, self._evaluations.unheard
        patience = EVALUATOR_TIMEOUT if missing else DRAIN_TIMEOUT
        if evaluator is None or time.monotonic() - max(since, self._evaluator_heard) <= patience:
            return
        text = f"nothing was heard of it for {patience:g} s"
        if missing:
            text += f": {missing:,} evaluations are missing"
            self._report.event("error", text, evaluator.device)
        self._waits_for_evaluator = False
        self._close(evaluator, text)

    def _is_anybody_there(self, listener: socket.socket) -> bool:
        if not self._connections:
            self._handle_events(listener, 0)
        return bool(self._connections)

    def _is_unowned(self, connection: Connection) -> bool:
        """Return True if a connection has not greeted, or is left over from a worker that was killed.

        The end of a connection is never reported over a link that was down.
        """
        if connection.device is None:
            return True
        return connection is not self._evaluator and (
            self._workers.get(connection.device) is not connection
        )

    def _drain_patience(self, worker: int) -> float:
        """Return the seconds that a worker has to close its connection after STOP."""
        return SUSPECTED_TIMEOUT if self._service.is_suspected(worker) else DRAIN_TIMEOUT

    def _say_stop(self, connections: Iterable[Connection]) -> None:
        """Say STOP over the connections that are not ending yet, and send nothing after it."""
        for connection in [one for one in connections if not one.ending]:
            try:
                connection.send([header(Kind.STOP)])
                if connection is not self._evaluator:
                    self._line.sent(HEADER.size)
                self._watch(connection)
                connection.end()
            except BrokenConnectionError as error:
                self._broke(connection, error)

    def _close(self, connection: Connection, reason: str | None) -> None:
        """Close a connection; ``reason`` is None if the other side did, or if no reason is reported."""
        partial = not connection.receiver.between_frames
        if connection.device is not None and not self._finished:
            reason = reason or "it closed the connection" + (" in mid-message" if partial else "")
        if reason is not None:
            whose = "a stranger" if connection.device is None else "a device"
            self._report.event(
                "warning", f"connection of {whose} closed: {reason}", connection.device
            )
        self._report.flush()  # a worker's pushes are reported before its end
        if connection is not self._evaluator:
            self._report.connection(connection, reason)
        if connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        connection.socket.close()
        self._accepting.again(at_once=True)
        self._connections.discard(connection)
        if connection is self._evaluator:
            self._evaluator = None
        elif connection.device is not None and self._workers.get(connection.device) is connection:
            del self._workers[connection.device]
            self._last_departure = time.monotonic()
            if not self._finished:  # what was gathered when training ended is no update any more
                self._left(connection.device)

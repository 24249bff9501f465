"""The parameter server: one thread that applies updates in the order in which they arrive.

It answers pulls and applies pushes until the asked number of updates is reached, then says STOP to
everybody, reads out what is still on its way (so that every byte the kernel counted is accounted
for) and reports the final parameters. It sends the evaluator a copy of the parameters whenever an
evaluation is due and never waits for anybody.

Training begins when every worker has greeted, or when no further one has for some seconds; pulls
that come earlier wait for that, so that all workers start from version 0 together.

Whatever is malformed, oversized or foreign closes the connection it came over, with the reason in
the run's events, and nothing else.
"""

import hmac
import selectors
import socket
import time
from collections.abc import Iterable

import numpy as np

from testbed.algorithms.interface import Layout, ServerHalf, as_bytes
from testbed.channel import Channel
from testbed.roles.connection import Connection
from testbed.roles.settings import PORT, Settings
from testbed.roles.snapshots import SnapshotQueue
from testbed.telemetry.records import UPDATE
from testbed.wire import WireError
from testbed.wire.choice import EncodingChoice
from testbed.wire.encodings import DENSE, Codec
from testbed.wire.frames import SECRET_SIZE, Frame, Kind, Receiver, header

GREETING_TIMEOUT = 10.0
"""Seconds that a connection may stay silent before its greeting."""
GATHERING_TIMEOUT = 30.0
"""Seconds without a further greeting after which training begins with the workers that are there."""
DRAIN_TIMEOUT = 30.0
"""Seconds that workers have to close their connections after STOP."""
REPORT_PERIOD = 0.2
"""Seconds between two reports of applied updates."""
_ROWS = 1500
_CHUNK = 100_000


class Server:
    """Serves one run; see ``serve``."""

    def __init__(
        self, settings: Settings, half: ServerHalf, layout: Layout, report: Channel
    ) -> None:
        self._settings = settings
        self._half = half
        self._report = report
        self._secret = bytes.fromhex(settings.secret)
        self._parameters = as_bytes(half.parameters)
        self._size = len(half.parameters)
        self._selector = selectors.EpollSelector()
        self._codec = Codec(EncodingChoice.model_validate(settings.encoding), layout.sizes)
        self._exact = Codec(EncodingChoice(), layout.sizes)
        if settings.pulls == "changed":
            half.track_changes()
        # One read takes a whole dense push and the pull behind it.
        self._scratch = memoryview(bytearray(len(self._parameters) + 4096))
        self._greeting = {Kind.HELLO: SECRET_SIZE}
        self._working = {Kind.PULL: 0, Kind.PUSH: self._codec.longest}
        self._connections: set[Connection] = set()
        self._workers: dict[int, Connection] = {}
        self._evaluator: Connection | None = None
        self._evaluator_done = False
        self._snapshots = SnapshotQueue(len(self._parameters))
        self._last_greeting = time.monotonic()
        self._started: float | None = None
        self._finished = False
        self._payload_bytes = 0
        self._message_bytes = 0
        self._rows = np.empty(_ROWS, UPDATE)
        self._row_count = 0

    def serve(self) -> None:
        """Listen, train, drain; returns when the last connection is closed."""
        listener = socket.create_server(("", PORT), backlog=4096)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._report.send({"listening": PORT})
        last_report = 0.0
        while not self._finished:
            self._turn(listener)
            now = time.monotonic()
            if now - last_report >= REPORT_PERIOD:
                last_report = now
                self._housekeeping(now)
        self._drain(listener)
        self._report_parameters()

    # -- the loop

    def _turn(self, listener: socket.socket) -> None:
        for key, events in self._selector.select(REPORT_PERIOD):
            if key.fileobj is listener:
                self._accept(listener)
                continue
            connection: Connection = key.data
            if connection not in self._connections:  # closed earlier in this same turn
                continue
            try:
                if events & selectors.EVENT_WRITE:
                    connection.send_pending()
                    self._watch(connection)
                if events & selectors.EVENT_READ:
                    for frame in connection.receive():
                        self._handle(connection, frame)
            except EOFError:
                self._close(connection, None)
            except (WireError, OSError, ValueError) as error:
                self._close(connection, f"{error}")

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, (address, port) = listener.accept()
        except OSError as error:  # the peer has gone already, or descriptors have run out
            self._event("warning", f"a connection could not be accepted: {error}")
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver = Receiver(self._greeting, self._scratch)
        connection = Connection(accepted, address, port, receiver, time.monotonic())
        self._connections.add(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _watch(self, connection: Connection) -> None:
        """Ask to be told when there is room for what is pending, and refill it for the evaluator."""
        # As many as the kernel takes: nothing would tell that there is room for another one.
        while not connection.pending and connection is self._evaluator and self._snapshots:
            version, parameters = self._snapshots.get()
            head = header(Kind.PARAMETERS, version, encoding=DENSE, length=len(parameters))
            connection.send([head, parameters])
        wanted = selectors.EVENT_READ
        if connection.pending:
            wanted |= selectors.EVENT_WRITE
        if self._selector.get_key(connection.socket).events != wanted:
            self._selector.modify(connection.socket, wanted, connection)

    def _housekeeping(self, now: float) -> None:
        for connection in list(self._connections):
            if connection.device is None and now - connection.opened > GREETING_TIMEOUT:
                self._close(connection, f"no greeting within {GREETING_TIMEOUT:g} s")
        late = now - self._last_greeting > GATHERING_TIMEOUT
        if self._started is None and self._workers and late:
            missing = self._settings.workers - len(self._workers)
            self._event("warning", f"training begins without {missing} workers")
            self._start()
        if not self._workers and (self._started is not None or late):
            self._event("error", "no worker is left")
            self._finished = True
        self._flush()

    # -- messages

    def _handle(self, connection: Connection, frame: Frame) -> None:
        if connection.device is None:
            self._greet(connection, frame)
            return
        self._message_bytes += frame.size
        connection.message_bytes += frame.size
        if frame.kind is Kind.PUSH:
            self._payload_bytes += len(frame.body)
            connection.payload_bytes += len(frame.body)
            if self._half.version < self._settings.updates:
                self._push(connection, connection.device, frame)
        elif connection.pulled or connection.pending:
            raise WireError("a pull before the parameters of the last one were read")
        else:
            connection.pulled = True
            if self._started is not None and not self._finished:
                self._answer(connection, connection.device)

    def _greet(self, connection: Connection, frame: Frame) -> None:
        if not hmac.compare_digest(frame.body, self._secret):
            raise WireError("a greeting without this run's secret")
        number = frame.number
        if number > self._settings.workers or number in self._workers:
            raise WireError(f"device {number} is not of this run, or is connected already")
        connection.send([header(Kind.WELCOME, self._size)])
        if number == self._settings.workers:
            if self._evaluator is not None:
                raise WireError("the evaluator is connected already")
            connection.device = number
            connection.receiver.accept({})
            self._evaluator = connection
            self._watch(connection)
            return
        connection.device = number
        connection.receiver.accept(self._working)
        connection.message_bytes = frame.size
        self._message_bytes += frame.size
        self._workers[number] = connection
        self._last_greeting = time.monotonic()
        self._report.send({"greeted": len(self._workers)})
        if len(self._workers) == self._settings.workers:
            self._start()

    def _start(self) -> None:
        if self._started is not None:
            return
        self._started = time.monotonic()
        self._report.send({"training": self._started})
        self._checkpoint()
        for number, connection in list(self._workers.items()):
            if connection.pulled:
                self._answer(connection, number)

    def _answer(self, connection: Connection, number: int) -> None:
        connection.pulled = False
        version = self._half.pull(number)
        # What this worker was sent last it has by now, or will have before it reads this.
        encoding, body = self._exact.encode(self._half.changed_since(connection.version))
        connection.version = version
        length = sum(map(len, body))
        head = header(Kind.PARAMETERS, version, encoding=encoding, length=length)
        connection.send([head, *body])
        if connection.pending:
            self._watch(connection)

    def _push(self, connection: Connection, number: int, frame: Frame) -> None:
        update = self._codec.decode(frame.encoding, frame.body)
        staleness = self._half.push(number, update, frame.number)
        assert self._started is not None
        version = self._half.version
        self._rows[self._row_count] = (
            version,
            number,
            frame.number,
            staleness,
            len(frame.body),
            connection.message_bytes,
            frame.loss,
            time.monotonic() - self._started,
        )
        self._row_count += 1
        connection.message_bytes = 0
        if version % self._settings.evaluate_every == 0 or version == self._settings.updates:
            self._checkpoint()
        if self._row_count == _ROWS:
            self._flush()
        if version == self._settings.updates:
            self._finished = True

    # -- reports

    def _checkpoint(self) -> None:
        """Note where the ledgers stand at this version, and send the version to the evaluator."""
        self._flush()  # no evaluation is on record before the updates that led to it
        self._report.send(
            {
                "checkpoint": self._half.version,
                "time": time.monotonic(),
                "payload_bytes": self._payload_bytes,
                "message_bytes": self._message_bytes,
            }
        )
        self._snapshots.put(self._half.version, self._parameters)
        if self._evaluator is not None and not self._evaluator.pending:
            self._watch(self._evaluator)

    def _flush(self) -> None:
        if self._row_count:
            self._report.send({"updates": self._row_count}, self._rows[: self._row_count].tobytes())
            self._row_count = 0

    def _event(self, level: str, text: str, device: int | None = None) -> None:
        self._report.send({"event": text, "level": level, "number": device})

    def _report_connection(self, connection: Connection, reason: str | None) -> None:
        """Tell the connection's own ledger, which is compared with what passed on the wire."""
        self._report.send(
            {
                "connection": connection.device,
                "address": connection.address,
                "port": connection.port,
                "message_bytes": connection.received_bytes,
                "incomplete_bytes": connection.receiver.incomplete,
                "payload_bytes": connection.payload_bytes,
                "sent_bytes": connection.sent_bytes,
                "unsent_bytes": connection.unsent_bytes(),
                "reason": reason,
            }
        )

    def _report_parameters(self) -> None:
        for start in range(0, len(self._parameters), _CHUNK):
            self._report.send(
                {"parameters": start}, bytes(self._parameters[start : start + _CHUNK])
            )
        self._report.send(
            {
                "finished": self._half.version,
                "payload_bytes": self._payload_bytes,
                "message_bytes": self._message_bytes,
            }
        )

    # -- the end

    def _drain(self, listener: socket.socket) -> None:
        """Say STOP and read until everybody has closed; the evaluator has its backlog first."""
        self._selector.unregister(listener)
        listener.close()
        self._flush()
        self._say_stop(self._workers.values())
        for connection in list(self._connections):
            if connection.device is None:
                self._close(connection, "training is over")
        deadline = time.monotonic() + DRAIN_TIMEOUT
        while self._connections:
            evaluator = self._evaluator
            if evaluator and not (self._evaluator_done or evaluator.pending or self._snapshots):
                self._evaluator_done = True
                self._say_stop([evaluator])
            self._turn(listener)
            if self._workers and time.monotonic() > deadline:
                for connection in list(self._workers.values()):
                    self._close(connection, f"still connected {DRAIN_TIMEOUT:g} s after STOP")

    def _say_stop(self, connections: Iterable[Connection]) -> None:
        for connection in list(connections):
            try:
                connection.send([header(Kind.STOP)])
                self._watch(connection)
                connection.end()
            except OSError as error:
                self._close(connection, f"{error}")

    def _close(self, connection: Connection, reason: str | None) -> None:
        """Close a connection; without a reason, the peer did."""
        partial = not connection.receiver.between_frames
        if connection.device is not None and not self._finished:
            reason = reason or "it closed the connection" + (" in mid-message" if partial else "")
        if reason is not None:
            whose = "a stranger" if connection.device is None else "a device"
            self._event("warning", f"connection of {whose} closed: {reason}", connection.device)
        if connection is not self._evaluator:
            self._report_connection(connection, reason)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._connections.discard(connection)
        if connection is self._evaluator:
            self._evaluator = None
        elif connection.device is not None:
            self._half.forget(connection.device)
            del self._workers[connection.device]

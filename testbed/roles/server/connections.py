"""The connections of a parameter server: sockets and a selector, no algorithm and no clock.

A driver (``Driver``) decides what a message means and when a worker is read. Input that is malformed,
oversized or foreign closes the connection it came over, with the reason in the run's events, and has no
other effect. An error of the server's own (of its files, its memory, its channel) ends the server.
"""

import hmac
import selectors
import socket
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from testbed.channel import Channel
from testbed.device_names import SERVER_NUMBER
from testbed.messages.reports import ServerListening
from testbed.roles.reporting import Report
from testbed.roles.server.phase import Phase
from testbed.roles.transport.accepting import Accepting
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.roles.transport.greeting import Identity
from testbed.telemetry.board import ServerLine
from testbed.training.settings import PORT, Settings
from testbed.wire import WireError
from testbed.wire.frames import HEADER, SECRET_SIZE, Frame, Kind, Receiver, header

REPORT_PERIOD = 0.2
"""Seconds between two reports of applied updates, and at most between two looks after the run."""


class Driver(Protocol):
    """The owner of the connections."""

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message; ValueError and WireError close the connection that it came over."""

    def reads(self, connection: Connection) -> bool:
        """Return True if a connection is to be read from now."""

    def sent(self, connection: Connection) -> None:
        """Note that the kernel has taken pending bytes of a connection."""

    def lost(self, worker: int) -> None:
        """Note that a worker's connection was closed before training was over."""


class Connections:
    """All connections of one server.

    Attributes:
        open: all of them, whether or not they have greeted.
        workers: those of the workers, by number.
        evaluator: the evaluator's, while there is one.
        above: an aggregator's own to its server, while there is one; it is in the server's ledger.
        buffer: the memory into which all connections are read.
    """

    def __init__(
        self,
        settings: Settings,
        parameters: int,
        limits: Mapping[Kind, int],
        *,
        line: ServerLine,
        stamped: bool,
        report: Report,
        phase: Phase,
        driver: Driver,
    ) -> None:
        """Prepare to listen.

        Args:
            parameters: the size of the model, or of the server's slice.
            limits: the kinds of messages that workers send, with their bodies' largest sizes in bytes.
            line: of the board, for what the server sends.
            stamped: True if the kernel is to report when it received each push.
        """
        self.open: set[Connection] = set()
        self.workers: dict[int, Connection] = {}
        self.evaluator: Connection | None = None
        self.above: Connection | None = None
        # One read takes a whole dense push and the pull after it.
        self.buffer = memoryview(bytearray(4 * parameters + 4096))
        self._secret = bytes.fromhex(settings.network.secret)
        self._parameters = parameters
        self._limits = limits
        self._line = line
        self._stamped = stamped
        self._report = report
        self._phase = phase
        self._driver = driver
        self._selector = selectors.EpollSelector()
        self._listener: socket.socket
        self._accepting: Accepting

    # -- accepting and greeting

    def listen(self) -> None:
        """Begin to accept connections, and report it."""
        self._listener = socket.create_server(("", PORT), backlog=4096)
        warn = partial(self._report.event, "warning")
        self._accepting = Accepting(self._listener, self._selector, warn)
        self._report.send(ServerListening(self._report.server))

    def stop_listening(self) -> None:
        """Accept no further connection."""
        self._accepting.close()

    def _open(self, accepted: socket.socket, address: str, port: int) -> None:
        """Set up a new connection, whose device is not known yet."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver = Receiver({Kind.HELLO: SECRET_SIZE}, self.buffer)
        connection = Connection(accepted, address, port, receiver, time.monotonic())
        if self._stamped:
            connection.stamp()
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        self.open.add(connection)

    def identify(self, greeting: Frame) -> Identity:
        """Return who sent a greeting.

        Raises:
            WireError: it lacks this run's secret.
        """
        if not hmac.compare_digest(greeting.body, self._secret):
            raise WireError("a greeting without this run's secret")
        return Identity.of(greeting.number)

    def welcome(self, connection: Connection) -> None:
        """Answer a greeting."""
        connection.send([header(Kind.WELCOME, self._parameters)])

    def is_worker(self, connection: Connection, worker: int) -> None:
        """Note that a connection is a worker's, whose messages are expected from now on."""
        connection.device = worker
        connection.receiver.accept(self._limits)
        self._line.sent(HEADER.size)

    def called(self, to: socket.socket, accepts: Mapping[Kind, int]) -> Connection:
        """Take over this role's own connection to its server, which has answered the greeting.

        Args:
            accepts: the kinds of messages of the server, with their bodies' largest sizes in bytes.
        """
        to.setblocking(False)
        address, port = to.getpeername()
        receiver = Receiver(accepts, self.buffer)
        connection = Connection(to, address, port, receiver, time.monotonic(), SERVER_NUMBER)
        self._selector.register(to, selectors.EVENT_READ, connection)
        self.open.add(connection)
        self.above = connection
        return connection

    # -- receiving and sending

    def also(self, channel: Channel) -> None:
        """Let ``poll`` return when a channel has something to receive, too."""
        self._selector.register(channel, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Return a descriptor that can be read when ``poll`` has something to handle."""
        return self._selector.fileno()

    def poll(self, patience: float = REPORT_PERIOD) -> None:
        """Handle what the kernel reports; wait for it at most ``patience`` seconds."""
        self._accepting.again()
        if self.above is not None:
            self.above.wake_if_stalled()
        for key, events in self._selector.select(patience):
            if key.fileobj is self._listener:
                self._accepting.accept(self._open)
                continue
            connection: Connection = key.data
            if connection not in self.open:  # closed earlier in this same turn
                continue
            try:
                if events & selectors.EVENT_READ:
                    for frame in connection.receive():
                        if connection.arrived and frame.kind is Kind.PUSH:
                            self._line.queued(time.time_ns() - connection.arrived)
                        self._driver.handle(connection, frame)
                        if connection not in self.open:  # it was turned away
                            break
                if events & selectors.EVENT_WRITE and connection in self.open:
                    self._send_pending(connection)
            except EOFError:
                self.close(connection, connection.broken)
            except (WireError, BrokenConnectionError, ValueError) as error:
                self.close(connection, f"{error}")

    def _send_pending(self, connection: Connection) -> None:
        try:
            connection.send_pending()
        except BrokenConnectionError as error:
            self.broke(connection, error)
            return
        self.watch(connection)
        self._driver.sent(connection)

    def watch(self, connection: Connection) -> None:
        """Update what is waited for on a connection."""
        connection.watch(self._selector, self._driver.reads(connection))

    def broke(self, connection: Connection, error: BrokenConnectionError) -> None:
        """Note that nothing more can be sent; what arrived before is still read, up to the end."""
        connection.drop_pending()
        connection.broken = f"{error}"
        self.watch(connection)

    def say_stop(self, connections: Iterable[Connection]) -> None:
        """Say STOP over the connections that are not ending yet, and send nothing after it."""
        for connection in [one for one in connections if not one.ending]:
            try:
                connection.end(header(Kind.STOP))
                if connection is not self.evaluator:
                    self._line.sent(HEADER.size)
                self.watch(connection)
            except BrokenConnectionError as error:
                self.broke(connection, error)

    # -- closing

    def is_unowned(self, connection: Connection) -> bool:
        """Return True if a connection has not greeted, or is left over from a worker that was killed.

        The end of a connection is never reported over a link that was down.
        """
        if connection.device is None:
            return True
        return connection not in (self.evaluator, self.above) and (
            self.workers.get(connection.device) is not connection
        )

    def close(self, connection: Connection, reason: str | None) -> None:
        """Close a connection; ``reason`` is None if the other side did, or if no reason is reported."""
        if connection is self.above:
            self.above, connection.broken = None, reason or "it closed the connection"
            self._forget(connection)
            return
        partial = not connection.receiver.between_frames
        if connection.device is not None and not self._phase.over:
            reason = reason or "it closed the connection" + (" in mid-message" if partial else "")
        if reason is not None:
            whose = "a stranger" if connection.device is None else "a device"
            self._report.event(
                "warning", f"connection of {whose} closed: {reason}", connection.device
            )
        self._report.flush()  # a worker's pushes are reported before its end
        if connection is not self.evaluator:
            self._report.connection(connection, reason)
        self._forget(connection)
        if connection is self.evaluator:
            self.evaluator = None
        elif connection.device is not None and self.workers.get(connection.device) is connection:
            del self.workers[connection.device]
            if not self._phase.over:  # what was gathered when training ended is no update any more
                self._driver.lost(connection.device)

    def _forget(self, connection: Connection) -> None:
        if connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        connection.socket.close()
        self._accepting.again(at_once=True)
        self.open.discard(connection)

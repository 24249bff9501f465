"""The connections of a device that others call: sockets and a selector, no algorithm and no clock.

A driver (``Driver``) decides what a message means and when a connection is read; what concerns the
evaluator goes to its link. Input that is malformed, oversized or foreign closes the connection it came
over, and has no other effect. An error of the device's own (of its files, its memory, its channel) ends
it.
"""

import hmac
import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.roles.evaluation.evaluator_link import EvaluatorLink
from testbed.roles.reporting import RoleReporter
from testbed.roles.transport.accepting import Accepting
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.roles.transport.greeting import Identity
from testbed.training.run_devices import PORT
from testbed.training.settings import Settings
from testbed.wire import WireError
from testbed.wire.frames import SECRET_SIZE, Frame, Kind, Receiver, header

GREETING: Mapping[Kind, int] = {Kind.HELLO: SECRET_SIZE}
"""The first message from a device that calls this one, with the most bytes of its body."""


class Driver(Protocol):
    """The owner of the connections."""

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message.

        Raises:
            UnexpectedMessageError, WireError: the connection is to be closed.
        """

    def reads(self, connection: Connection) -> bool:
        """Return True if a connection is to be read from now."""

    def sent(self, connection: Connection) -> None:
        """Act on pending bytes of a connection that the kernel has taken."""


class Connections(ABC):
    """All connections of one device.

    Attributes:
        open: all of them, whether or not they have greeted.
        workers: those of the workers, or of other peers, that are there, by number.
        evaluator: the link to the evaluator; the owner sets it before it listens.
    """

    evaluator: EvaluatorLink

    def __init__(
        self,
        settings: Settings,
        parameters: int,
        report: RoleReporter,
        driver: Driver,
        queued: Callable[[int], None] | None = None,
    ) -> None:
        """Prepare to listen.

        Args:
            parameters: the size of the model, or of a server's slice, which must equal the others'.
            queued: called with the nanoseconds for which the kernel has kept a push, where it is to
                report when it received one.
        """
        self.open: set[Connection] = set()
        self.workers: dict[int, Connection] = {}
        # One read takes a whole dense push and the pull after it.
        self.buffer = memoryview(bytearray(4 * parameters + 4096))
        self.report = report
        self._secret = bytes.fromhex(settings.network.secret)
        self._parameters = parameters
        self._driver = driver
        self._queued = queued
        self._selector = selectors.EpollSelector()
        self._listener: socket.socket
        self._accepting: Accepting

    # -- accepting and greeting

    def listen(self) -> None:
        self._listener = socket.create_server(("", PORT), backlog=4096)
        warn = partial(self.report.event, "warning")
        self._accepting = Accepting(self._listener, self._selector, warn)

    def stop_listening(self) -> None:
        self._accepting.close()

    def add(
        self, opened: socket.socket, address: str, port: int, accepts: Mapping[Kind, int] = GREETING
    ) -> Connection:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver, local_port = Receiver(accepts, self.buffer), opened.getsockname()[1]
        connection = Connection(
            opened, address, port, receiver, time.monotonic(), local_port=local_port
        )
        if self._queued is not None:
            connection.stamp()
        connection.watch(self._selector, read=True)
        self.open.add(connection)
        return connection

    def identify(self, greeting: Frame) -> Identity:
        """Return who sent a greeting.

        Raises:
            WireError: it lacks this run's secret.
        """
        if not hmac.compare_digest(greeting.body, self._secret):
            raise WireError("a greeting without this run's secret")
        return Identity.of(greeting.number)

    def welcome(self, connection: Connection) -> None:
        connection.send([header(Kind.WELCOME, self._parameters)])

    # -- receiving and sending

    def also(self, descriptor: int) -> None:
        """Have ``poll`` return when a channel has something to receive, too."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def poll(self, patience: float | None) -> bool:
        """Handle what the kernel reports.

        Args:
            patience: seconds to wait for it at most; None: without limit.

        Returns:
            True if a descriptor of ``also`` can be read.
        """
        self._accepting.again()
        readable = False
        for key, events in self._selector.select(patience):
            if key.fileobj is self._listener:
                self._accepting.accept(self.add)
            elif not isinstance(key.data, Connection):
                readable = True
            elif key.data in self.open:  # not closed earlier in this same turn
                self.serve(key.data, events)
        return readable

    def serve(self, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                for frame in connection.receive():
                    self._handle(connection, frame)
                    if connection not in self.open:  # it was turned away
                        break
            if events & selectors.EVENT_WRITE and connection in self.open:
                self._send_pending(connection)
        except EOFError:
            self._ended(connection)
        except (WireError, BrokenConnectionError, UnexpectedMessageError) as error:
            self.close(connection, f"{error}")

    def _handle(self, connection: Connection, frame: Frame) -> None:
        if connection is self.evaluator.connection:
            self.evaluator.heard(frame.number)
        elif frame.kind is Kind.HELLO and self.identify(frame).number == self.evaluator.number:
            if self.evaluator.connection is not None:
                raise WireError("the evaluator is connected already")
            self.welcome(connection)
            self.evaluator.greeted(connection)
        else:
            if self._queued is not None and connection.arrived and frame.kind is Kind.PUSH:
                self._queued(time.time_ns() - connection.arrived)
            self._driver.handle(connection, frame)

    def _send_pending(self, connection: Connection) -> None:
        try:
            connection.send_pending()
        except BrokenConnectionError as error:
            self.broke(connection, error)
            return
        if connection is self.evaluator.connection:
            self.evaluator.send()
        else:
            self.watch(connection)
            self._driver.sent(connection)

    def watch(self, connection: Connection) -> None:
        """Update what is waited for on a connection."""
        connection.watch(self._selector, self._driver.reads(connection))

    def broke(self, connection: Connection, error: BrokenConnectionError) -> None:
        """Stop sending over a broken connection; what arrived before is still read, up to the end."""
        connection.drop_pending()
        connection.broken = f"{error}"
        self.watch(connection)

    @contextmanager
    def sending(self, connection: Connection) -> Iterator[None]:
        try:
            yield
        except BrokenConnectionError as error:
            self.broke(connection, error)
        else:
            self.watch(connection)

    def say_stop(self, connections: Iterable[Connection]) -> None:
        for connection in [one for one in connections if not one.ending]:
            with self.sending(connection):
                connection.end(header(Kind.STOP))
                self._said_stop(connection)

    def _said_stop(self, connection: Connection) -> None:  # noqa: B027 - only servers note it
        """Act on a STOP that was sent over a connection."""

    # -- closing

    def is_present(self, connection: Connection) -> bool:
        """Return True for the connection of a worker that has greeted and was not killed since."""
        return connection.device is not None and self.workers.get(connection.device) is connection

    def _ended(self, connection: Connection) -> None:
        self.close(connection, connection.broken)

    @abstractmethod
    def close(self, connection: Connection, reason: str | None) -> None:
        """Close a connection; ``reason`` is None if the other side did, or if no reason is reported."""

    def _forget(self, connection: Connection) -> None:
        """Close a connection's socket, which leaves room for another connection."""
        connection.unwatch(self._selector)
        connection.socket.close()
        self._accepting.again(at_once=True)
        self.open.discard(connection)
        if connection is self.evaluator.connection:
            self.evaluator.connection = None

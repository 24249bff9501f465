"""A peer's connections to the other peers: connecting, sending, receiving and disconnecting."""

import hmac
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from testbed.roles.orders import OrderChannel
from testbed.roles.peer.evaluator_link import EvaluatorLink
from testbed.roles.peer.outgoing import Outgoing
from testbed.roles.reporting import Report
from testbed.roles.transport.accepting import Accepting
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError, Pieces
from testbed.roles.transport.greeting import Identity, call
from testbed.roles.transport.kernel_queues import unread
from testbed.training.settings import PORT, Settings
from testbed.updates import FloatVector
from testbed.wire import WireError
from testbed.wire.frames import SECRET_SIZE, Frame, Kind, Receiver, header

CONNECTING_TIMEOUT = 60.0
"""Seconds that peers have to connect to each other."""
CLOSING_TIMEOUT = 30.0
"""Seconds that peers have to close their connections after training."""


class PeerConnections:
    """All connections of one peer.

    Attributes:
        selector: what ``turn`` waits for; the peer may register more.
        report: to the orchestrator.
        identity: this peer's.
        payload_bytes, message_bytes: received from other peers.
        outgoing: what has not reached the others yet.
        returned: peers that were killed, and have come back and connected; the peer empties it.
    """

    def __init__(  # noqa: PLR0917 - what a peer's connections are made of
        self,
        settings: Settings,
        number: int,
        neighbours: Sequence[int],
        parameters: int,
        longest: int,
        report: Report,
        spill: int | None = None,
        incarnation: int = 0,
    ) -> None:
        """Begin to listen.

        Args:
            neighbours: the peers that it talks to, in order.
            parameters: the model's size, which must equal the others'.
            longest: the longest body of an update, in bytes.
            spill: descriptor of the file for snapshots that wait for the evaluator, if there is one.
            incarnation: how often this peer was killed.
        """
        self.selector = selectors.EpollSelector()
        self.payload_bytes = 0
        self.message_bytes = 0
        self._settings = settings
        self.identity = Identity(number, incarnation)
        self._number = number
        self._neighbours = neighbours
        self._size = parameters
        self.report = report
        self._secret = bytes.fromhex(settings.network.secret)
        self._scratch = memoryview(bytearray(4 * parameters + 4096))
        self._working = {Kind.PUSH: longest, Kind.PARAMETERS: longest, Kind.STOP: 0}
        self._peers: dict[int, Connection] = {}
        self.outgoing = Outgoing(self._peers, self.turn)
        self._unidentified: set[Connection] = set()
        self._received: deque[tuple[int, Frame]] = deque()
        self._evaluator = EvaluatorLink(
            *(settings, 4 * parameters, report, spill),
            watch=self._watch,
            serve=self._serve,
            close=self._close,
        )
        self._disconnecting = False
        self._reading: int | None = -1
        self._lost: list[tuple[int, int]] = []
        self.returned: list[int] = []
        self._forgotten: set[Connection] = set()
        self._listener = socket.create_server(("", PORT), backlog=4096)
        warn = partial(report.event, "warning")
        self._accepting = Accepting(self._listener, self.selector, warn)

    def connect(self) -> None:
        """Connect to the neighbours with lower numbers, and wait until the others have connected.

        The evaluated peer also waits for the evaluator.

        Raises:
            OSError: some peers cannot be reached, or have another secret or model.
        """
        deadline = time.monotonic() + CONNECTING_TIMEOUT
        for number in self._neighbours:
            if number < self._number:
                self._call(number, deadline)
        evaluated = self._number == self._settings.network.evaluated_peer
        while len(self._peers) < len(self._neighbours) or (
            evaluated and self._evaluator.connection is None
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"only {len(self._peers)} of {len(self._neighbours)} other peers had "
                    f"connected after {CONNECTING_TIMEOUT:g} s"
                )
            self.turn(1.0)

    def connect_again(self, others: Mapping[int, int]) -> None:
        """Connect to peers that are there, as this one was killed and comes back.

        Args:
            others: their numbers, each with how often that peer was killed.

        Raises:
            OSError: one cannot be reached. Under the wall clock it is left out: it may be killed now.
        """
        deadline = time.monotonic() + CONNECTING_TIMEOUT
        for number in (one for one in self._neighbours if one in others):
            try:
                self._call(number, deadline)
            except OSError as error:
                if self._settings.timing.clock == "virtual":
                    raise
                text = f"peer {self._number}, which is back, has not reached it: {error}"
                self.report.event("warning", text, number)
            else:
                self._peers[number].incarnation = others[number]

    @property
    def connected(self) -> list[int]:
        """The peers that this one is connected to, in order."""
        return sorted(self._peers)

    @property
    def absent(self) -> list[int]:
        """The peers that this one talks to and is not connected to, in order."""
        return [number for number in self._neighbours if number not in self._peers]

    def _call(self, number: int, deadline: float) -> None:
        address = self._settings.network.peer_addresses[number]
        called = call(address, max(0.0, deadline - time.monotonic()))
        connection = self._add(called, address, {Kind.WELCOME: 0})
        identity = int(self.identity)
        hello = header(Kind.HELLO, identity, length=len(self._secret)) + self._secret
        connection.send([hello])
        while connection in self._unidentified:
            self.turn(1.0)
            if time.monotonic() > deadline:
                raise TimeoutError(f"peer {number} does not answer")
        if connection.socket.fileno() < 0:  # the reason was reported when it was closed
            raise ConnectionRefusedError(f"peer {number} refused peer {self._number}'s greeting")
        connection.device = number
        self._peers[number] = connection

    def _add(self, accepted: socket.socket, address: str, accepts: dict[Kind, int]) -> Connection:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver = Receiver(accepts, self._scratch)
        port = accepted.getpeername()[1]
        local = accepted.getsockname()[1]
        connection = Connection(
            accepted, address, port, receiver, time.monotonic(), local_port=local
        )
        self.selector.register(accepted, selectors.EVENT_READ, connection)
        self._unidentified.add(connection)
        return connection

    # -- the loop

    def turn(
        self, patience: float | None, orders: OrderChannel | None = None, reading: int | None = -1
    ) -> bool:
        """Wait for the next events, and handle them.

        Args:
            patience: seconds to wait at most; None: without limit.
            orders: a channel of orders; also wait until it is readable.
            reading: read from this peer only, from no peer if None, from all if -1.

        Returns:
            True if ``orders`` is readable.
        """
        if reading != self._reading:
            before, self._reading = self._reading, reading
            for number, connection in self._peers.items():
                if -1 in (before, reading) or number in (before, reading):
                    self._watch(connection)
        self._accepting.again()
        readable = False
        for key, events in self.selector.select(patience):
            if key.fileobj is self._listener:
                self._accepting.accept(self._open)
            elif isinstance(key.data, Connection):
                if key.data.socket.fileno() >= 0:  # no event before this one has closed it
                    self._serve(key.data, events)
            else:
                readable = orders is not None and key.fileobj is orders
        return readable

    def _watch(self, connection: Connection) -> None:
        """Update what ``selector`` waits for on a connection."""
        read = not self._is_present(connection) or self._reading in (-1, connection.device)
        connection.watch(self.selector, read and not connection.ended)

    def _is_present(self, connection: Connection) -> bool:
        """Return True if it is the connection to a peer that is there."""
        number = connection.device
        return number is not None and self._peers.get(number) is connection

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                connection.send_pending()
                if connection is self._evaluator.connection:
                    self._evaluator.send_waiting()
            if events & selectors.EVENT_READ:
                for frame in connection.receive():
                    self._handle(connection, frame)
        except EOFError:
            if not connection.stopped:
                self._close(connection, None)
                return
            connection.ended = True  # the other side still reads what is sent to it
        except (WireError, BrokenConnectionError, ValueError) as error:
            self._close(connection, f"{error}")
            return
        self._settle(connection)

    def _settle(self, connection: Connection) -> None:
        if connection.ended and connection.ending and not connection.pending:
            self._close(connection, None)
        else:
            self._watch(connection)

    def _open(self, accepted: socket.socket, address: str, _: int) -> None:
        self._add(accepted, address, {Kind.HELLO: SECRET_SIZE})

    def _handle(self, connection: Connection, frame: Frame) -> None:
        if connection is not self._evaluator.connection and frame.kind is not Kind.HELLO:
            self.message_bytes += frame.size
        match frame.kind:
            case Kind.HELLO:
                self._greet(connection, frame)
            case Kind.WELCOME:
                if frame.number != self._size:
                    raise WireError(f"its model has {frame.number} parameters, not {self._size}")
                self._unidentified.discard(connection)
                connection.receiver.accept(self._working)
            case Kind.STOP:
                connection.stopped = True
            case Kind.FINISHED:
                self._evaluator.note_result()
            case _:
                self.payload_bytes += len(frame.body)
                connection.payload_bytes += len(frame.body)
                number = connection.device
                if not (self._disconnecting or number is None or connection in self._forgotten):
                    self._received.append((number, frame.kept()))

    def _greet(self, connection: Connection, frame: Frame) -> None:
        if not hmac.compare_digest(frame.body, self._secret):
            raise WireError("a greeting without this run's secret")
        identity, peers = Identity.of(frame.number), self._settings.workers
        number = identity.number
        if number == peers and self._evaluator.connection is None:
            self._evaluator.connection = connection
            connection.receiver.accept({Kind.FINISHED: 0})
        elif number in self._neighbours and self._admits(identity):
            self.message_bytes += frame.size
            if number in self._peers:  # its end was not noticed
                self._close(self._peers[number], "it was killed, and is back")
            self._received = deque(one for one in self._received if one[0] != number)
            self._peers[number] = connection
            connection.incarnation = identity.incarnation
            if identity.incarnation:
                self.returned.append(number)
            connection.receiver.accept(self._working)
        else:
            raise WireError(f"device {number} must not connect here, or is connected already")
        connection.device = number
        self._unidentified.discard(connection)
        connection.send([header(Kind.WELCOME, self._size)])

    def _admits(self, identity: Identity) -> bool:
        """Return True if a peer may connect: one with a higher number, or one that comes back."""
        known = self._peers.get(identity.number)
        if known is None:
            return self._number < identity.number or identity.incarnation > 0
        return identity.incarnation > known.incarnation

    def _close(self, connection: Connection, reason: str | None) -> None:
        """Close a connection; ``reason`` is None if the other side closed it."""
        to_evaluator = connection is self._evaluator.connection
        has_left = self._disconnecting and reason is None and connection.stopped
        is_expected = has_left or connection in self._forgotten
        if not to_evaluator and not is_expected:
            why = reason or "it closed the connection"
            text = f"connection to peer {self._number} closed: {why}"
            self.report.event("warning", text, connection.device)
            if connection.device is not None:
                self._lost.append((connection.device, connection.incarnation))
        if connection.socket in self.selector.get_map():
            self.selector.unregister(connection.socket)
        observed = self._number == self._settings.network.evaluated_peer
        if observed and not to_evaluator:
            connection.read_out()
            self.report.connection(connection, reason)
        connection.socket.close()
        self._accepting.again(at_once=True)
        self._unidentified.discard(connection)
        if to_evaluator:
            self._evaluator.connection = None
        elif connection.device is not None and self._is_present(connection):
            del self._peers[connection.device]
        self._forgotten.discard(connection)

    def forget(self, peer: int) -> None:
        """Drop what has come from a peer that dies, and what still comes until its connection ends."""
        connection = self._peers.pop(peer, None)
        if connection is not None:
            self._forgotten.add(connection)
            self._watch(connection)
        self._received = deque(one for one in self._received if one[0] != peer)

    def lost(self) -> Iterator[tuple[int, int]]:
        """Yield the peers whose connections broke since the last call; each with its incarnation."""
        while self._lost:
            yield self._lost.pop()

    # -- sending and receiving

    def send(self, receiver: int, pieces: Pieces) -> None:
        """Send to a peer as much as the kernel takes now; ``turn`` sends the rest."""
        connection = self._peers.get(receiver)
        if connection is None:
            return
        try:
            connection.send(pieces)
            if connection.pending:
                self._watch(connection)
        except BrokenConnectionError as error:
            self._close(connection, f"{error}")

    def frames(self) -> Iterator[tuple[int, Frame]]:
        """Yield the updates that have come, with their senders, in the order in which they came."""
        while self._received:
            yield self._received.popleft()

    def next_from(self, sender: int, waiting: Callable[[], None] = lambda: None) -> Frame | None:
        """Wait for the next update of one peer, reading from no other; return None if it is gone.

        Args:
            waiting: called at least once a second meanwhile.
        """
        while True:
            for place, (peer, frame) in enumerate(self._received):
                if peer == sender:
                    del self._received[place]
                    return frame
            if sender not in self._peers or self._peers[sender].ended:
                return None
            self.turn(1.0, reading=sender)
            waiting()

    def has_from(self, sender: int) -> bool:
        """Return True if ``next_from`` has something to read or to return, the peer's end included."""
        connection = self._peers.get(sender)
        if connection is None or connection.ended or unread(connection.socket):
            return True
        return any(peer == sender for peer, _ in self._received)

    def evaluate(self, iteration: int, parameters: FloatVector) -> None:
        """Send a copy of the parameters to the evaluator, when the evaluator is ready for it."""
        self._evaluator.evaluate(iteration, parameters)

    # -- the end

    def disconnect(self) -> None:
        """Send pending bytes, then end all connections, and read what the others still send."""
        self._disconnecting = True
        self._accepting.close()
        for connection in list(self._unidentified):
            self._close(connection, "training is over")
        for connection in (*self._peers.values(), *self._forgotten):
            try:
                connection.end(header(Kind.STOP))
                self._settle(connection)
            except BrokenConnectionError as error:
                self._close(connection, f"{error}")
        deadline = time.monotonic() + CLOSING_TIMEOUT
        while (self._peers or self._forgotten) and time.monotonic() < deadline:
            self.turn(1.0)
        for connection in (*self._peers.values(), *self._forgotten):
            self._close(connection, f"still open {CLOSING_TIMEOUT:g} s after the end")
        self._evaluator.finish(lambda: self.turn(1.0))

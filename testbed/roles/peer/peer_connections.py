"""A peer's connections to the other peers: connecting, sending, receiving and disconnecting."""

import select
import selectors
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from testbed.roles.connections import Connections
from testbed.roles.evaluation.evaluator_link import Asked, EvaluatorLink
from testbed.roles.peer.peer_reports import ReceivedSoFar
from testbed.roles.reporting import RoleReporter
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError, Pieces
from testbed.roles.transport.greeting import Identity, call
from testbed.roles.transport.kernel_queues import under_way
from testbed.training.settings import Settings
from testbed.updates import FloatVector, as_bytes
from testbed.wire import WireError
from testbed.wire.frames import Frame, Kind, header

CONNECTING_TIMEOUT = 60.0
"""Seconds that peers have to connect to each other."""
ANSWERING_TIMEOUT = 1.0
"""Seconds of it that are left to each: one that is frozen, and called before, does not take them."""
SETTLING = 0.5
"""Seconds without a byte more after which a peer is taken for one that receives nothing now."""
CLOSING_TIMEOUT = 30.0
"""Seconds that peers have to close their connections after training."""


class PeerConnections(Connections):
    """All connections of one peer, and their driver.

    Attributes:
        payload_bytes, message_bytes: received from other peers.
        returned: peers that were killed, and have come back and connected; the peer empties it.
    """

    def __init__(  # noqa: PLR0917 - what a peer's connections are made of
        self,
        settings: Settings,
        number: int,
        neighbours: Sequence[int],
        parameters: int,
        longest: int,
        report: RoleReporter,
        spill: int | None = None,
        incarnation: int = 0,
    ) -> None:
        """Listen for other peers.

        Args:
            parameters: the model's size, which must equal the others'.
            longest: the longest body of an update, in bytes.
        """
        super().__init__(settings, parameters, report, self)
        self.payload_bytes = 0
        self.message_bytes = 0
        self._settings = settings
        self.identity = Identity(number, incarnation)
        self._number = number
        self._neighbours = neighbours
        self._working = {Kind.PUSH: longest, Kind.PARAMETERS: longest, Kind.STOP: 0}
        # The call that is not answered yet, and the peer that is called, until it is connected.
        self._calling: Connection | None = None
        self._called: int | None = None
        self._received: deque[tuple[int, Frame]] = deque()
        self.evaluator = EvaluatorLink(
            *(self, 4 * parameters, report, spill),
            number=settings.evaluator,
            # Evaluations are a part of the result, and the host's time is not.
            waited_for=settings.timing.clock == "virtual",
            patient=True,
        )
        self._disconnecting = False
        self._reading: int | None = -1
        self._lost: list[tuple[int, int]] = []
        self.returned: list[int] = []
        self.listen()

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
        while len(self.workers) < len(self._neighbours) or (
            evaluated and self.evaluator.connection is None
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"only {len(self.workers)} of {len(self._neighbours)} other peers had "
                    f"connected after {CONNECTING_TIMEOUT:g} s"
                )
            self.turn(1.0)

    def connect_again(self, others: Collection[int]) -> None:
        """Connect to peers that are there, as this one was killed and comes back.

        Another one that comes back may call this one first, or at the same moment: of two such calls
        that of the peer with the higher number becomes the connection.

        Raises:
            OSError: one cannot be reached. Under the wall clock it is left out: it may be killed now.
        """
        deadline = time.monotonic() + CONNECTING_TIMEOUT
        for number in self._neighbours:
            if number not in others or number in self.workers:
                continue
            try:
                self._call(number, deadline)
            except OSError as error:
                if self._settings.timing.clock == "virtual":
                    raise
                text = f"peer {self._number}, which is back, has not reached it: {error}"
                self.report.event("warning", text, number)

    @property
    def received_so_far(self) -> ReceivedSoFar:
        return ReceivedSoFar(self.identity.incarnation, self.payload_bytes, self.message_bytes)

    @property
    def connected(self) -> list[int]:
        return sorted(self.workers)

    @property
    def absent(self) -> list[int]:
        """The peers that this one talks to and is not connected to, in order."""
        return [number for number in self._neighbours if number not in self.workers]

    def _call(self, number: int, deadline: float) -> None:
        address = self._settings.network.peer_addresses[number]
        deadline = max(deadline, time.monotonic() + ANSWERING_TIMEOUT)
        called = call(address, deadline - time.monotonic())
        port = called.getpeername()[1]
        self._calling = connection = self.add(called, address, port, {Kind.WELCOME: 0})
        self._called = number
        hello = header(Kind.HELLO, int(self.identity), length=len(self._secret)) + self._secret
        connection.send([hello])
        while connection is self._calling and connection in self.open:
            if time.monotonic() > deadline:
                self._called = None
                self.close(connection, f"peer {number} does not answer")
                raise TimeoutError(f"peer {number} does not answer")
            self.turn(1.0)
        self._called = None
        connection.device = number
        if number in self.workers:  # it has called, too
            if connection in self.open:
                self.close(connection, None)
        elif connection in self.open:
            self.workers[number] = connection
        else:  # the reason was reported when it was closed
            raise ConnectionRefusedError(f"peer {number} refused peer {self._number}'s greeting")

    # -- the loop

    def turn(self, patience: float | None, reading: int | None = -1) -> bool:
        """Wait for the next events, and handle them, as ``poll`` does.

        Args:
            reading: read from this peer only, from no peer if None, from all if -1.
        """
        if reading != self._reading:
            before, self._reading = self._reading, reading
            for number, connection in self.workers.items():
                if -1 in (before, reading) or number in (before, reading):
                    self.watch(connection)
        return self.poll(patience)

    def reads(self, connection: Connection) -> bool:
        """Return True if the connection is to be read from now, and may still bring something."""
        read = not self.is_present(connection) or self._reading in (-1, connection.device)
        return read and not connection.ended

    def _ended(self, connection: Connection) -> None:
        if not connection.stopped:
            super()._ended(connection)
            return
        connection.ended = True  # the other side still reads what is sent to it
        self.watch(connection)
        self.sent(connection)

    def sent(self, connection: Connection) -> None:
        """Close a connection over which nothing more is sent, in either direction."""
        if connection.ended and connection.ending and not connection.pending:
            self.close(connection, None)

    def handle(self, connection: Connection, frame: Frame) -> None:
        if frame.kind is not Kind.HELLO:
            self.message_bytes += frame.size
        match frame.kind:
            case Kind.HELLO:
                self._greet(connection, frame)
            case Kind.WELCOME:
                if frame.number != self._parameters:
                    text = f"its model has {frame.number} parameters, not {self._parameters}"
                    raise WireError(text)
                if connection is self._calling:
                    self._calling = None
                connection.incarnation = frame.count
                connection.receiver.accept(self._working)
            case Kind.STOP:
                connection.stopped = True
            case _:
                self.payload_bytes += len(frame.body)
                connection.payload_bytes += len(frame.body)
                number = connection.device
                if number is not None and self.is_present(connection) and not self._disconnecting:
                    self._received.append((number, frame.kept()))

    def _greet(self, connection: Connection, frame: Frame) -> None:
        identity = self.identify(frame)
        number = identity.number
        crosses = self._crosses(identity)
        if number not in self._neighbours or not (crosses or self._admits(identity)):
            raise WireError(f"device {number} must not connect here, or is connected already")
        self.message_bytes += frame.size
        if crosses:
            connection.device = number  # its caller closes it when this peer's call has come
            return
        if number == self._called:
            self._calling = None
        if number in self.workers:  # its end was not noticed
            self.close(self.workers[number], "it was killed, and is back")
        self._received = deque(one for one in self._received if one[0] != number)
        self.workers[number] = connection
        connection.device, connection.incarnation = number, identity.incarnation
        if identity.incarnation:
            self.returned.append(number)
        connection.receiver.accept(self._working)
        self.welcome(connection)
        self.watch(connection)

    def welcome(self, connection: Connection) -> None:
        """Answer a greeting; the caller learns which incarnation it has reached."""
        connection.send([header(Kind.WELCOME, self._parameters, count=self.identity.incarnation)])

    def _crosses(self, identity: Identity) -> bool:
        """Return True if a peer that comes back has called as this one called it, whose call counts."""
        number, known = identity.number, self.workers.get(identity.number)
        is_connected = known is not None and known.incarnation == identity.incarnation > 0
        return number < self._number and (number == self._called or is_connected)

    def _admits(self, identity: Identity) -> bool:
        """Return True if a peer may connect: one with a higher number, or one that comes back."""
        known = self.workers.get(identity.number)
        if known is None:
            return self._number < identity.number or identity.incarnation > 0
        return identity.incarnation > known.incarnation

    def broke(self, connection: Connection, error: BrokenConnectionError) -> None:
        self.close(connection, f"{error}")

    def close(self, connection: Connection, reason: str | None) -> None:
        number = connection.device
        if connection is not self.evaluator.connection:
            has_left = self._disconnecting and reason is None and connection.stopped
            is_forgotten = number is not None and not self.is_present(connection)
            if not (has_left or is_forgotten):
                why = reason or "it closed the connection"
                text = f"connection to peer {self._number} closed: {why}"
                self.report.event("warning", text, number)
                if number is not None:
                    self._lost.append((number, connection.incarnation))
            if self._number == self._settings.network.evaluated_peer:
                connection.read_out()
                self.report.connection(connection, reason)
        self._forget(connection)
        if number is not None and self.is_present(connection):
            del self.workers[number]

    def forget(self, peer: int) -> None:
        """Drop what has come from a peer that dies, and what still comes until its connection ends."""
        connection = self.workers.pop(peer, None)
        if connection is not None:
            self.watch(connection)  # for its end
        self._received = deque(one for one in self._received if one[0] != peer)

    def lost(self) -> Iterator[tuple[int, int]]:
        """Yield the peers whose connections broke since the last call; each with its incarnation."""
        while self._lost:
            yield self._lost.pop()

    # -- sending and receiving

    def send(self, receiver: int, pieces: Pieces) -> None:
        """Send to a peer as much as the kernel takes now; ``turn`` sends the rest."""
        connection = self.workers.get(receiver)
        if connection is not None:
            with self.sending(connection):
                connection.send(pieces)

    def senders(self) -> Iterator[int]:
        """Yield the senders of the updates that have come, in order; ``next_from`` takes each first."""
        while self._received:
            yield self._received[0][0]

    def next_from(self, sender: int) -> Frame | None:
        """Wait for the next update of one peer, reading from no other; return None if it is gone."""
        while True:
            for place, (peer, frame) in enumerate(self._received):
                if peer == sender:
                    del self._received[place]
                    return frame
            if sender not in self.workers or self.workers[sender].ended:
                return None
            self.turn(1.0, reading=sender)

    def evaluate(self, iteration: int, parameters: FloatVector) -> None:
        """Send a copy of the parameters to the evaluator, when the evaluator is ready for it.

        Under the virtual clock, wait until the queue has room again, and handle nothing else: the clock
        decides what a peer does next.
        """
        if self.evaluator.connection is None:
            return  # it was given up, and the run fails because of that
        last = iteration >= self._settings.training.updates
        self.evaluator.evaluate(Asked(iteration), as_bytes(parameters), last=last)
        began = time.monotonic()
        while self.evaluator.crowded and self.evaluator.connection is not None:
            room = select.poll()
            room.register(self.evaluator.connection.socket, select.POLLOUT)
            if room.poll(1000):
                self.serve(self.evaluator.connection, selectors.EVENT_WRITE)
            self.evaluator.give_up(began)

    # -- what the kernels, this peer's own and the receivers', have not taken yet

    def handed_over(self) -> dict[int, int]:
        """Return the number of bytes that were passed to ``send`` so far."""
        return {n: c.sent_bytes + c.pending for n, c in self.workers.items()}

    def unsent(self, counts: Mapping[int, int], spared: Collection[int] = ()) -> dict[int, int]:
        """Return the connections of which the kernel has not taken these bytes, and what it took.

        Args:
            counts: bytes by receiving peer.
        """
        return {
            n: c.sent_bytes
            for n, c in self.workers.items()
            if c.sent_bytes < counts.get(n, 0) and n not in spared
        }

    def under_way(self) -> dict[int, int]:
        """Return the peers whose kernels lack bytes that were sent to them, each with their number."""
        sizes = ((n, c.pending + under_way(c.socket)) for n, c in self.workers.items())
        return {n: size for n, size in sizes if size}

    def settle(self) -> list[int]:
        """Send all that is pending, and read what comes, until the others' kernels have all bytes.

        Returns:
            The peers whose kernels lack some, and took none for ``SETTLING`` seconds.
        """
        since, left = time.monotonic(), self.under_way()
        while left and time.monotonic() - since < SETTLING:
            self.turn(0.01)
            now = self.under_way()
            if now != left:
                since, left = time.monotonic(), now
        return list(left)

    # -- the end

    def _others(self) -> list[Connection]:
        return [one for one in self.open if one is not self.evaluator.connection]

    def disconnect(self) -> None:
        """Send pending bytes, then end all connections, and read what the others still send."""
        self._disconnecting = True
        self.stop_listening()
        for connection in [one for one in self.open if one.device is None]:
            self.close(connection, "training is over")
        self.say_stop(self._others())
        for connection in self._others():
            self.sent(connection)
        deadline = time.monotonic() + CLOSING_TIMEOUT
        while self._others() and time.monotonic() < deadline:
            self.turn(1.0)
        for connection in self._others():
            self.close(connection, f"still open {CLOSING_TIMEOUT:g} s after the end")
        began = time.monotonic()
        while self.evaluator.connection is not None:
            self.evaluator.stop()
            self.turn(1.0)
            self.evaluator.give_up(began)

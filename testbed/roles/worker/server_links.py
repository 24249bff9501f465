"""A worker's connections to several servers: no server waits for a message to another one.

Each connection is read when its answer is there (SO_RCVLOWAT, as in ``pulling``), and what the kernel
has no room to send is kept until there is room. A server that has said STOP is sent to all the same,
until all servers have; what it sent last stays valid.

A server may be killed, and comes back with an earlier version. The worker then waits until it is back,
greets it and asks it again, over another *session*; its connections to the other servers stay. What was
computed at a slice of an earlier session is not sent to that server.
"""

import select
import selectors
import socket
import time
from collections.abc import Callable, Sequence

import numpy as np

from testbed.encoding_choice import EncodingChoice, Pulls
from testbed.roles.orders import OrderChannel
from testbed.roles.transport.connection import BrokenConnectionError, Connection
from testbed.roles.transport.kernel_queues import STALLED, unread
from testbed.roles.transport.sending import Pieces
from testbed.training.settings import PORT
from testbed.training.slices import Slice
from testbed.updates import FloatVector, SparseUpdate, as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, Codec
from testbed.wire.frames import HEADER, Frame, Kind, Receiver


class ServerLink:
    """One of several servers, as a worker sees it.

    Attributes:
        connection: to it, greeted.
        slice: the part of the parameters that it holds.
        parameters: that part as the server sent it last, float32, (slice.size,).
        version: its version; -1 before the first.
        session: the number of times that the server was greeted again.
        stopped: True if the server has said STOP.
        fresh: True if a slice has come since the flag was last taken away.
        count: the number of slices that have come in this session.
    """

    def __init__(
        self, greeted: socket.socket, address: str, one: Slice, pulls: Pulls, buffer: memoryview
    ) -> None:
        """Take over a connection over which the server has answered the greeting.

        Args:
            buffer: memory to receive into, which the links of one worker share.
        """
        self.slice = one
        self.parameters: FloatVector = np.empty(one.size, np.float32)
        self.version = self.session = -1
        self.stopped = False
        self._address, self._buffer = address, buffer
        self._changes = Codec(EncodingChoice(), one.layout.sizes) if pulls == "changed" else None
        self._longest = self._changes.longest if self._changes else 4 * one.size
        self._mark = HEADER.size + 4 * one.size
        self.take_over(greeted)

    def take_over(self, greeted: socket.socket) -> None:
        """Begin a session over a connection over which the server has answered the greeting."""
        self.session += 1
        self.fresh = False
        self.count = 0
        receiver = Receiver({Kind.PARAMETERS: self._longest, Kind.STOP: 0}, self._buffer)
        greeted.setblocking(False)
        self.connection = Connection(greeted, self._address, PORT, receiver, time.monotonic())
        self._is_whole = False
        self._there = self._woken_at = 0
        self._wake_at(self._mark)
        self._readable = select.poll()
        self._readable.register(greeted, select.POLLIN)

    @property
    def has_ended(self) -> bool:
        """True if the connection has ended and nothing is left to receive."""
        try:
            return not self.connection.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def receive(self) -> dict[int, FloatVector]:
        """Receive what is there, and return the slices that came, by version.

        Raises:
            ConnectionError: the server has closed the connection without a STOP.
            WireError: it sent what it must not.
        """
        came: dict[int, FloatVector] = {}
        try:
            for frame in self.connection.receive():
                if frame.kind is Kind.STOP:
                    self.stopped = True
                    return came
                self._take(frame)
                came[self.version] = self.parameters
                self.fresh = True
        except EOFError:
            raise ConnectionResetError("the server closed the connection") from None
        except BrokenConnectionError as error:
            raise ConnectionResetError(*error.args) from error
        # An answer of which a part was read, because it had stalled, has less left than the mark.
        whole = self.connection.receiver.between_frames
        self._wake_at(1 if self._changes or not whole else self._mark)
        return came

    def _take(self, frame: Frame) -> None:
        # The slice before this one may still be needed.
        before, self.parameters = self.parameters, np.empty_like(self.parameters)
        own = as_bytes(self.parameters)
        if frame.encoding == DENSE and len(frame.body) == len(own):
            own[:] = frame.body
        elif self._changes is None or not self._is_whole:
            raise WireError(
                f"parameters of {len(frame.body)} bytes in encoding {frame.encoding}, expected "
                f"{len(own)} in encoding {DENSE}"
            )
        else:
            changes = self._changes.decode(frame.encoding, frame.body)
            if not isinstance(changes, SparseUpdate):
                raise WireError("changed parameters that are neither whole nor changes")
            np.copyto(self.parameters, before)
            self.parameters[changes.indices] = changes.values
        self._is_whole = True
        self.version = frame.number
        self.count += 1

    def unblock(self) -> None:
        """Make an answer that has stalled readable as far as it came."""
        before, self._there = self._there, unread(self.connection.socket)
        if 0 < before == self._there:
            self._wake_at(1)

    def wait(self) -> bool:
        """Wait until something is there to receive; return False if it takes ``STALLED`` seconds."""
        return bool(self._readable.poll(1000 * STALLED))

    def _wake_at(self, count: int) -> None:
        if count == self._woken_at:
            return
        self._woken_at = count
        self.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


class ServerLinks:
    """A worker's links to all servers of a run."""

    def __init__(
        self,
        links: Sequence[ServerLink],
        greet_again: Callable[[int], socket.socket] | None = None,
        again: bytes = b"",
    ) -> None:
        """Take over the links of one worker.

        Args:
            greet_again: waits for a server, given by its index, that was killed and comes back, and
                returns a connection over which it has answered the greeting; None: none comes back.
            again: what a server is sent then.
        """
        self.links = links
        self._greet_again = greet_again
        self._again = again
        self._selector = selectors.PollSelector()
        for link in links:
            self._watch(link)

    def also(self, orders: OrderChannel) -> None:
        """Let ``turn`` return when there is an order, too."""
        self._selector.register(orders, selectors.EVENT_READ)

    @property
    def going_on(self) -> list[ServerLink]:
        """The links of the servers that have not said STOP."""
        return [link for link in self.links if not link.stopped]

    @property
    def all_stopped(self) -> bool:
        """True if all servers have said STOP."""
        return not self.going_on

    def put_together(self, parameters: FloatVector) -> None:
        """Write the newest slices of all servers into one vector, float32, (|Θ|,)."""
        for link in self.links:
            link.slice.put(link.parameters, parameters)

    def send(self, messages: Sequence[Pieces]) -> None:
        """Send each server its message: what the kernel takes now, and a copy of the rest later.

        A message to a server that turns out to be gone is dropped.

        Raises:
            ConnectionError: a connection broke whose server has not said STOP, and does not come back.
        """
        for link, message in zip(self.links, messages, strict=True):
            if message and link.connection.broken is None:
                try:
                    link.connection.send(message)
                except BrokenConnectionError as error:
                    self._broke(link, error)
                if link.connection.pending:
                    self._watch(link)

    def wait_for(self, link: ServerLink) -> None:
        """Wait for a fresh slice of one server, or its STOP; meanwhile send to all what is left.

        A worker that needs the slices of all servers waits for one after the other: it wakes once where
        the others have come as well by then.
        """
        while not (link.fresh or link.stopped):
            if any(one.connection.pending for one in self.links):
                self.turn(STALLED)
            elif link.wait():
                self._receive(link)
            else:
                link.unblock()
                for one in self.going_on:
                    if self._greet_again is not None and one.has_ended:
                        self._broke(one, ConnectionResetError("the server closed the connection"))
        if link.stopped:
            self._watch(link)

    def turn(self, seconds: float) -> list[tuple[ServerLink, dict[int, FloatVector]]]:
        """Wait at most ``seconds`` until something arrives, or can be sent.

        Returns:
            The links that received slices or STOP, with the slices by version.
        """
        heard: list[tuple[ServerLink, dict[int, FloatVector]]] = []
        ready = self._selector.select(min(seconds, STALLED))
        if not ready and seconds >= STALLED:
            for link in self.going_on:
                link.unblock()
        by_connection = {link.connection: link for link in self.links}
        for key, events in ready:
            if key.data is None:
                continue  # an order
            link = by_connection[key.data]
            if events & selectors.EVENT_WRITE:
                try:
                    link.connection.send_pending()
                except BrokenConnectionError as error:
                    self._broke(link, error)
                    continue
            if events & selectors.EVENT_READ and not link.stopped:
                came = self._receive(link)
                if came or link.stopped:
                    heard.append((link, came))
            self._watch(link)
        return heard

    def finish(self) -> None:
        """Send what is left, and close the connections; all servers have said STOP."""
        while any(link.connection.pending for link in self.links):
            self.turn(STALLED)
        self._selector.close()

    def _receive(self, link: ServerLink) -> dict[int, FloatVector]:
        """Receive what is there; nothing of a server that turns out to be gone."""
        try:
            return link.receive()
        except ConnectionError as error:
            self._broke(link, error)
            return {}

    def _broke(self, link: ServerLink, error: OSError) -> None:
        """Do without a server that has stopped; greet one that was killed again."""
        if link.stopped:
            # A server that has ended needs nothing more.
            link.connection.pending = b""
            link.connection.broken = f"{error}"
            return
        if self._greet_again is None:
            raise ConnectionResetError(*error.args) from error
        while True:
            gone = link.connection.socket
            if gone in self._selector.get_map():
                self._selector.unregister(gone)
            gone.close()
            link.take_over(self._greet_again(self.links.index(link)))
            try:
                link.connection.send([self._again])
                break
            except BrokenConnectionError:
                continue  # it was killed once more
        self._watch(link)

    def _watch(self, link: ServerLink) -> None:
        link.connection.watch(self._selector, not link.stopped)

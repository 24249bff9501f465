"""The links of a device that calls: its conversations with the roles that serve it.

A link that awaits an answer wakes once, when the whole answer is there (SO_RCVLOWAT), or at the end of
the stream. No served role waits for a message to another: what the kernel has no room for is kept. A
role that has said STOP is sent to all the same, until all have; what it sent last stays valid.

A served role may be killed and come back. The device then waits for it and greets it anew, over another
*session*; its conversations with others stay.
"""

import contextlib
import math
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from testbed.engine.events import Event, Opened, Received, Stopped
from testbed.roles.transport.endpoint import NOW, BrokenConnectionError, Endpoint, Pieces, after
from testbed.roles.transport.greeting import FINISH, RESET, Greeted
from testbed.roles.transport.kernel_queues import STALLED
from testbed.wire.frames import HEADER, Head, Kind, parse

READ_OUT_TIMEOUT = 30.0
"""Seconds without a byte after which a connection is not read any further; its end may be lost."""
_CLOSED = "it closed the connection"
_WHOLE = int(socket.MSG_WAITALL)


class Arriving(ABC):
    """Where parameters go that come over links.

    Attributes:
        longest: the bytes of the longest body that may come over each link.
        whole: the bytes of each link's next answer, where they are known; otherwise 0.
    """

    longest: list[int]
    whole: list[int]

    @abstractmethod
    def place(self, conversation: int, head: Head) -> Sequence[memoryview] | None:
        """Return where a body goes; None: it stays on the link until it is taken.

        Raises:
            WireError: it is none of this run.
        """

    @abstractmethod
    def came(self, conversation: int, head: Head) -> bool:
        """Take in a body that is in its place; return False to read no further before it is used."""

    @abstractmethod
    def opened(self, conversation: int, greeted: Greeted) -> None:
        """Start a session: what comes refers to nothing that came before, but to what was greeted."""


class ServerLink:
    """One conversation, as its caller sees it.

    Attributes:
        session: how often the other side was greeted again.
        head: of an answer whose body is still to be received.
        left: the places that are still to be filled with the body; None before there are any.
        held: True if nothing is read, as an answer is to be taken, or used, first.
        awaited: how many answers were asked for and are not there; more than one where a worker that
            computes while it sends has asked again before it has read the last one.
        lost: the error with which the connection ended before a STOP.
    """

    end: Endpoint

    def __init__(self, conversation: int, longest: int) -> None:
        self.conversation = conversation
        self.session = -1
        self.stopped = self.held = False
        self.head: Head | None = None
        self._accepts: Mapping[Kind, int] = {Kind.PARAMETERS: longest, Kind.STOP: 0}

    def take_over(self, connection: socket.socket) -> None:
        """Start a session over a connection over which the greeting was answered."""
        connection.setblocking(True)  # every call says itself whether it waits
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.end = Endpoint(connection)
        self.session += 1
        # What was received before stays until it is used; a body that was announced is lost.
        self.held = self.held and self.head is None
        self.head, self.awaited = None, 0
        self.lost: OSError | None = None
        self.readable = select.poll()
        self.readable.register(connection, select.POLLIN)
        self._begun = b""
        self.left: list[memoryview] | None = None

    @property
    def is_read(self) -> bool:
        return not (self.held or self.stopped or self.lost is not None)

    def receive_head(self) -> bool:
        """Receive the head of the next message; return True if it is there.

        Raises:
            ConnectionError: the connection has ended.
            WireError: it is no message of this run.
        """
        try:
            data = self.end.socket.recv(HEADER.size - len(self._begun), NOW)
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionResetError(_CLOSED)
        self._begun += data
        if len(self._begun) < HEADER.size:
            return False
        self.head, self._begun = parse(self._begun, self._accepts), b""
        return True

    def put(self, places: Sequence[memoryview]) -> None:
        """Have the body that was announced received into places, one after the other."""
        self.left = list(after(places, 0))

    def receive_body(self, *, wait: bool = False) -> bool:
        """Receive more of the body; return True if all of it is there.

        Raises:
            ConnectionError: the connection has ended.
        """
        left, how = self.left, _WHOLE if wait else NOW
        assert left is not None
        while left:
            try:
                count = self.end.socket.recvmsg_into(left, 0, how)[0]
            except BlockingIOError:
                return False
            if not count:
                raise ConnectionResetError(_CLOSED)
            left = self.left = list(after(left, count))
        self.head, self.left = None, None
        return True


class ServerLinks:
    """A device's links, by the numbers of their conversations, from 0.

    Attributes:
        goes_on: True if the served roles were restored, and say from where this device goes on.
    """

    def __init__(
        self,
        greet: Callable[[int], Greeted],
        arriving: Arriving,
        *,
        asks: bool,
        comes_back: bool = False,
        leaves: bool = False,
    ) -> None:
        """Greet all roles that serve this device.

        Args:
            greet: returns a connection over which a role has answered the greeting; waits for one that
                was killed and comes back.
            asks: True if parameters come only as answers.
            comes_back: True if a role that is gone is greeted again.
            leaves: True if one that then cannot be greeted has left without a STOP, which is no error.
        """
        self._greet, self._arriving, self._asks = greet, arriving, asks
        self._comes_back, self._leaves = comes_back, leaves
        self._looked = time.monotonic()
        self.goes_on = False
        self.links: list[ServerLink] = []
        try:
            for number, longest in enumerate(arriving.longest):
                self._open(ServerLink(number, longest))
        except BaseException:
            self.close()
            raise

    def _open(self, link: ServerLink) -> Opened:
        greeted = self._greet(link.conversation)
        link.take_over(greeted.connection)
        if link.session == 0:
            self.links.append(link)
        self._arriving.opened(link.conversation, greeted)
        self.goes_on = greeted.goes_on
        self._set_mark(link)
        return Opened(link.conversation, link.session)

    @property
    def opened(self) -> list[Opened]:
        return [Opened(link.conversation, link.session) for link in self.links]

    @property
    def all_stopped(self) -> bool:
        return all(link.stopped for link in self.links)

    @property
    def is_any_lost(self) -> bool:
        """True if a served role is gone without a STOP."""
        return any(link.lost is not None for link in self.links)

    # -- sending

    def send(self, conversation: int, pieces: Pieces, *, asks: bool = False) -> None:
        """Send what the kernel takes now, and a copy of the rest later.

        What is sent to a role that is gone is dropped.

        Args:
            asks: True if an answer follows.
        """
        link = self.links[conversation]
        if link.lost or link.end.broken is not None:
            return
        if asks and not link.stopped:
            link.awaited += 1
            self._set_mark(link)
        try:
            link.end.send(pieces)
        except BrokenConnectionError as error:
            self._broke(link, error)

    def _broke(self, link: ServerLink, error: OSError) -> None:
        if link.stopped:
            # It has ended, and needs nothing more.
            link.end.drop_pending()
            link.end.broken = f"{error}"
        else:
            link.lost = error

    # -- receiving

    def wait(self, seconds: float, also: int | None = None) -> list[Event]:
        """Wait at most ``seconds`` until something has come; return what it is.

        Args:
            seconds: infinite to wait until then; it may return early with nothing.
            also: return as well when there is something to read from this descriptor.

        Raises:
            ConnectionError: a served role is gone without a STOP, and does not come back.
            WireError: it has sent what it must not.
        """
        events: list[Event] = [self._open_again(link) for link in self.links if link.lost]
        if events:
            return events
        for link, mask in self._poll(seconds, also):
            if mask & select.POLLOUT:
                try:
                    link.end.send_pending()
                except BrokenConnectionError as error:
                    self._broke(link, error)
            if link.is_read and mask & ~select.POLLOUT:
                events += self._receive(link)
        return events

    def _poll(self, seconds: float, also: int | None) -> list[tuple[ServerLink, int]]:
        """Return the links at which something has happened, and what."""
        now = time.monotonic()
        if now >= self._looked + STALLED:
            self._looked = now
            for link in self.links:
                if link.is_read:
                    link.end.wake_if_stalled()
        first, pending = None, also is not None
        for link in self.links:
            pending = pending or link.end.pending > 0
            if link.is_read and link.end.has_mark:
                seconds = min(seconds, STALLED)
                if first is None and link.awaited:
                    first = link
        if first is not None and not pending:
            # Once it is there, the others' answers may be as well.
            if first.readable.poll(1000 * seconds):
                return [(first, select.POLLIN)]
            seconds = 0.0
        ready, by_descriptor = select.poll(), dict[int, ServerLink]()
        for link in self.links:
            wanted = select.POLLIN * link.is_read
            if link.end.pending and not link.lost:
                wanted |= select.POLLOUT
            # A connection that has ended would be reported again and again if nothing were wanted.
            if wanted:
                descriptor = link.end.socket.fileno()
                ready.register(descriptor, wanted)
                by_descriptor[descriptor] = link
        if also is not None:
            ready.register(also, select.POLLIN)
        found = ready.poll(None if seconds == math.inf else 1000 * seconds)
        return [(by_descriptor[fd], mask) for fd, mask in found if fd != also]

    def _receive(self, link: ServerLink) -> list[Event]:
        """Receive the next message as far as it is there; return what has come."""
        try:
            link.end.wake_at(1)
            return self._received(link)
        except ConnectionError as error:
            self._broke(link, error)
            return []

    def _received(self, link: ServerLink) -> list[Event]:
        if link.head is None and not link.receive_head():
            return []
        head, conversation = link.head, link.conversation
        assert head is not None
        if head.kind is Kind.STOP:
            link.stopped, link.awaited = True, 0
            return [Stopped(conversation)]
        if link.left is None:
            places = self._arriving.place(conversation, head)
            if places is None:
                link.held = True
            else:
                link.put(places)
        if link.left is not None:
            if not link.receive_body():
                link.end.wake_at(sum(map(len, link.left)))
                return []
            link.held = not self._arriving.came(conversation, head)
        link.awaited = max(0, link.awaited - 1)
        self._set_mark(link)
        return [Received(conversation, head.number)]

    def _set_mark(self, link: ServerLink) -> None:
        """Wake when the next message is there, if its length is known."""
        whole = self._arriving.whole[link.conversation]
        expected = (link.awaited or not self._asks) and link.head is None
        link.end.wake_at(HEADER.size + whole if expected and whole else 1)

    def take(self, conversation: int, places: Sequence[memoryview]) -> None:
        """Wait for the whole body of an answer that was announced, and receive it.

        Raises:
            ConnectionError: the connection ended.
        """
        link = self.links[conversation]
        link.put(places)
        try:
            link.receive_body(wait=True)
        except ConnectionError as error:
            self._broke(link, error)
            raise
        link.held = False
        self._set_mark(link)

    def release(self, conversation: int) -> None:
        """Read on: an answer was taken, or used."""
        self.links[conversation].held = False

    # -- sessions

    def _open_again(self, link: ServerLink) -> Opened | Stopped:
        """Wait for a role that was killed, and greet it, or find that it has left for good.

        Raises:
            ConnectionError: it does not come back.
        """
        assert link.lost is not None
        if not self._comes_back:
            raise ConnectionResetError(f"the server is gone: {link.lost}") from link.lost
        link.end.socket.close()
        try:
            return self._open(link)
        except OSError:
            if not self._leaves:
                raise
            link.stopped = True
            link.end.drop_pending()
            link.end.broken = f"{link.lost}"
            link.lost = None
            return Stopped(link.conversation)

    def finish(self) -> None:
        """Send what is left, and close the connections; all served roles have said STOP."""
        while any(link.end.pending for link in self.links):
            self.wait(STALLED)
        self.leave()

    def leave(self) -> None:
        """Close the connections, whose ends come after what was sent."""
        for link in self.links:
            link.end.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, FINISH)
        self.close()

    def read_out(self) -> None:
        """Send nothing more, read until the served roles close the connections, and close them.

        What they have sent and the kernel has not delivered would reset a connection that is closed.
        """
        for link in self.links:
            link.end.drop_pending()
            with contextlib.suppress(OSError):
                link.end.socket.shutdown(socket.SHUT_WR)
                link.end.socket.settimeout(READ_OUT_TIMEOUT)
                while link.end.socket.recv(1 << 16):
                    pass
        self.close()

    def close(self) -> None:
        for link in self.links:
            link.end.socket.close()

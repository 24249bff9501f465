"""One connection of a server or a peer: it receives frames, and never waits to send."""

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.roles.transport.kernel_queues import STALLED, unread
from testbed.roles.transport.sending import Pieces, send_available
from testbed.training.settings import PORT
from testbed.wire import WireError
from testbed.wire.frames import Frame, Kind, Receiver

_SO_TIMESTAMPNS = 35
_TIME = struct.Struct("@qq")


class BrokenConnectionError(OSError):
    """The error of one connection that broke.

    Any other ``OSError`` is this process's own (its files, its memory, its descriptors), and must not
    close a connection.
    """


@dataclass(slots=True, eq=False)
class Connection:
    """A connection to another device.

    Attributes:
        socket: non-blocking.
        address, port: the other side's.
        receiver: of the incoming frames.
        opened: when it was opened, in seconds of CLOCK_MONOTONIC.
        device: the other device's number; None before the greeting.
        incarnation: how often the other device had been killed when the connection was made, if it is a
            peer or a worker.
        received_bytes: bytes of all messages received.
        payload_bytes: bytes of the bodies of all pushes received.
        pushes: the number of pushes received.
        sent_bytes: bytes that the kernel has taken for sending.
        pending: bytes to send that the kernel had no room for yet.
        ending: True if nothing is to be sent after ``pending``.
        local_port: this side's.
        stopped: True if the other side has said that training is over.
        ended: True if the other side sends nothing more.
        broken: why nothing more can be sent; what arrived before is still to be read.
        informed: True if the other side was sent parameters.
        stamped: True if the kernel reports when it received what is read; see ``stamp``.
        arrived: when the kernel received the last byte that was read, in nanoseconds since 1970; 0 if
            it does not report that.
    """

    socket: socket.socket
    address: str
    port: int
    receiver: Receiver
    opened: float
    device: int | None = None
    incarnation: int = 0
    received_bytes: int = 0
    payload_bytes: int = 0
    pushes: int = 0
    sent_bytes: int = 0
    pending: bytes | memoryview = b""
    ending: bool = False
    local_port: int = PORT
    stopped: bool = False
    ended: bool = False
    broken: str | None = None
    informed: bool = False
    stamped: bool = False
    arrived: int = 0
    _mark: int = field(default=1, init=False)
    _seen: tuple[int, float] = field(default=(0, 0.0), init=False)

    def stamp(self) -> None:
        """Have the kernel report when it receives what will be read."""
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.stamped = True

    def wake_at(self, count: int) -> None:
        """Make the connection readable from ``count`` bytes on, or at its end, until it is read.

        Below this mark the kernel acknowledges each super-frame, whenever this process reads.
        """
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
        self._mark = count

    def wake_if_stalled(self) -> None:
        """Take the mark of ``wake_at`` away if a part of a message is there, and nothing follows."""
        if self._mark > 1:
            there, now = unread(self.socket), time.monotonic()
            if there == 0 or there != self._seen[0]:
                self._seen = there, now
            elif now >= self._seen[1] + STALLED:
                self.wake_at(1)

    def receive(self) -> Iterator[Frame]:
        """Receive once and yield the frames that are complete.

        Raises:
            EOFError: the other side has closed the connection.
            WireError: the other side sent what it must not.
            BrokenConnectionError: the connection broke.
        """
        try:
            if self._mark > 1:
                self.wake_at(1)
            buffer = self.receiver.buffer()
            count = self._read(buffer) if self.stamped else self.socket.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            raise BrokenConnectionError(*error.args) from error
        if count == 0:
            raise EOFError
        for frame in self.receiver.received(count):
            self.received_bytes += frame.size
            self.pushes += frame.kind is Kind.PUSH
            yield frame

    def read_out(self) -> None:
        """Receive what has arrived, only to count it: it is no longer an update.

        The kernel has acknowledged these bytes, so that the capture counts them.
        """
        with contextlib.suppress(EOFError, WireError, BrokenConnectionError):
            while unread(self.socket):
                for frame in self.receive():
                    if frame.kind is Kind.PUSH:
                        self.payload_bytes += len(frame.body)

    def _read(self, buffer: memoryview) -> int:
        """Receive once, and note when the last byte arrived; return the number of bytes."""
        count, ancillary, _, _ = self.socket.recvmsg_into([buffer], socket.CMSG_SPACE(_TIME.size))
        for _, kind, content in ancillary:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIME.unpack(content)
                self.arrived = seconds * 1_000_000_000 + nanoseconds
        return count

    def send(self, pieces: Pieces, flags: int = 0) -> None:
        """Send what the kernel takes now, and keep a copy of the rest in ``pending``.

        Because of the copy, a version that was pulled stays that version while later updates change
        the parameters in place.

        Args:
            flags: of the system call, if nothing is pending.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        if self.pending:
            self.pending = b"".join((self.pending, *pieces))
            return
        try:
            self.pending = send_available(self.socket, pieces, flags)
        except OSError as error:
            raise BrokenConnectionError(*error.args) from error
        self.sent_bytes += sum(map(len, pieces)) - len(self.pending)

    def watch(self, selector: selectors.BaseSelector, read: bool) -> None:
        """Watch for bytes to read if ``read`` is True, and for room if bytes are pending."""
        wanted = selectors.EVENT_READ if read else 0
        if self.pending:
            wanted |= selectors.EVENT_WRITE
        key = selector.get_map().get(self.socket)
        if key is None:
            if wanted:
                selector.register(self.socket, wanted, self)
        elif not wanted:
            # If it stayed registered, a broken connection would be reported again and again.
            selector.unregister(self.socket)
        elif key.events != wanted:
            selector.modify(self.socket, wanted, self)

    def end(self, last: bytes) -> None:
        """Send a last message, after which the other side sees the end of the stream.

        Both are one segment where nothing is pending. Two would have the kernel send the end again,
        unless the other side acknowledges them within milliseconds.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        self.send([last], socket.MSG_MORE)
        self.ending = True
        self._end_if_all_is_sent()

    def _end_if_all_is_sent(self) -> None:
        if self.pending or not self.ending:
            return
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise BrokenConnectionError(*error.args) from error

    def send_pending(self) -> None:
        """Send more of ``pending``.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        try:
            sent = self.socket.send(self.pending)
        except BlockingIOError:
            return
        except OSError as error:
            raise BrokenConnectionError(*error.args) from error
        self.sent_bytes += sent
        self.pending = memoryview(self.pending)[sent:] if sent < len(self.pending) else b""
        self._end_if_all_is_sent()

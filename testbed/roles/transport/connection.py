"""One connection of a server or a peer: it receives frames, and never waits to send."""

import contextlib
import selectors
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.roles.transport.endpoint import BrokenConnectionError, Endpoint
from testbed.roles.transport.kernel_queues import unread
from testbed.training.run_devices import PORT
from testbed.wire import WireError
from testbed.wire.frames import Frame, Kind, Receiver

_SO_TIMESTAMPNS = 35
_TIME = struct.Struct("@qq")


@dataclass(slots=True, eq=False)
class Connection(Endpoint):
    """A connection to another device.

    Attributes:
        address, port: the other side's.
        opened: when it was opened, in seconds of CLOCK_MONOTONIC.
        device: the other device's number; None before the greeting.
        incarnation: how often the other device had been killed when the connection was made, if it is a
            peer or a worker.
        payload_bytes: bytes of the bodies of all pushes received.
        stopped: True if the other side has said that training is over.
        ended: True if the other side sends nothing more.
        informed: True if the other side was sent parameters.
        stamped: True if the kernel reports when it received what is read; see ``stamp``.
        arrived: when the kernel received the last byte that was read, in nanoseconds since 1970; 0 if
            it does not report that.
    """

    address: str
    port: int
    receiver: Receiver
    opened: float
    device: int | None = None
    incarnation: int = 0
    received_bytes: int = 0
    payload_bytes: int = 0
    pushes: int = 0
    local_port: int = PORT
    stopped: bool = False
    ended: bool = False
    informed: bool = False
    stamped: bool = False
    arrived: int = 0
    _watched: int = 0

    def stamp(self) -> None:
        """Have the kernel report when it receives what will be read."""
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.stamped = True

    def receive(self) -> Iterator[Frame]:
        """Receive once and yield the frames that are complete.

        Raises:
            EOFError: the other side has closed the connection.
            WireError: the other side sent what it must not.
            BrokenConnectionError: the connection broke.
        """
        try:
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

    def watch(self, selector: selectors.BaseSelector, read: bool) -> None:
        """Watch for bytes to read if ``read`` is True, and for room if bytes are pending."""
        wanted = selectors.EVENT_READ if read else 0
        if self.pending:
            wanted |= selectors.EVENT_WRITE
        self._watch(selector, wanted)

    def unwatch(self, selector: selectors.BaseSelector) -> None:
        self._watch(selector, 0)

    def _watch(self, selector: selectors.BaseSelector, wanted: int) -> None:
        if wanted == self._watched:
            return
        if not self._watched:
            selector.register(self.socket, wanted, self)
        elif not wanted:
            # If it stayed registered, a broken connection would be reported again and again.
            selector.unregister(self.socket)
        else:
            selector.modify(self.socket, wanted, self)
        self._watched = wanted

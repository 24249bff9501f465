"""Carry the channels between the processes of a run over a connection between two hosts.

At both ends of the connection a relay has one end of each channel: of the control channel between
orchestrator and agent, of the orders' between the virtual clock and a device, and of the reports'
between a role and the orchestrator. Packets stay whole, and those of one channel stay in their
order; so no process knows whether the other end of its channel is on its host. What was sent over any
channel before a packet over the control channel is carried before it: a role's last report comes before
the news of its end, and the last orders of a device that was killed come before its new process starts.

With the request to start a role goes the end of a new channel. The orchestrator's relay keeps that end
and gives the channel a number; the agent's makes another pair for it, and hands an end of that on.
Orders that wait there are for a process of the device that was killed, and are dropped.

What a device sends that cannot be carried is replaced by the reason, which its reader refuses as no
message: so a hostile device is killed, and its host goes on.
"""

import contextlib
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from testbed.channel import InvalidMessageError, Packet, parsed, receive_packet, send_packet
from testbed.orchestrator.hosts.secured_connection import (
    LARGEST,
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
)

CONTROL = 0
"""The number of the control channel."""
OUTPUT = 1
"""The number of the channel for what the agent and its roles write."""
FIRST_ORDERS = 16
"""The number of the channel of device 0's orders; device n's is the n-th after it."""
_FIRST_REPORTS = 1 << 20
"""The number of the first channel of reports, in the order in which roles are started."""
_LONGEST_PACKET = 1 << 18
_MOST_UNREAD = 1000
"""Packets, more than the kernel keeps for a channel."""
_MOST_WAITING = 256 << 20
"""Bytes that wait for processes to read them, beyond which the run is given up."""


class FrameKind(IntEnum):
    """What a frame is."""

    OPEN = 0
    """The first of either side: what it asks for or is, as JSON."""
    PACKET = 1
    """A packet of its channel."""
    LONG = 2
    """A message of its channel that its sender has put into a memory file."""
    START = 3
    """A control packet with the end of a new channel; the number is that channel's."""
    END = 4
    """Nothing more comes from the channel."""
    INQUIRY = 5
    """Asks for something before a run, or answers; see ``inquiries``."""
    ENTER = 6
    """In place of what a run asks for: asks for a command in a device; see ``device_entry``."""
    STREAM = 7
    """Bytes of the command's standard stream of that number; none are its end."""
    TAKEN = 8
    """The number of bytes of a stream that were written; 0 if nothing more is read from it."""
    SIGNAL = 9
    """A signal of that number for the command."""
    ENDED = 10
    """The command has ended, with that status."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A packet that a channel had no room for.

    Attributes:
        long: whether it goes in a memory file.
        report: the end of a new channel that goes with it.
    """

    content: bytes
    long: bool = False
    report: socket.socket | None = None


@dataclass(slots=True)
class _LocalEnd:
    """A relay's end of a channel.

    Attributes:
        reads: whether packets still come from it.
        ending: whether nothing more comes for it from the other host.
        watched: the events that the relay waits for at it.
    """

    number: int
    socket: socket.socket
    waiting: deque[_Waiting] = field(default_factory=deque)
    reads: bool = True
    ending: bool = False
    watched: int = 0


class Relay:
    """Carries the packets of channels in both directions; see ``run``."""

    def __init__(
        self,
        connection: SecuredConnection,
        ends: Mapping[int, socket.socket],
        *,
        calls: bool,
        output: Callable[[bytes], object] = lambda _: None,
        pending: Sequence[HostFrame] = (),
    ) -> None:
        """Take over the ends of channels.

        Args:
            ends: by the channels' numbers; the control channel's among them.
            calls: True at the orchestrator, which numbers the channels of reports.
            output: takes what comes on the channel for output.
            pending: frames that have come already.
        """
        self._connection = connection
        self._calls = calls
        self._output = output
        self._next = _FIRST_REPORTS
        self._ends: dict[int, _LocalEnd] = {}
        self._selector = selectors.DefaultSelector()
        self._waiting = 0
        os.set_blocking(connection.socket.fileno(), False)
        self._selector.register(connection.socket, selectors.EVENT_READ)
        for number, end in ends.items():
            self._add(number, end)
        self._control = self._ends[CONTROL]
        self._open = {CONTROL, OUTPUT}
        for frame in pending:
            self._take(frame)

    def _add(self, number: int, end: socket.socket) -> None:
        self._ends[number] = own = _LocalEnd(number, end)
        self._watch(own)

    def run(self) -> None:
        """Carry packets until the agent and its roles have ended.

        Raises:
            ConnectionLostError: the connection has ended before that.
        """
        while self._open or self._connection.unsent:
            found = self._selector.select()
            for key, events in sorted(found, key=lambda one: one[0].data is self._control):
                if key.data is None:
                    self._serve_connection(events)
                else:
                    end: _LocalEnd = key.data
                    if self._ends.get(end.number) is end:
                        self._serve_end(end, events)

    def _serve_connection(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ:
            for frame in self._connection.receive():
                self._take(frame)

    def _serve_end(self, end: _LocalEnd, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._deliver(end)
        if events & selectors.EVENT_READ:
            # All that came before the next packet over the control channel, of which one is read.
            for _ in range(1 if end is self._control else _MOST_UNREAD):
                if not (end.reads and self._read(end)):
                    break

    # -- from this host to the other

    def _read(self, end: _LocalEnd) -> bool:
        """Carry the next packet of an end to the other host; return False if there is none."""
        try:
            packet = self._received(end)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            packet = None
        except InvalidMessageError as error:
            if end is self._control:
                raise
            packet = Packet(str(error).encode(), False, ())  # its reader refuses that, too
        if packet is None:
            self._send(FrameKind.END, end.number, b"")
            end.reads = False
            if end.number == CONTROL and self._calls:
                self._watch(end)  # the agent still says what it could not remove
            else:
                self._close(end)
        elif packet.descriptors:
            number, self._next = self._next, self._next + 1
            (report,) = packet.descriptors
            self._add(number, socket.socket(fileno=report))
            self._send(FrameKind.START, number, packet.content)
        else:
            self._send(
                FrameKind.LONG if packet.long else FrameKind.PACKET, end.number, packet.content
            )
        return True

    def _received(self, end: _LocalEnd) -> Packet | None:
        """Return the next packet of an end; see ``receive_packet``.

        Raises:
            InvalidMessageError: also if a descriptor came that nothing is made of here.
        """
        packet = receive_packet(end.socket, _LONGEST_PACKET, LARGEST)
        if packet is not None and packet.descriptors and not (self._calls and end is self._control):
            for one in packet.descriptors:
                os.close(one)
            raise InvalidMessageError("a packet with a descriptor")
        return packet

    def _send(self, kind: FrameKind, number: int, content: bytes) -> None:
        self._connection.queue(kind, number, content)
        self._flush()

    def _flush(self) -> None:
        self._connection.flush()
        wanted = selectors.EVENT_READ | bool(self._connection.unsent) * selectors.EVENT_WRITE
        self._selector.modify(self._connection.socket, wanted)

    # -- from the other host to this one

    def _take(self, frame: HostFrame) -> None:
        if frame.channel == OUTPUT:
            self._output(frame.content)
            if frame.kind == FrameKind.END:
                self._open.discard(OUTPUT)
        elif frame.kind == FrameKind.START and not self._calls:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._add(frame.channel, ours)
            role = parsed(frame.content)[0]["role"]
            if "number" in role:  # a keeper of programs has none, and gets no orders
                self._drop_orders(int(role["number"]))
            self._queue(self._ends[CONTROL], _Waiting(frame.content, report=theirs))
        elif (end := self._ends.get(frame.channel)) is not None:
            if frame.kind == FrameKind.END:
                end.ending = True
                self._deliver(end)
            else:
                self._queue(end, _Waiting(frame.content, frame.kind == FrameKind.LONG))
        # Else a process has ended that this was on its way to.

    def _drop_orders(self, device: int) -> None:
        orders = self._ends.get(FIRST_ORDERS + device)
        if orders is not None:
            self._waiting -= sum(len(one.content) for one in orders.waiting)
            orders.waiting.clear()

    def _queue(self, end: _LocalEnd, packet: _Waiting) -> None:
        end.waiting.append(packet)
        self._waiting += len(packet.content)
        self._deliver(end)
        if self._waiting > _MOST_WAITING:
            raise ConnectionLostError(f"{self._waiting:,} bytes wait here, and nobody reads them")

    def _deliver(self, end: _LocalEnd) -> None:
        """Give a channel the packets that it has room for, and then its end if it is over."""
        while end.waiting:
            first = end.waiting[0]
            handed = () if first.report is None else (first.report.fileno(),)
            try:
                send_packet(end.socket, first.content, long=first.long, descriptors=handed)
            except BlockingIOError:
                break
            except OSError:  # no process has the other end open any more
                pass
            if first.report is not None:
                first.report.close()
            self._waiting -= len(first.content)
            end.waiting.popleft()
        if not end.ending or end.waiting:
            self._watch(end)
        elif end.number == CONTROL and not self._calls:
            with contextlib.suppress(OSError):
                end.socket.shutdown(socket.SHUT_WR)
            self._watch(end)
        else:
            self._close(end)

    def _watch(self, end: _LocalEnd) -> None:
        wanted = end.reads * selectors.EVENT_READ | bool(end.waiting) * selectors.EVENT_WRITE
        if wanted == end.watched:
            return
        if end.watched:
            self._selector.unregister(end.socket)
        if wanted:
            self._selector.register(end.socket, wanted, end)
        end.watched = wanted

    def _close(self, end: _LocalEnd) -> None:
        del self._ends[end.number]
        self._open.discard(end.number)
        if end.watched:
            self._selector.unregister(end.socket)
        end.socket.close()

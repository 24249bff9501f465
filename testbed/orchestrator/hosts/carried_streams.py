"""Carry the standard streams of a command between two hosts; both ends do the same.

Of each stream an end sends at most ``WINDOW`` bytes beyond those that the other end has written. So
neither keeps more than that, whatever is not read, and the connection itself is always read: signals
and ends do not wait for a stream.
"""

import contextlib
import os
import select
from collections.abc import Mapping, Sequence

from testbed.orchestrator.hosts.relay import FrameKind
from testbed.orchestrator.hosts.secured_connection import (
    ConnectionLostError,
    HostFrame,
    SecuredConnection,
)

WINDOW = 1 << 18
_AT_ONCE = 1 << 16
_PART = 4096
"""The most bytes that are written at once: a pipe that has room has room for as many."""


class CarriedStreams:
    """One end of the streams of a command, by their numbers: 0, 1 and 2.

    Attributes:
        sources: the descriptors that are read.
        sinks: those that are written to.
    """

    def __init__(
        self,
        connection: SecuredConnection,
        sources: Mapping[int, int],
        sinks: Mapping[int, int],
        pending: Sequence[HostFrame] = (),
    ) -> None:
        """Take over descriptors, which may block.

        Args:
            pending: frames that have come already.
        """
        self.sources, self.sinks = dict(sources), dict(sinks)
        self._connection = connection
        self._room = dict.fromkeys(sources, WINDOW)
        self._waiting = {number: bytearray() for number in sinks}
        self._ended: set[int] = set()
        self._others: list[HostFrame] = []
        os.set_blocking(connection.socket.fileno(), False)
        for frame in pending:
            self._take(frame)

    @property
    def waits(self) -> bool:
        """True if something that has come is not written yet."""
        return any(self._waiting.values())

    @property
    def are_read(self) -> bool:
        """True if nothing can be read from the sources now."""
        poll = select.poll()
        for source in self.sources.values():
            poll.register(source, select.POLLIN)
        return not any(events & select.POLLIN for _, events in poll.poll(0))

    def send(self, kind: FrameKind, number: int, content: bytes = b"") -> None:
        """Send a frame, in its order with all others."""
        self._connection.queue(kind, number, content)

    def turn(self, other: int | None = None) -> tuple[bool, Sequence[HostFrame]]:
        """Wait until something can be carried, or another descriptor is readable, and carry it.

        Returns:
            Whether the other descriptor is readable; and the frames that are of no stream.

        Raises:
            ConnectionLostError: the connection has ended, or the other end sends more than it may.
        """
        self._connection.flush()
        own = self._connection.socket.fileno()
        poll = select.poll()
        sending = select.POLLOUT if self._connection.unsent else 0
        poll.register(own, select.POLLIN | sending)
        for number, source in self.sources.items():
            if self._room[number]:
                poll.register(source, select.POLLIN)
        for number, sink in self.sinks.items():
            if self._waiting[number]:
                poll.register(sink, select.POLLOUT)
        if other is not None:
            poll.register(other, select.POLLIN)
        ready = dict(poll.poll(0 if self._others else None))
        for number, source in [*self.sources.items()]:
            if source in ready:
                self._read(number, source)
        for number, sink in [*self.sinks.items()]:
            if sink in ready:
                self._write(number, sink)
        if ready.get(own, 0) & ~select.POLLOUT:
            for frame in self._connection.receive():
                self._take(frame)
        self._connection.flush()
        others, self._others = self._others, []
        return other in ready, others

    def _read(self, number: int, source: int) -> None:
        try:
            part = os.read(source, min(self._room[number], _AT_ONCE))
        except BlockingIOError:
            return
        except OSError:  # how a terminal says that its other end is closed
            part = b""
        self._room[number] -= len(part)
        self.send(FrameKind.STREAM, number, part)
        if not part:
            os.close(self.sources.pop(number))

    def _write(self, number: int, sink: int) -> None:
        waiting = self._waiting[number]
        try:
            written = os.write(sink, waiting[:_PART])
        except BlockingIOError:
            return
        except OSError:  # no process reads it any more
            written = 0
            waiting.clear()
            self._ended.add(number)
        del waiting[:written]
        self.send(FrameKind.TAKEN, number, written.to_bytes(4))
        self._close_if_over(number)

    def _close_if_over(self, number: int) -> None:
        if number in self._ended and not self._waiting[number]:
            os.close(self.sinks.pop(number))

    def _take(self, frame: HostFrame) -> None:
        number, content = frame.channel, frame.content
        if frame.kind == FrameKind.STREAM and number in self.sinks:
            self._waiting[number] += content
            if len(self._waiting[number]) > WINDOW:
                raise ConnectionLostError("it has sent more than it may")
            if not content:
                self._ended.add(number)
            self._close_if_over(number)
        elif frame.kind == FrameKind.TAKEN and number in self.sources:
            taken = int.from_bytes(content)
            self._room[number] += taken
            if not taken:
                os.close(self.sources.pop(number))
        # Those of a stream that has ended are for nobody.
        elif frame.kind not in (FrameKind.STREAM, FrameKind.TAKEN):
            self._others.append(frame)

    def close_sources(self) -> None:
        """Read no more."""
        while self.sources:
            os.close(self.sources.popitem()[1])

    def close(self) -> None:
        """Close all descriptors but the connection's."""
        self.close_sources()
        while self.sinks:
            with contextlib.suppress(OSError):
                os.close(self.sinks.popitem()[1])

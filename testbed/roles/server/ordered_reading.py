"""Reading in the virtual clock's order: one worker's message at a time, and no other worker's."""

from collections import deque

from testbed.clock.stage import Arrived
from testbed.roles.server.role_host import RoleHost
from testbed.roles.transport.connection import Connection
from testbed.training.parameter_service import Pushed
from testbed.wire.frames import Frame, Kind


class OrderedReading:
    """The message that the clock waits for, and frames that were read together with it.

    Attributes:
        connection: the only worker's connection that is read now; None between two messages.
    """

    def __init__(self, host: RoleHost, buffer: memoryview) -> None:
        self.connection: Connection | None = None
        self._host = host
        self._expected = 1
        self._buffer = buffer
        self._apart = memoryview(bytearray(len(buffer)))
        self._keep = False
        self._push: Pushed | None = None
        self._is_report = False
        self._sizes: list[int] = []
        # Frames of messages that came in one read with the message before them, by worker.
        self._read_ahead: dict[int, deque[Frame]] = {}

    def begin(
        self, worker: int, connection: Connection, *, keep: bool, pushes: bool, asks: bool
    ) -> None:
        """Start to read a worker's message, with the frames of it that were read ahead.

        Args:
            keep: True if others' messages may be read before this one is used.
            pushes, asks: True if the message has a push, and a question for parameters. A report comes
                in place of both.
        """
        self._push, self._keep, self.connection = None, keep, connection
        self._is_report = False
        self._expected = pushes + asks
        self._sizes.clear()
        kept = self._read_ahead.pop(worker, None) or deque()
        while kept:  # frames beyond this message are kept again
            self.take(worker, kept.popleft())

    def take(self, worker: int, frame: Frame) -> None:
        """Take a frame of the worker that is read: of its message, or of its next message."""
        if self.is_complete:
            # The clock has not come to the next message yet.
            self._read_ahead.setdefault(worker, deque()).append(frame.kept())
        elif frame.kind is Kind.PULL:
            self._sizes.append(frame.size)
        else:
            self._is_report = frame.kind is Kind.FINISHED
            self._push = self._host.decode(self._kept(frame))
            self._sizes.insert(0, frame.size)

    def _kept(self, frame: Frame) -> Frame:
        """Return a frame that stays as it is: for good, or until the next message.

        A body that came in one read lies in memory into which all connections are read, and others may
        be read before the clock goes on.
        """
        if self._keep:
            return frame.kept()
        return frame.kept(self._apart) if frame.body.obj is self._buffer.obj else frame

    @property
    def is_complete(self) -> bool:
        return len(self._sizes) >= (1 if self._is_report else self._expected)

    def end(self) -> Arrived | None:
        """Stop reading; return the message, or None if it was not read whole."""
        self.connection = None
        if not self.is_complete:
            return None
        return Arrived(self._push, tuple(self._sizes))

    def forget(self, worker: int) -> None:
        """Drop what was read ahead from a worker that is killed."""
        self._read_ahead.pop(worker, None)

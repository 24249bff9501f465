"""The answers to a worker's pulls, and how the worker waits for and receives them.

A worker waits for an answer before it takes a turn at computing, so that no turn is spent on a slow
link. It wakes once per answer: SO_RCVLOWAT makes the connection readable when the whole answer is there
(or the end of the stream after a STOP). An answer longer than the kernel's buffers wakes it early.

An answer that stalls is read as far as it came: where segments are long (loopback's are 64 KiB), the
sender may wait for more window than is left before the mark, and nothing else would ever end that. The
mark also holds while reading: a reader that has part of an answer and sleeps for the rest is not woken
by less than the mark. So the mark is taken away before anything is read.
"""

import math
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from testbed.encoding_choice import EncodingChoice, Pulls
from testbed.roles.transport.kernel_queues import STALLED, unread
from testbed.roles.transport.receiving import receive_exactly, receive_header
from testbed.updates import FloatVector, Layout, SparseUpdate, as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, Codec
from testbed.wire.frames import HEADER, Kind


class Answers(ABC):
    """The answers to the pulls of one connection.

    Usage, for each answer: ``listen``; ``wait``; then ``take`` what was announced.

    Attributes:
        idle: called about once a second while nothing comes; None: nothing is called.
        dealt: the number of the mini-batch in the run's stream that came with the last answer.
    """

    idle: Callable[[], None] | None = None

    def __init__(self, connection: socket.socket, longest: int) -> None:
        self._connection = connection
        self._accepts = {Kind.PARAMETERS: longest, Kind.STOP: 0}
        self._arrived = select.poll()
        self._arrived.register(connection, select.POLLIN)
        self.dealt = 0
        self._encoding = 0
        self._length = 0
        self._there = 0

    def begin_with(self, parameters: FloatVector) -> None:
        """Take over the parameters of the last answer that came over an earlier connection."""
        return  # a subclass that needs them overrides this

    @abstractmethod
    def listen(self) -> None:
        """Set the mark so that the next answer wakes this worker."""

    def wait(self) -> int | None:
        """Wait for the answer, and return the version that it brings; None for a STOP.

        Raises:
            WireError: it is no answer of this run's server.
            ConnectionError: the connection ended.
        """
        self.arrived(None)
        head = receive_header(self._connection, self._accepts)
        self._encoding, self._length, self.dealt = head.encoding, head.length, head.count
        return None if head.kind is Kind.STOP else head.number

    @abstractmethod
    def take(self, parameters: FloatVector) -> None:
        """Receive the version that ``wait`` announced into ``parameters``.

        Raises:
            WireError: it is no answer of this run's server.
            ConnectionError: the connection ended.
        """

    def arrived(self, seconds: float | None) -> bool:
        """Wait at most ``seconds`` for an answer; return True if there is one (whole, if possible)."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        while not self._arrived.poll(1000 * min(STALLED, max(0.0, until - time.monotonic()))):
            if self.stands_still():
                break
            if self.idle is not None:
                self.idle()
            if time.monotonic() >= until:
                return False
        self._wake_at(1)
        return True

    def stands_still(self) -> bool:
        """Return True if some of an answer is there, and no more than at the last call."""
        before, self._there = self._there, unread(self._connection)
        return 0 < before == self._there

    def _wake_at(self, count: int) -> None:
        """Make the connection readable from ``count`` bytes on."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)


class FullAnswers(Answers):
    """Answers that are whole vectors, received straight into the model's memory."""

    def __init__(self, connection: socket.socket, layout: Layout) -> None:
        self._size = 4 * layout.total
        super().__init__(connection, self._size)

    def listen(self) -> None:
        self._wake_at(HEADER.size + self._size)

    def take(self, parameters: FloatVector) -> None:
        if self._length != self._size or self._encoding != DENSE:
            raise WireError(
                f"parameters of {self._length} bytes in encoding {self._encoding}, expected "
                f"{self._size} in encoding {DENSE}"
            )
        receive_exactly(self._connection, as_bytes(parameters))


class ChangedAnswers(Answers):
    """Answers that hold the changes since the last answer; this side keeps the vector between them.

    The vector is the worker's own copy, because workers share the models that they compute with.
    """

    def __init__(self, connection: socket.socket, layout: Layout) -> None:
        self._codec = Codec(EncodingChoice(), layout.sizes)
        super().__init__(connection, self._codec.longest)
        self._own = np.empty(layout.total, np.float32)
        self._complete = False

    def begin_with(self, parameters: FloatVector) -> None:
        np.copyto(self._own, parameters)
        self._complete = True

    def listen(self) -> None:
        # The first answer is the whole vector; later answers state their lengths.
        self._wake_at(HEADER.size + (0 if self._complete else 4 * len(self._own)))

    def wait(self) -> int | None:
        version = super().wait()
        if version is not None and self._length:
            self._wake_at(self._length)
            self.arrived(None)
        return version

    def take(self, parameters: FloatVector) -> None:
        if self._encoding == DENSE and self._length == as_bytes(self._own).nbytes:
            receive_exactly(self._connection, as_bytes(self._own))
            self._complete = True
        else:
            body = memoryview(bytearray(self._length))
            receive_exactly(self._connection, body)
            changes = self._codec.decode(self._encoding, body)
            if not self._complete or not isinstance(changes, SparseUpdate):
                raise WireError("changed parameters before there were any to change")
            self._own[changes.indices] = changes.values
        np.copyto(parameters, self._own)


ANSWERS: dict[Pulls, type[FullAnswers] | type[ChangedAnswers]] = {
    "full": FullAnswers,
    "changed": ChangedAnswers,
}

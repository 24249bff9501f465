"""An aggregator's connection to its server, where it is a worker that asks."""

from collections.abc import Sequence

import numpy as np

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.encoding_choice import EncodingChoice
from testbed.roles.server.connections import Connections
from testbed.roles.server.sums import Sums
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.roles.transport.greeting import Identity, connect
from testbed.training.settings import Settings
from testbed.updates import FloatVector, Layout, SparseUpdate, as_bytes
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, Codec
from testbed.wire.frames import HEADER, Frame, Kind, header


class Above:
    """The conversation of an aggregator with its server: parameters down, sums up.

    Nothing waits: what the kernel does not take is sent when it has room again.

    Attributes:
        parameters: those that were received last, float32, (|Θ|,).
        connection: None before ``connect``.
        pushed: the last message that was pushed, if it is remembered.
    """

    connection: Connection | None = None

    def __init__(
        self,
        settings: Settings,
        index: int,
        half: AggregatorHalf,
        layout: Layout,
        connections: Connections,
        *,
        remembers: bool = False,
    ) -> None:
        """Prepare to connect.

        Args:
            index: the aggregator's, as a role that serves; from 1.
            connections: those of the aggregator, of which this one becomes one.
            remembers: True if what is pushed last may have to be sent again.
        """
        self.pushed = b""
        self._remembers = remembers
        self.parameters: FloatVector = np.empty(layout.total, np.float32)
        self._settings = settings
        self._number = settings.callers(0)[index - 1]
        self._half = half
        self._layout = layout
        self._connections = connections
        self._exact = Codec(EncodingChoice(), layout.sizes)
        self._sums = Sums(settings, half, layout)
        self._is_complete = False

    def connect(self, unread: bytes = b"") -> None:
        """Connect to the server, and ask for parameters; or go on as at a checkpoint.

        Args:
            unread: what the server had not read then of what was pushed.

        Raises:
            WireError: the server refused the greeting, or has another model.
            OSError: the server cannot be reached.
        """
        greeted = connect(self._settings, Identity(self._number), self._layout.total)
        longest = max(self._exact.longest, self.parameters.nbytes)
        accepts = {Kind.PARAMETERS: longest, Kind.STOP: 0}
        self.connection = self._connections.called(greeted.connection, accepts)
        self._is_complete = greeted.base is not None
        if greeted.base is not None:
            self.parameters = greeted.base
        if not greeted.goes_on:
            self.ask()
        elif unread:
            self._send([unread])

    def check(self) -> None:
        """Raise an error if the connection has ended before training was over.

        Raises:
            ConnectionError: it has.
        """
        if self.is_gone:
            assert self.connection is not None
            raise ConnectionResetError(f"the server is gone: {self.connection.broken}")

    @property
    def is_gone(self) -> bool:
        """True if the connection has ended."""
        return self.connection is not None and self.connection not in self._connections.open

    def ask(self, before: Sequence[bytes | memoryview] = ()) -> int:
        """Ask for parameters; return the bytes of that message.

        Args:
            before: the message to send before, with the same call.
        """
        # Only the lengths of answers that are whole vectors are known.
        whole = self._settings.training.pulls == "full" or not self._is_complete
        answer = HEADER.size + self.parameters.nbytes if whole else None
        self._send([*before, header(Kind.PULL)], answer)
        return HEADER.size

    def take(self, frame: Frame) -> None:
        """Take over parameters that have arrived.

        Raises:
            WireError: they are none of this run.
        """
        if frame.encoding == DENSE and len(frame.body) == self.parameters.nbytes:
            as_bytes(self.parameters)[:] = frame.body
            self._is_complete = True
            return
        changes = self._exact.decode(frame.encoding, frame.body)
        if not self._is_complete or not isinstance(changes, SparseUpdate):
            raise WireError("changed parameters before there were any to change")
        self.parameters[changes.indices] = changes.values

    def push(self) -> bool:
        """Push the combination that has closed, and ask for the next parameters.

        If there is nothing in it, as no device is left, only a report of that is sent.

        Returns:
            False if there was nothing in it.
        """
        combined = self._half.take()
        if combined is None:
            report = header(Kind.FINISHED, self._half.version)
            self.pushed = bytes(report)
            self._send([report])
            return False
        message = self._sums.message(combined)
        if self._remembers:
            self.pushed = b"".join([*message, header(Kind.PULL)])
        self.ask(message)
        return True

    def _send(self, pieces: list[bytes | memoryview], answer: int | None = None) -> None:
        """Send what the kernel takes now; a connection that turns out to be broken is gone.

        Args:
            answer: the bytes of the answer, if they are known.
        """
        connection = self.connection
        assert connection is not None
        if self.is_gone:
            return
        try:
            if answer is not None:
                connection.wake_at(answer)
            connection.send(pieces)
            self._connections.watch(connection)
        except BrokenConnectionError as error:
            self._connections.close(connection, f"{error}")

    def close(self) -> None:
        """End the connection, once training is over."""
        if self.connection is not None:
            self._connections.close(self.connection, "training is over")

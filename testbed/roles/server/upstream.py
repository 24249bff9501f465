"""An aggregator's conversation with the role that serves it: parameters down, sums up."""

from collections.abc import Sequence

import numpy as np

from testbed.algorithms.aggregator_half import AggregatorHalf, Combined
from testbed.engine.events import Event, Message, Opened, Report, Sum
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.sockets.parameters import KeptParameters
from testbed.roles.sockets.server_links import ServerLinks
from testbed.roles.transport.endpoint import Pieces
from testbed.roles.transport.greeting import Greeted, Identity, connect
from testbed.training.parameter_service import as_loss
from testbed.training.slices import slices
from testbed.updates import FloatVector, checked
from testbed.wire.frames import HEADER, Kind, header
from testbed.wire.own_encoding import codec_of


class Upstream:
    """The conversation of an aggregator with a server, or with another aggregator.

    Attributes:
        links: its only link; None before ``connect``, and when it is closed.
        pushed: the last message that was pushed, if it is remembered.
    """

    def __init__(self, serving: ServerInputs, *, comes_back: bool) -> None:
        assert isinstance(serving.half, AggregatorHalf)
        settings, layout = serving.settings, serving.layout
        self.links: ServerLinks | None = None
        self.pushed = b""
        self._settings, self._comes_back = settings, comes_back
        self._number = settings.as_worker(serving.index)
        self._half = serving.half
        self._codec = codec_of(settings.encoding, layout.sizes)
        self._received = KeptParameters(slices(layout, 1), settings.pulls, only_newest=True)
        self._parameters = np.empty(layout.total, np.float32)
        self._to_send: list[bytes | memoryview] = []
        self._asks = False

    def connect(self) -> Sequence[Opened]:
        """Greet what serves this aggregator; return the session that this begins.

        Raises:
            WireError: the greeting was refused, or the model is another one.
            OSError: it cannot be reached.
        """
        settings, number = self._settings, self._number

        def greet(_: int) -> Greeted:
            called = settings.called(number)
            return connect(settings, Identity(number), len(self._parameters), server=called)

        self.links = ServerLinks(greet, self._received, asks=True, comes_back=self._comes_back)
        return self.links.opened

    @property
    def is_open(self) -> bool:
        return self.links is not None and not self.links.is_any_lost

    @property
    def is_stopped(self) -> bool:
        return self.links is not None and self.links.all_stopped

    def wait(self, seconds: float, also: int) -> Sequence[Event]:
        """Wait until something has come from above, or can be read from a descriptor; return that.

        Raises:
            ConnectionError: what served this aggregator is gone, and does not come back.
            WireError: it has sent what it must not.
        """
        assert self.links is not None
        return self.links.wait(seconds, also)

    def has(self, version: int) -> bool:
        """Return True if parameters of a version have come, and were not taken."""
        return self._received.has(0, version)

    def take(self, version: int) -> FloatVector:
        """Return the parameters that have come, float32, (|Θ|,), until the next are taken."""
        assert self.links is not None
        self._received.put([version], self._parameters, self.links.take)
        return self._parameters

    def add(self, message: Message) -> None:
        """Make a message, which ``send`` sends with the others since."""
        if isinstance(message, Sum):
            self._to_send += self._sum(message.combined)
        elif isinstance(message, Report):
            self._to_send.append(header(Kind.FINISHED, message.version))
        else:
            self._to_send.append(header(Kind.PULL))
            self._asks = True

    def _sum(self, combined: Combined) -> Pieces:
        """Return the message that pushes a sum; it may share the half's memory."""
        update = checked(combined.update, len(self._parameters), self._half)
        encoding, body = self._codec.encode(update)
        head = header(
            Kind.PUSH,
            combined.base_version,
            encoding=encoding,
            loss=as_loss(combined.loss),
            count=combined.count,
            length=sum(map(len, body)),
        )
        if self._codec.lossy:
            self._half.lost(update, self._codec.rounded(update))
        return [head, *body]

    def send(self, *, remembers: bool = False) -> None:
        """Send what was added; nothing waits for the kernel to take it.

        Args:
            remembers: keep a copy in ``pushed``.
        """
        pieces, self._to_send = self._to_send, []
        asks, self._asks = self._asks, False
        if pieces and remembers:
            self.pushed = b"".join(pieces)
        if pieces and self.links is not None:
            self.links.send(0, pieces, asks=asks)

    def send_again(self, pushed: bytes) -> None:
        """Send what was pushed before this aggregator was restored, and was not read."""
        self.pushed = pushed
        if pushed and self.links is not None:
            self.links.send(0, [pushed], asks=len(pushed) > HEADER.size)  # not by a report

    def leave(self) -> None:
        if self.links is not None:
            self.links.finish() if self.links.all_stopped else self.links.leave()
            self.links = None

    def read_out(self) -> None:
        """Send nothing more, and read until the other side has closed the connection."""
        if self.links is not None:
            self.links.read_out()
            self.links = None

"""An aggregator's conversations with the roles that serve it: parameters down, sums up."""

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
from testbed.training.pushed_parts import Encoded, PushedParts
from testbed.updates import FloatVector, checked
from testbed.wire.frames import HEADER, Kind, header


class Upstream:
    """The conversations of an aggregator with all servers, or with another aggregator.

    They are given by the place of the other side among those that the aggregator calls.

    Attributes:
        links: one to each; None before ``connect``, and when they are closed.
    """

    def __init__(
        self,
        serving: ServerInputs,
        *,
        comes_back: bool,
        remembers: bool = False,
        incarnation: int = 0,
    ) -> None:
        """Make the conversations, of which none is open.

        Args:
            remembers: keep copies of what is sent, until an answer says that it was read.
            incarnation: the number of times that the aggregator was killed and came back.
        """
        assert isinstance(serving.half, AggregatorHalf)
        settings, layout = serving.settings, serving.layout
        self.links: ServerLinks | None = None
        self._settings, self._comes_back = settings, comes_back
        self._number = number = settings.as_worker(serving.index)
        self._identity = Identity(number, incarnation)
        self._half = serving.half
        self._parts = PushedParts.of_caller(settings, layout, number)
        cut = self._parts.cut
        self._received = KeptParameters(cut, settings.pulls, only_newest=True)
        self._parameters = np.empty(layout.total, np.float32)
        self._to_send: list[list[bytes | memoryview]] = [[] for _ in cut]
        self._asks = [False] * len(cut)
        self._combined: Combined | None = None
        self._encoded: list[Encoded] = []
        # What was sent to each since its parameters were taken last, and their version.
        self._remembers = remembers
        self._sent: list[list[bytes]] = [[] for _ in cut]
        self._taken: list[int | None] = [None] * len(cut)

    def connect(self) -> Sequence[Opened]:
        """Greet what serves this aggregator; return the sessions that this begins.

        Raises:
            WireError: a greeting was refused, or the model is another one.
            OSError: one cannot be reached.
        """
        settings, called = self._settings, self._settings.called(self._number)

        def greet(place: int) -> Greeted:
            size = self._parts.cut[place].size
            return connect(settings, self._identity, size, server=called[place])

        self.links = ServerLinks(greet, self._received, asks=True, comes_back=self._comes_back)
        return self.links.opened

    @property
    def places(self) -> range:
        return range(len(self._parts.cut))

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

    def have(self, bases: Sequence[int]) -> bool:
        """Return True if parameters of some versions, by place, have come."""
        return all(self._received.has(place, base) for place, base in enumerate(bases))

    def take(self, bases: Sequence[int]) -> FloatVector:
        """Return the parameters that have come, float32, (|Θ|,), until the next are taken."""
        assert self.links is not None
        self._received.put(bases, self._parameters, self.links.take)
        for place, base in enumerate(bases):
            if base != self._taken[place]:  # its answer came after it had read all before
                self._taken[place] = base
                self._sent[place].clear()
        return self._parameters

    def add(self, place: int, message: Message) -> None:
        """Make a message, which ``send`` sends with the others since."""
        to_send = self._to_send[place]
        if isinstance(message, Sum):
            to_send += self._part(place, message.combined)
        elif isinstance(message, Report):
            to_send.append(header(Kind.FINISHED, message.version))
        else:
            to_send.append(header(Kind.PULL))
            self._asks[place] = True

    def _part(self, place: int, combined: Combined) -> Pieces:
        """Return the message that pushes a part of a sum; it may share the half's memory."""
        if combined is not self._combined:
            self._combined, self._encoded = combined, self._encode(combined)
        part = self._encoded[place]
        head = header(
            Kind.PUSH,
            combined.bases[place],
            encoding=part.encoding,
            loss=as_loss(combined.loss),
            count=combined.count,
            length=part.size,
        )
        return [head, *part.body]

    def _encode(self, combined: Combined) -> list[Encoded]:
        update = checked(combined.update, len(self._parameters), self._half)
        parts = self._parts.encode(update)
        if self._parts.lossy:
            self._half.lost(update, self._parts.received([part.received for part in parts]))
        return parts

    def send(self) -> None:
        """Send what was added; nothing waits for the kernel to take it."""
        for place in self.places:
            pieces, self._to_send[place] = self._to_send[place], []
            asks, self._asks[place] = self._asks[place], False
            if pieces and self._remembers:
                self._sent[place].append(b"".join(pieces))
            if pieces and self.links is not None:
                self.links.send(place, pieces, asks=asks)

    # -- checkpoints

    def unread(self, counts: Sequence[int]) -> list[list[bytes]]:
        """Return the last messages to each place, as many as it has not read; none are no counts."""
        return [
            sent[len(sent) - count :]
            for sent, count in zip(self._sent, counts or [0] * len(self._sent), strict=True)
        ]

    def send_again(self, unread: Sequence[Sequence[bytes]]) -> None:
        """Send what was sent before this aggregator was restored, and was not read."""
        for place, messages in enumerate(unread):
            self._sent[place] = list(messages)
            for one in messages:
                if self.links is not None:
                    self.links.send(place, [one], asks=len(one) > HEADER.size)  # not by a report

    def leave(self) -> None:
        if self.links is not None:
            self.links.finish() if self.links.all_stopped else self.links.leave()
            self.links = None

    def read_out(self) -> None:
        """Send nothing more, and read until the other sides have closed the connections."""
        if self.links is not None:
            self.links.read_out()
            self.links = None

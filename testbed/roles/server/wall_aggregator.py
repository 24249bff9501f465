"""An aggregator under the wall clock: a server of its cluster's devices, and a worker of the server.

One thread takes in the devices' pushes and answers their pulls, as ``WallServer`` does, and takes in
what the server above sends. The server may be killed, and comes back with an earlier version: the
aggregator greets it again. Its devices stay connected; what they compute meanwhile is dropped.
"""

import time
from dataclasses import replace

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.engine.aggregator import ABOVE
from testbed.engine.events import Event, Opened, Pull, Received, Report, Send, Stopped, Sum
from testbed.roles.server.serving import Serving
from testbed.roles.server.sums import Sums
from testbed.roles.server.wall_server import WallServer
from testbed.roles.sockets.links import Links
from testbed.roles.sockets.parameters import KeptParameters
from testbed.roles.transport.greeting import Greeted, Identity, connect
from testbed.training.slices import slices
from testbed.wire.frames import Kind, header


class WallAggregator(WallServer):
    """An aggregator of one run, under the wall clock; a ``Driver`` of its connections."""

    def __init__(self, serving: Serving) -> None:
        super().__init__(serving)
        assert isinstance(serving.half, AggregatorHalf)
        settings, layout = serving.settings, serving.layout
        self._sums = Sums(settings, serving.half, layout)
        self._number = settings.callers(0)[serving.index - 1]
        self._comes_back = settings.faults.server_absence is not None
        self._received = KeptParameters(
            slices(layout, 1), settings.training.pulls, only_newest=True
        )
        self._links: Links | None = None
        self._to_send: list[bytes | memoryview] = []
        self._asks = False
        self.parts.host.above = self._upwards

    def _look_after(self) -> None:
        super()._look_after()
        if self._links is None and self.parts.phase.began is not None:
            self._connect()
        self._send_upwards()

    def _leave(self) -> None:
        if self._links is not None:
            self._links.finish() if self._links.all_stopped else self._links.leave()

    def _began(self) -> None:
        self.parts.phase.began = time.monotonic()

    # -- the server above

    def _connect(self) -> None:
        parameters = len(self.parts.above)

        def greet(_: int) -> Greeted:
            return connect(self.parts.settings, Identity(self._number), parameters)

        links = Links(greet, self._received, asks=True, comes_back=self._comes_back)
        self._links = links
        for opened in links.opened:
            self._tell(opened)

    def _wait(self) -> None:
        connections, patience = self.parts.connections, self.parts.host.patience
        if self._links is not None:
            for event in self._links.wait(patience, connections.fileno()):
                self._tell(event)
            patience = 0.0
        connections.poll(patience)

    def _tell(self, event: Event) -> None:
        """Tell the role of something that the server above has sent."""
        assert isinstance(event, Opened | Received | Stopped)
        if isinstance(event, Received):
            assert self._links is not None
            self._received.put([event.version], self.parts.above, self._links.take)
        self.parts.host.happen(replace(event, conversation=ABOVE))

    def _upwards(self, send: Send) -> None:
        """Make a message to the server above, which is sent with the others of this event."""
        message = send.message
        if isinstance(message, Sum):
            self._to_send += self._sums.message(message.combined)
        elif isinstance(message, Report):
            self._to_send.append(header(Kind.FINISHED, message.version))
        else:
            assert isinstance(message, Pull)
            self._to_send.append(header(Kind.PULL))
            self._asks = True

    def _send_upwards(self) -> None:
        pieces, self._to_send = self._to_send, []
        asks, self._asks = self._asks, False
        if pieces and self._links is not None:
            self._links.send(0, pieces, asks=asks)

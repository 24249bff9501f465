"""An aggregator under the wall clock: a server of its cluster's devices, and a worker of the server.

One thread takes in the devices' pushes and answers their pulls, as ``WallServer`` does, and it is a
worker that asks of the server above. It asks there when all its devices are there, so that training
begins when all devices of all clusters are ready. An aggregator whose devices are all gone *rests*: it
reports that to the server, which waits for it no longer, and asks again when a device is there.

The server may be killed, and comes back with an earlier version: the aggregator greets it again. Its
devices stay connected; what they compute meanwhile is dropped.
"""

import time

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.roles.server.above import Above
from testbed.roles.server.connections import REPORT_PERIOD
from testbed.roles.server.draining import drain, patience_of
from testbed.roles.server.parts import Parts
from testbed.roles.server.serving import Serving
from testbed.roles.transport.connection import Connection
from testbed.training.aggregator_service import AggregatorService
from testbed.wire.frames import Frame, Kind


class WallAggregator:
    """An aggregator of one run, under the wall clock; a ``Driver`` of its connections."""

    def __init__(self, serving: Serving) -> None:
        self.parts = parts = Parts.of(serving, self, self.now, virtual=False)
        assert isinstance(serving.half, AggregatorHalf)
        assert isinstance(parts.service, AggregatorService)
        self._half = serving.half
        self._service = parts.service
        self._phase = parts.phase
        self._connections = parts.connections
        self._above = Above(
            serving.settings, serving.index, serving.half, serving.layout, parts.connections
        )
        self._comes_back = serving.settings.faults.server_absence is not None
        self._rests = False

    def serve(self) -> None:
        """Listen, connect to the server, train and drain; return when all connections are closed.

        Raises:
            ConnectionError: the server is gone before training was over, and does not come back.
        """
        self._connections.listen()
        while not self._phase.over:
            self._connections.poll(self._patience)
            self._look_after()
        self._above.close()
        drain(self.parts, patience_of(self.parts))

    def now(self) -> float:
        """Return the seconds since all devices were there; 0 before that."""
        return self._phase.host_time()

    @property
    def _patience(self) -> float:
        deadline = self._half.deadline
        if deadline is None:
            return REPORT_PERIOD
        return min(REPORT_PERIOD, max(0.0, deadline - self.now()))

    def _look_after(self) -> None:
        """Connect to the server when all devices are there; push what is due, and ask again."""
        parts, half = self.parts, self._half
        if self._phase.over:
            return
        if self._above.is_gone:
            self._greet_again()
        if self._phase.began is None and parts.quorum.is_complete:
            self._start()
        if half.deadline is not None and self.now() >= half.deadline:
            half.expire()
        if half.is_due:
            self._rests = not self._above.push()
        elif self._rests and not self._service.is_deserted:
            self._rests = False
            self._above.ask()
        if parts.quorum.is_due:
            parts.quorum.look(self._start)
            if self._phase.began is not None:
                parts.arrivals.suspect_silent()
            parts.quorum.check()

    def _greet_again(self) -> None:
        """Wait for a server that was killed, and ask it.

        Raises:
            ConnectionError: it does not come back.
        """
        if not self._comes_back:
            self._above.check()
        self._service.lose_server()
        self._rests = False
        self._above.connect()

    def _start(self) -> None:
        self._phase.began = time.monotonic()
        self.parts.recorder.record(self._service.begin())
        self._above.connect()

    # -- the connections' driver

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message of a device, or of the server."""
        if connection is self._connections.above:
            self._hear(frame)
        elif connection.device is None:
            self.parts.arrivals.greet(connection, frame)
            self.parts.arrivals.greeted(connection)
        else:
            self.parts.arrivals.take(connection, frame)

    def _hear(self, frame: Frame) -> None:
        if frame.kind is Kind.STOP:
            self._service.stop()
            self._phase.over = True
            return
        self._above.take(frame)
        self._service.adopt(self._above.parameters, frame.number, self.now())
        self.parts.arrivals.send_due()

    def reads(self, connection: Connection) -> bool:
        """Return True: all connections are read at any time."""
        return True

    def sent(self, connection: Connection) -> None:
        """Send the devices that are due parameters: one of them has room again."""
        if connection is not self._connections.above and not connection.pending:
            self.parts.arrivals.send_due()

    def lost(self, worker: int) -> None:
        """Go on without a device; the combination may have waited for it."""
        self.parts.quorum.departed()
        self.parts.arrivals.leave(worker)

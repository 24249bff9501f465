"""An aggregator under the wall clock: a server of its cluster's devices, and a worker of the servers.

One thread takes in the devices' pushes and answers their pulls, as ``WallServer`` does, and takes in
what the servers above send. A server may be killed, and comes back with an earlier version: the
aggregator greets it again. Its devices stay connected.

It may be killed as well. What it has gathered is lost with it; as it comes back it goes on when its
devices have greeted it again, and greets what serves it.
"""

import time
from dataclasses import replace

from testbed.engine.aggregator import above
from testbed.engine.events import Compute, Event, Opened, Received, Restored, Send, Stopped
from testbed.messages.reports import TrainingBegun
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.upstream import Upstream
from testbed.roles.server.wall_server import WallServer
from testbed.training.aggregator_service import AggregatorService


class WallAggregator(WallServer):
    """An aggregator of one run, under the wall clock; a ``Driver`` of its connections."""

    def __init__(self, serving: ServerInputs, incarnation: int = 0) -> None:
        """Make the aggregator; nothing is called yet.

        Args:
            incarnation: the number of times that it was killed and came back.
        """
        super().__init__(serving)
        settings = serving.settings
        comes_back = settings.calls_return(settings.as_worker(serving.index))
        self._upwards = Upstream(serving, comes_back=comes_back, incarnation=incarnation)
        self.host.above = self._carry
        self._is_back = incarnation > 0
        if self._is_back:
            self.host.tell(Restored(self.host.callers))

    def _look_after(self) -> None:
        super()._look_after()
        if self._upwards.links is None and self.host.phase.began is not None:
            for opened in self._upwards.connect():
                self._tell(opened)
            if self._is_back:
                report = self.host.report
                report.send(TrainingBegun(self.host.phase.began, report.server))
        self._upwards.send()

    def _leave(self) -> None:
        self._upwards.leave()

    def _began(self) -> None:
        self.host.phase.began = time.monotonic()

    # -- the servers above

    def _wait(self) -> None:
        connections, patience = self.host.connections, self.host.patience
        if self._upwards.links is not None:
            for event in self._upwards.wait(patience, connections.fileno()):
                self._tell(event)
            patience = 0.0
        connections.poll(patience)

    def _tell(self, event: Event) -> None:
        """Tell the role of something that a server above has sent."""
        assert isinstance(event, Opened | Received | Stopped)
        self.host.happen(replace(event, conversation=above(event.conversation)))

    def _carry(self, action: Send | Compute) -> None:
        """Take parameters over, or make a message, which is sent with the others of this event."""
        if isinstance(action, Send):
            self._upwards.add(above(action.conversation), action.message)
            return
        bases = action.job.bases
        assert isinstance(self.host.service, AggregatorService)
        self.host.service.adopt(self._upwards.take(bases), bases, self.now())

"""The only server of a run under the virtual clock: the clock is in its process, and drives it.

It is driven as one of several servers is, in a process of its own, by the same requests; here they are
calls. If the server is killed, so is the clock, and a new process goes on from the checkpoint.
"""

import signal
from collections.abc import Sequence

from testbed.clock.stage import ServerKilledError
from testbed.roles.orders import OrderChannel
from testbed.roles.server.clock_of_servers import ClockOfServers
from testbed.roles.server.driven_server import DrivenServer
from testbed.roles.server.remote_servers import DrivenHalf
from testbed.roles.server.server_inputs import ServerInputs
from testbed.training.times import Times


class ServerWithClock:
    """The server of one run, and its virtual clock."""

    def __init__(
        self, serving: ServerInputs, *, times: Times, channels: Sequence[OrderChannel]
    ) -> None:
        half = serving.half
        self._driven = driven = DrivenServer(serving)
        self.host = driven.host
        self._clock = ClockOfServers(
            serving.settings,
            serving.layout,
            [DrivenHalf(half.protocol, half.needed, driven.do)],
            times,
            workers=channels,
            report=serving.channel,
            checkpoints=serving.checkpoints,
            remember=serving.workers_remember,
            restart=serving.restart,
            look_after=lambda: driven.wait(0),
        )

    def serve(self) -> None:
        """Listen, train and drain; return when the last connection is closed."""
        try:
            self._clock.run()
        except ServerKilledError as killed:
            self._clock.report_kill(killed)
            while True:
                signal.pause()
        self._driven.finish()

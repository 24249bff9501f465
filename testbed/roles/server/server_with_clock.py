"""The only server of a run under the virtual clock: the clock is in its process, and drives it.

It is driven as one of several servers is, in a process of its own, by the same requests; here they are
calls. If the server is killed, so is the clock, and a new process goes on from the checkpoint.
"""

import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from testbed.clock.stage import ServerKilledError
from testbed.messages import clock_requests
from testbed.messages.clock_requests import Gathered, Outcome, Request, Saved
from testbed.roles.orders import OrderChannel
from testbed.roles.server.clock_of_servers import ClockOfServers
from testbed.roles.server.driven_server import DrivenServer
from testbed.roles.server.remote_servers import DrivenHalf
from testbed.roles.server.server_inputs import ServerInputs
from testbed.training.times import Times


class ServerHere(DrivenHalf):
    """The server in this process, as the clock sees it."""

    def __init__(self, driven: DrivenServer, serving: ServerInputs) -> None:
        super().__init__(serving.half.protocol, serving.half.needed)
        self._driven = driven

    def gathered(self) -> Gathered:
        return self._driven.gather()

    def outcome(self, request: Request[Any]) -> Outcome:
        if isinstance(request, clock_requests.Restore):
            return self._driven.restore(request)
        return self._driven.do(request)

    def save(self, request: clock_requests.Save) -> Saved:
        return self._driven.save(request)

    def end(self, request: clock_requests.EndTraining) -> None:
        self._driven.end(request)

    def look_after(self) -> None:
        self._driven.wait(0)


class ServerWithClock:
    """The server of one run, and its virtual clock."""

    def __init__(
        self, serving: ServerInputs, *, times: Times, channels: Sequence[OrderChannel]
    ) -> None:
        saved = serving.checkpoints is not None
        own = replace(serving, checkpoints=None, is_saved=saved)
        self._driven = driven = DrivenServer(own)
        self.host = driven.host
        self._clock = clock = ClockOfServers(
            serving.settings,
            serving.layout,
            [ServerHere(driven, own)],
            times,
            workers=channels,
            report=serving.channel,
            checkpoints=serving.checkpoints,
            restart=serving.restart,
        )
        driven.clock = lambda: clock.now

    def serve(self) -> None:
        """Listen, train and drain; return when the last connection is closed."""
        try:
            self._clock.run()
        except ServerKilledError as killed:
            self._clock.report_kill(killed)
            while True:
                signal.pause()
        self._driven.finish()

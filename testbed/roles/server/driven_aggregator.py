"""An aggregator under the virtual clock, which runs in another process and drives it.

Below it is a ``DrivenServer``. Above, it is a worker that asks: what its servers send is kept until the
clock says that it has arrived, and what it has combined is pushed when the clock says that.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.checkpoints.stateful import State
from testbed.engine.events import Pull, Report, Sum
from testbed.messages import clock_requests
from testbed.messages.clock_requests import Outcome
from testbed.roles.server.driven_server import DrivenServer
from testbed.roles.server.server_connections import REPORT_PERIOD
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.upstream import Upstream
from testbed.wire.frames import HEADER


class DrivenAggregator(DrivenServer):
    """One of the aggregators of a run; a ``Driver`` of its connections."""

    def __init__(self, serving: ServerInputs) -> None:
        super().__init__(serving)
        assert isinstance(serving.half, AggregatorHalf)
        self._aggregating = serving.half
        self._upwards = Upstream(serving, comes_back=False, remembers=serving.remembers)
        self._unread: list[list[bytes]] = []
        self._handlers |= {
            clock_requests.Adopt: self._adopt,
            clock_requests.Combine: lambda _: self._push(),
            clock_requests.Ask: self._ask_one,
        }

    def wait(self, patience: float = REPORT_PERIOD) -> None:
        if self._upwards.is_open:
            self._upwards.wait(patience, self._connections.fileno())
            patience = 0.0
        super().wait(patience)

    def _gather(self) -> None:
        super()._gather()
        self._upwards.connect()
        self._ask(self._upwards.places)

    def _ask_one(self, request: clock_requests.Ask) -> int:
        return self._ask([request.place])

    def _ask(self, places: Iterable[int]) -> int:
        """Ask for parameters; return the bytes of each message."""
        for place in places:
            self._upwards.add(place, Pull())
        self._upwards.send()
        return HEADER.size

    def _push(self) -> bool:
        """Push the combination that has closed, and ask; or report that there is nothing in it.

        Returns:
            False if there was nothing in it.
        """
        combined = self._aggregating.take()
        for place, base in enumerate(self._aggregating.bases):
            if combined is None:
                self._upwards.add(place, Report(base))
            else:
                self._upwards.add(place, Sum(combined))
                self._upwards.add(place, Pull())
        self._upwards.send()
        return combined is not None

    def _adopt(self, request: clock_requests.Adopt) -> None:
        while not self._upwards.have(request.versions):
            self._upwards.wait(REPORT_PERIOD, self._connections.fileno())
            self._connections.poll(0.0)
        parameters = self._upwards.take(request.versions)
        self._aggregating.adopt(parameters, request.versions, time=request.time)

    def outcome(self, value: Any = None, error: str | None = None) -> Outcome:
        return replace(super().outcome(value, error), is_due=self._aggregating.is_due)

    # -- checkpoints

    def _more_state(self, request: clock_requests.Save) -> State:
        unread = self._upwards.unread(request.unread)
        return {"unread": [[np.frombuffer(one, np.uint8) for one in those] for those in unread]}

    def _restore_more(self, state: State) -> None:
        self._unread = [[one.tobytes() for one in those] for those in state["unread"]]

    def _call(self) -> None:
        self._upwards.connect()
        self._upwards.send_again(self._unread)

    # -- the end

    def read_out(self) -> None:
        super().read_out()
        self._upwards.read_out()

    def finish(self) -> None:
        while self._upwards.is_open and not self._upwards.is_stopped:
            self.wait()
        self._upwards.leave()
        super().finish()

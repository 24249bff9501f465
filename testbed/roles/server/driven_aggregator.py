"""An aggregator under the virtual clock, which runs in another process and drives it.

Below it is a ``DrivenServer``. Above, it is a worker that asks: what its server sends is kept until the
clock says that it has arrived, and what it has combined is pushed when the clock says that.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.algorithms.aggregator_half import AggregatorHalf
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
        self._upwards = Upstream(serving, comes_back=False)
        self._remembers = serving.remembers
        self._unread = b""
        self._handlers |= {
            clock_requests.Adopt: self._adopt,
            clock_requests.Combine: lambda _: self._push(),
            clock_requests.Ask: lambda _: self._ask(),
        }

    def wait(self, patience: float = REPORT_PERIOD) -> None:
        if self._upwards.is_open:
            self._upwards.wait(patience, self._connections.fileno())
            patience = 0.0
        super().wait(patience)

    def _gather(self) -> None:
        super()._gather()
        self._upwards.connect()
        self._ask()

    def _ask(self) -> int:
        """Ask for parameters; return the message's bytes."""
        self._upwards.add(Pull())
        self._upwards.send()
        return HEADER.size

    def _push(self) -> bool:
        """Push the combination that has closed, and ask; or report that there is nothing in it.

        Returns:
            False if there was nothing in it.
        """
        combined = self._aggregating.take()
        if combined is None:
            self._upwards.add(Report(self._half.version))
        else:
            self._upwards.add(Sum(combined))
            self._upwards.add(Pull())
        self._upwards.send(remembers=self._remembers)
        return combined is not None

    def _adopt(self, request: clock_requests.Adopt) -> None:
        while not self._upwards.has(request.version):
            self._upwards.wait(REPORT_PERIOD, self._connections.fileno())
            self._connections.poll(0.0)
        parameters = self._upwards.take(request.version)
        self._aggregating.adopt(parameters, request.version, time=request.time)

    def outcome(self, value: Any = None, error: str | None = None) -> Outcome:
        return replace(super().outcome(value, error), is_due=self._aggregating.is_due)

    # -- checkpoints

    def _more_state(self, request: clock_requests.Save) -> dict[str, Any]:
        unread = self._upwards.pushed if request.unread else b""
        return {"unread": np.frombuffer(unread, np.uint8)}

    def _restore_more(self, state: Mapping[str, Any]) -> None:
        self._unread = state["unread"].tobytes()

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

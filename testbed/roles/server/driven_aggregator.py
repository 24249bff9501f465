"""An aggregator under the virtual clock, which runs in another process and drives it.

Below it is a ``DrivenServer``. Above, it is a worker that asks: what its server sends is kept until the
clock says that it has arrived, and what it has combined is pushed when the clock says that.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.messages import driving
from testbed.messages.driving import Outcome
from testbed.roles.server.above import Above
from testbed.roles.server.driven_server import DrivenServer
from testbed.roles.server.serving import Serving
from testbed.roles.transport.connection import Connection
from testbed.wire.frames import Frame, Kind


class DrivenAggregator(DrivenServer):
    """One of the aggregators of a run; a ``Driver`` of its connections."""

    def __init__(self, serving: Serving) -> None:
        super().__init__(serving)
        assert isinstance(serving.half, AggregatorHalf)
        self._aggregating = serving.half
        self._above = Above(
            serving.settings,
            serving.index,
            serving.half,
            serving.layout,
            self._connections,
            remembers=serving.remembers,
        )
        self._unread = b""
        self._sent: deque[Frame] = deque()
        self._handlers |= {
            driving.Adopt: self._adopt,
            driving.Combine: lambda _: self._above.push(),
            driving.Ask: lambda _: self._above.ask(),
        }

    def _gather(self) -> None:
        super()._gather()
        self._above.connect()

    def _more_state(self, request: driving.Save) -> dict[str, Any]:
        unread = self._above.pushed if request.unread else b""
        return {"unread": np.frombuffer(unread, np.uint8)}

    def _restore_more(self, state: Mapping[str, Any]) -> None:
        self._unread = state["unread"].tobytes()

    def _call(self) -> None:
        self._above.connect(self._unread)
        self._above.pushed = self._unread

    def outcome(self, value: Any = None, error: str | None = None) -> Outcome:
        return replace(super().outcome(value, error), is_due=self._aggregating.is_due)

    def _adopt(self, request: driving.Adopt) -> None:
        while not self._sent:
            self._above.check()
            self._connections.poll()
        frame = self._sent.popleft()
        assert frame.number == request.version
        self._above.take(frame)
        self._aggregating.adopt(self._above.parameters, request.version, time=request.time)

    # -- the connections' driver

    def reads(self, connection: Connection) -> bool:
        """Return True if no clock decides when this connection is read, or if it is its turn."""
        return connection is self._connections.above or super().reads(connection)

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle a message; the server's are kept until the clock says that they have arrived."""
        if connection is not self._connections.above:
            super().handle(connection, frame)
        elif frame.kind is Kind.STOP:
            self._above.close()
        else:
            self._sent.append(frame.kept())

"""The check that enough workers are connected: to begin training, and for another update."""

import math
import time
from collections.abc import Callable, Collection

from testbed.device_names import server_number
from testbed.faults.schedule import Schedule
from testbed.messages.reports import DevicesConnected
from testbed.roles.reporting import Report
from testbed.roles.server.connections import REPORT_PERIOD, Connections
from testbed.roles.server.phase import Phase
from testbed.telemetry.board import DeviceLine
from testbed.training.aggregator_service import AggregatorService
from testbed.training.parameter_service import ParameterService

GREETING_TIMEOUT = 10.0
"""Seconds that a connection may stay silent before its greeting."""
GATHERING_TIMEOUT = 30.0
"""Seconds without a further greeting after which training begins with the connected workers."""
RETURN_TIMEOUT = 30.0
"""Seconds that a killed worker may take to come back, in addition to its planned absence."""


class Quorum:
    """The workers' coming and going, looked after once per ``REPORT_PERIOD``.

    Attributes:
        last_greeting: when a worker greeted last, in seconds of CLOCK_MONOTONIC.
    """

    def __init__(
        self,
        callers: Collection[int],
        schedule: Schedule,
        connections: Connections,
        service: ParameterService,
        *,
        report: Report,
        phase: Phase,
        line: DeviceLine,
    ) -> None:
        """Begin without workers.

        Args:
            callers: the numbers of the workers to wait for.
            line: the server's own, of the board.
        """
        self.last_greeting = time.monotonic()
        self._expected = len(callers)
        self._connections = connections
        self._service = service
        self._report = report
        self._phase = phase
        self._line = line
        absence = schedule.longest_absence
        self._return_time = absence + RETURN_TIMEOUT if absence else 0.0
        self._last_departure = -math.inf
        self._last_look = 0.0

    @property
    def workers_return(self) -> bool:
        """True if a worker that is gone may come back."""
        return self._return_time > 0

    def go_on(self) -> None:
        """Wait for the workers of a restored server, all of which are gone."""
        self.last_greeting = self._last_departure = time.monotonic()
        self._return_time = max(self._return_time, RETURN_TIMEOUT)

    def greeted(self) -> None:
        """Note and report that another worker is there."""
        self.last_greeting = time.monotonic()
        self._report.send(DevicesConnected(len(self._connections.workers), self._report.server))

    def departed(self) -> None:
        """Note that a worker is gone."""
        self._last_departure = time.monotonic()

    @property
    def is_complete(self) -> bool:
        """True if all workers are there."""
        return len(self._connections.workers) == self._expected

    @property
    def is_due(self) -> bool:
        """True if the run is to be looked after again."""
        return time.monotonic() - self._last_look >= REPORT_PERIOD

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self.last_greeting > GATHERING_TIMEOUT

    def look(self, start: Callable[[], None]) -> None:
        """Close connections that do not greet; start training if further workers are too late."""
        self._last_look = now = time.monotonic()
        self._line.look()
        for connection in list(self._connections.open):
            if connection.device is None and now - connection.opened > GREETING_TIMEOUT:
                self._connections.close(connection, f"no greeting within {GREETING_TIMEOUT:g} s")
        there = len(self._connections.workers)
        if self._phase.began is None and there and self._is_late:
            missing = self._expected - there
            self._report.event("warning", f"training begins without {missing} workers")
            start()

    def check(self) -> None:
        """End training if too few workers are left for another update, or all of them wait."""
        there = len(self._connections.workers)
        if self._phase.began is None and not (self._is_late and not there):
            return
        needed = self._service.half.needed
        if self._service.stalled and not self._phase.over:
            self._report.event("error", "all workers wait for parameters, and none will push")
            self._phase.over = True
        if there >= needed or time.monotonic() - self._last_departure < self._return_time:
            return  # a worker may come back
        left = f"{there} workers are left, and an update needs {needed}"
        if isinstance(self._service, AggregatorService):
            # The server and the other aggregators go on.
            number = server_number(self._report.server)
            self._report.event("warning", "no device of its cluster is left", number)
        else:
            self._report.event("error", left if there else "no worker is left")
        self._phase.over = True

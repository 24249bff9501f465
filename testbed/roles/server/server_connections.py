"""The connections of a parameter server; what closes one is in the run's events."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from testbed.messages.reports import ServerListening
from testbed.roles import connections
from testbed.roles.reporting import RoleReporter
from testbed.roles.transport.connection import Connection
from testbed.telemetry.state_board import ServerLine
from testbed.training.settings import Settings
from testbed.wire.frames import HEADER, Kind

REPORT_PERIOD = 0.2
"""Seconds between two reports of applied updates, and at most between two looks after the run."""


@dataclass(slots=True)
class TrainingPhase:
    """The phase of a run: before training, training, or after it.

    Attributes:
        began: when training began, in seconds of CLOCK_MONOTONIC; None: it has not.
        over: True if training is over, whether or not the run's updates are complete.
    """

    began: float | None = None
    over: bool = False

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began; 0 before that."""
        return 0.0 if self.began is None else time.monotonic() - self.began


class ServerDriver(connections.Driver, Protocol):
    """The server that owns the connections."""

    def lost(self, worker: int) -> None:
        """Act on a worker's connection that was closed before training was over."""


class ServerConnections(connections.Connections):
    """All connections of one server."""

    def __init__(
        self,
        settings: Settings,
        parameters: int,
        limits: Mapping[Kind, int],
        *,
        line: ServerLine,
        stamped: bool,
        report: RoleReporter,
        phase: TrainingPhase,
        driver: ServerDriver,
    ) -> None:
        """Prepare to listen.

        Args:
            limits: the kinds of messages that workers send, with their bodies' largest sizes in bytes.
            stamped: True if the kernel is to report when it received each push.
        """
        queued = line.queued if stamped else None
        super().__init__(settings, parameters, report, driver, queued)
        self._limits = limits
        self._line = line
        self._phase = phase
        self._server = driver

    def listen(self) -> None:
        """Start to accept connections, and report it."""
        super().listen()
        self.report.send(ServerListening(self.report.server))

    def is_worker(self, connection: Connection, worker: int) -> None:
        """Make a connection a worker's, whose messages are expected from now on."""
        connection.device = worker
        connection.receiver.accept(self._limits)
        self._line.sent(HEADER.size)

    def fileno(self) -> int:
        """Return a descriptor that can be read when ``poll`` has something to handle."""
        return self._selector.fileno()

    def _said_stop(self, connection: Connection) -> None:
        if connection is not self.evaluator.connection:
            self._line.sent(HEADER.size)

    # -- closing

    def is_unowned(self, connection: Connection) -> bool:
        """Return True if a connection has not greeted, or is left over from a worker that was killed.

        The end of a connection is never reported over a link that was down.
        """
        return not self.is_present(connection) and connection is not self.evaluator.connection

    def close(self, connection: Connection, reason: str | None) -> None:
        partial = not connection.receiver.between_frames
        if connection.device is not None and not self._phase.over:
            reason = reason or "it closed the connection" + (" in mid-message" if partial else "")
        if reason is not None:
            whose = "a stranger" if connection.device is None else "a device"
            self.report.event(
                "warning", f"connection of {whose} closed: {reason}", connection.device
            )
        self.report.flush()  # a worker's pushes are reported before its end
        if connection is not self.evaluator.connection:
            self.report.connection(connection, reason)
        self._forget(connection)
        if connection.device is not None and self.is_present(connection):
            del self.workers[connection.device]
            if not self._phase.over:  # what was gathered when training ended is no update any more
                self._server.lost(connection.device)

"""Reports to the orchestrator, over the host and never over the emulated network."""

import contextlib
import time
from collections.abc import Iterator, Sequence

import numpy as np

from testbed.channel import Channel
from testbed.messages.codec import send
from testbed.messages.reports import (
    ConnectionClosed,
    DeviceMissed,
    DiagnosticsReported,
    EvaluationDue,
    EvaluationLeftOut,
    EventReported,
    FinalParameters,
    RoleReport,
    UpdatesApplied,
)
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.kernel_queues import shortest_round_trip, unsent
from testbed.telemetry.update_rows import UPDATE, UpdateRow

ROWS = 1500
"""The most rows of one report."""
CHUNK = 100_000
"""The most bytes of the final parameters in one report."""


class RoleReporter:
    """Sends the reports of a server, a coordinator or a peer to the orchestrator.

    Rows are gathered; ``flush``, ``evaluation_due`` or a full buffer sends them, other reports do not.

    Attributes:
        server: the index of the server that reports, of several.
    """

    def __init__(self, channel: Channel, server: int = 0) -> None:
        self.server = server
        self._channel = channel
        self._rows = np.empty(ROWS, UPDATE)
        self._count = 0
        self._version = 0
        self._diagnoses: list[Sequence[float]] = []
        self._diagnosed_version = 0

    def send(self, report: RoleReport) -> None:
        send(self._channel, report)

    def event(self, level: str, text: str, device: int | None = None) -> None:
        """Report an event; ``device`` is the number of the device that it is about."""
        self.send(EventReported(level, text, device))

    def missed(self, device: int) -> None:
        self.send(DeviceMissed(device))

    def row(self, row: UpdateRow, version: int) -> None:
        """Add a row of ``UPDATE`` that led to ``version``; many rows are sent at once."""
        self._version = version
        self._rows[self._count] = row
        self._count += 1
        if self._count == ROWS:
            self.flush()

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        """Add the algorithm's diagnostics at the update that made ``version``."""
        self._diagnoses.append(values)
        self._diagnosed_version = version

    def flush(self) -> None:
        if self._count:
            rows = self._rows[: self._count].tobytes()
            self.send(UpdatesApplied(self._version, rows, self.server))
            self._count = 0
        if self._diagnoses:
            values = np.array(self._diagnoses, "<f8").tobytes()
            count, version = len(self._diagnoses), self._diagnosed_version
            self.send(DiagnosticsReported(version, count, values, self.server))
            self._diagnoses.clear()

    @contextlib.contextmanager
    def reported(self) -> Iterator[None]:
        """Report all rows, also if an error ends what the caller does."""
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the run has been ended: nobody hears it
                self.flush()

    def evaluation_due(
        self, version: int, when: float, ledger: Sequence[int], *, after_restoration: bool = False
    ) -> None:
        """Report the ledgers' totals at a version that is to be evaluated.

        Args:
            when: by the run's clock, in seconds since training began.
            ledger: as ``ParameterService.ledger``.
            after_restoration: True if a server that was killed may have reported it already.
        """
        self.flush()  # no evaluation is on record before the updates that led to it
        (payload, message, *local), now = ledger, time.monotonic()
        by = after_restoration, self.server
        self.send(EvaluationDue(version, now, when, payload, message, *by, *local))

    def left_out(self, version: int, reason: str) -> None:
        self.send(EvaluationLeftOut(version, reason, self.server))

    def connection(self, connection: Connection, reason: str | None) -> None:
        """Report a connection's own byte counts, which are compared with those on the wire."""
        self.send(
            ConnectionClosed(
                connection.device,
                connection.address,
                connection.port,
                connection.local_port,
                message_bytes=connection.received_bytes,
                incomplete_bytes=connection.receiver.incomplete,
                payload_bytes=connection.payload_bytes,
                sent_bytes=connection.sent_bytes,
                unsent_bytes=unsent(connection.socket),
                reason=reason,
                server=self.server,
                pushes=connection.pushes,
                round_trip=shortest_round_trip(connection.socket),
            )
        )

    def parameters(self, vector: memoryview) -> None:
        """Send the final parameters, float32 as bytes."""
        for start in range(0, len(vector), CHUNK):
            part = bytes(vector[start : start + CHUNK])
            self.send(FinalParameters(start, part, self.server))

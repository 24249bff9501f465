"""The evaluated peer's connection to the evaluator, and the models that wait to be sent over it.

While the evaluator measures one model, the next ones wait in a queue. It answers each with FINISHED.
"""

import math
import time

from testbed.roles.evaluation.snapshots import NoRoomError, SnapshotQueue, UnreadableError
from testbed.roles.reporting import Report
from testbed.roles.transport.connection import Connection
from testbed.updates import FloatVector, as_bytes
from testbed.wire.encodings import DENSE
from testbed.wire.frames import Kind, header

EVALUATOR_TIMEOUT = 600.0
"""Seconds that the evaluator may take for one evaluation, when a peer waits for it."""


class EvaluatorLink:
    """The evaluator as its peer sees it.

    Attributes:
        connection: None before the evaluator's greeting and after the connection was closed.
    """

    def __init__(self, size: int, report: Report, spill: int | None) -> None:
        """Begin without a connection.

        Args:
            size: of a model, in bytes.
            spill: descriptor of the file for models that memory is not to hold; None: there is none.
        """
        self.connection: Connection | None = None
        self._models = SnapshotQueue(size, spill)
        self._report = report
        self._last_result = -math.inf
        self._told_to_stop = False

    @property
    def crowded(self) -> bool:
        """True if models wait for which there is no room."""
        return self._models.crowded

    def note_result(self) -> None:
        """Note that the evaluator has measured a model."""
        self._last_result = time.monotonic()

    def overdue(self, since: float) -> str | None:
        """Return why the evaluator is given up if no result has come for too long.

        Args:
            since: when this peer began to wait, in seconds of CLOCK_MONOTONIC.
        """
        silent = time.monotonic() - max(since, self._last_result)
        return (
            f"it has sent nothing for {EVALUATOR_TIMEOUT:g} s"
            if silent > EVALUATOR_TIMEOUT
            else None
        )

    def add(self, iteration: int, parameters: FloatVector, *, always: bool) -> None:
        """Append a copy of a model to the queue.

        If there is no room, it is kept in memory if ``always`` is True, else left out, and that is
        reported.
        """
        try:
            self._models.put(iteration, as_bytes(parameters), always=always)
        except NoRoomError as error:
            self._report.left_out(iteration, f"{error}")

    def send_waiting(self) -> None:
        """Send the models that wait, as long as the kernel takes them.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        while self.connection is not None and not self.connection.pending and self._models:
            try:
                iteration, parameters = self._models.get()
            except UnreadableError as error:
                self._report.left_out(error.version, f"{error}")
                continue
            head = header(Kind.PARAMETERS, iteration, encoding=DENSE, length=len(parameters))
            self.connection.send([head, parameters])

    def stop_when_all_is_sent(self) -> None:
        """Say STOP, once, if no model waits.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        waiting = self._told_to_stop or self._models
        if self.connection is not None and not (waiting or self.connection.pending):
            self._told_to_stop = True
            self.connection.end(header(Kind.STOP))

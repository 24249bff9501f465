"""The evaluated peer's connection to the evaluator, and the models that wait to be sent over it.

While the evaluator measures one model, the next ones wait in a queue. It answers each with FINISHED.
"""

import math
import select
import selectors
import time
from collections.abc import Callable
from typing import Any

from testbed.roles.evaluation.snapshots import NoRoomError, SnapshotQueue, UnreadableError
from testbed.roles.reporting import Report
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.training.settings import Settings
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

    def __init__(
        self,
        settings: Settings,
        size: int,
        report: Report,
        spill: int | None,
        *,
        watch: Callable[[Connection], None],
        serve: Callable[[Connection, int], None],
        close: Callable[[Connection, str | None], None],
    ) -> None:
        """Begin without a connection.

        Args:
            size: of a model, in bytes.
            spill: descriptor of the file for models that memory is not to hold; None: there is none.
            watch: has the peer wait for what the connection waits for.
            serve: handles events of the connection.
            close: closes the connection, for a reason.
        """
        self.connection: Connection | None = None
        self._settings = settings
        self._watch = watch
        self._serve = serve
        self._close = close
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

    def evaluate(self, iteration: int, parameters: FloatVector) -> None:
        """Send a copy of the parameters to the evaluator, when the evaluator is ready for it.

        If the queue has no room, under the virtual clock this waits until there is room: evaluations
        are a part of the result, and the host's time is not. Under the wall clock the evaluation is
        left out (unless it is the last one), and that is reported.
        """
        if self.connection is None:
            return  # it was given up, and the run fails because of that
        virtual = self._settings.timing.clock == "virtual"
        last = iteration >= self._settings.training.updates
        self._add(iteration, parameters, always=virtual or last)
        try:
            self.send_waiting()
            self._watch(self.connection)
        except BrokenConnectionError as error:
            self._close(self.connection, f"{error}")
        began = time.monotonic()
        while virtual and self.crowded and self.connection is not None:
            # Nothing else is handled: the clock decides what a peer does next.
            room = select.poll()
            room.register(self.connection.socket, select.POLLOUT)
            if room.poll(1000):
                self._serve(self.connection, selectors.EVENT_WRITE)
            self._give_up_if_overdue(began)

    def finish(self, turn: Callable[[], Any]) -> None:
        """Send what waits, however long that takes, then STOP, and wait for the connection's end.

        Args:
            turn: waits for events, and handles them.
        """
        began = time.monotonic()
        while self.connection is not None:
            self._stop_when_all_is_sent()
            turn()
            self._give_up_if_overdue(began)

    def _add(self, iteration: int, parameters: FloatVector, *, always: bool) -> None:
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

    def _stop_when_all_is_sent(self) -> None:
        """Say STOP, once, if no model waits.

        Raises:
            BrokenConnectionError: the connection broke.
        """
        waiting = self._told_to_stop or self._models
        if self.connection is not None and not (waiting or self.connection.pending):
            self._told_to_stop = True
            self.connection.end(header(Kind.STOP))

    def _give_up_if_overdue(self, since: float) -> None:
        """Close the connection if no result has come for too long.

        Args:
            since: when this peer began to wait, in seconds of CLOCK_MONOTONIC.
        """
        silent = time.monotonic() - max(since, self._last_result)
        if self.connection is not None and silent > EVALUATOR_TIMEOUT:
            reason = f"it has sent nothing for {EVALUATOR_TIMEOUT:g} s"
            self._report.event("error", reason, self.connection.device)
            self._close(self.connection, reason)

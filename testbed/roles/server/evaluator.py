"""The evaluator as its server sees it: what it is sent, and how long it is waited for."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any

from testbed.roles.evaluation.pending import Asked, Evaluations
from testbed.roles.evaluation.snapshots import NoRoomError, UnreadableError
from testbed.roles.reporting import Report
from testbed.roles.server.connections import Connections
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError
from testbed.wire import WireError
from testbed.wire.encodings import DENSE
from testbed.wire.frames import Kind, header

EVALUATOR_TIMEOUT = 600.0
"""Seconds that the evaluator may take for one evaluation, when training waits for it or is over.

Also the seconds that it may wait for the slices of other servers.
"""
LEAVING_TIMEOUT = 30.0
"""Seconds that an evaluator with nothing left to do has to close its connection."""
COMING_BACK_TIMEOUT = 2.0
"""Seconds that a restored server waits for an evaluator of which it needs nothing any more.

It has left if the server that was killed told it that training is over.
"""


class Evaluator:
    """The evaluations of one run, and the connection over which they are sent.

    Attributes:
        number: the evaluator's, in its greeting and in reports.
        waited_for: True if the server waits for a slow evaluator when the queue has no more room,
            instead of leaving evaluations out.
    """

    def __init__(
        self,
        connections: Connections,
        evaluations: Evaluations,
        report: Report,
        *,
        number: int,
        waited_for: bool,
        comes_back: bool,
        others: bool = False,
        expected: bool = True,
    ) -> None:
        """Begin without the evaluator.

        Args:
            comes_back: True if it connects again after its connection broke: the server may be killed.
            others: True if it may still wait for the slices of other servers.
            expected: False if it never connects.
        """
        self._others = others
        self._expected = expected
        self.number = number
        self.waited_for = waited_for
        self._comes_back = comes_back
        self._connections = connections
        self._evaluations = evaluations
        self._report = report
        self._greeted = False
        self._stopped = False
        self._heard = -math.inf

    def greeted(self, connection: Connection) -> None:
        """Take the evaluator's connection, and send what waits for it.

        Raises:
            WireError: there is one already.
        """
        if self._connections.evaluator is not None:
            raise WireError("the evaluator is connected already")
        connection.device = self.number
        connection.receiver.accept({Kind.FINISHED: 0})
        self._connections.evaluator = connection
        self._greeted, self._stopped = True, False
        self._heard = time.monotonic()
        self.send()

    def heard(self, version: int) -> None:
        """Note that the evaluator has reported a version's accuracy."""
        self._heard = time.monotonic()
        self._evaluations.heard(version)

    def send(self) -> None:
        """Send what the evaluator has room for."""
        connection = self._connections.evaluator
        if connection is None:
            return
        try:
            # As many as the kernel takes: with nothing pending, room for another is not reported.
            while not connection.pending and self._evaluations:
                self._send_next(connection)
        except BrokenConnectionError as error:
            self._connections.broke(connection, error)
        else:
            self._connections.watch(connection)

    def _send_next(self, connection: Connection) -> None:
        try:
            version, parameters = self._evaluations.next()
        except UnreadableError as error:
            self._report.left_out(error.version, f"{error}")
            return
        head = header(Kind.PARAMETERS, version, encoding=DENSE, length=len(parameters))
        connection.send([head, parameters])

    def ask(self, asked: Asked, parameters: memoryview, *, last: bool) -> None:
        """Have parameters evaluated; the last ones in any case."""
        self._report.evaluation_due(*astuple(asked))
        try:
            self._evaluations.ask(asked, parameters, always=self.waited_for or last)
        except NoRoomError as error:
            self._report.left_out(asked.version, f"{error}")
        self.send()

    @property
    def crowded(self) -> bool:
        """True if evaluations wait for which there is no room, and the evaluator is waited for."""
        return self.waited_for and self._evaluations.crowded

    @property
    def is_missing(self) -> bool:
        """True if the evaluator is not connected yet, or has to connect again."""
        comes = self._expected and (self._comes_back or not self._greeted)
        return comes and not self._stopped and self._connections.evaluator is None

    def stop(self, before: Callable[[], None] = lambda: None) -> None:
        """Say STOP, once, if everything was sent, and reported where the server may be killed.

        A server that is restored from a checkpoint waits for the evaluations that have no result in it.
        An evaluator that was told that training is over does not come back: it is told only when a
        checkpoint says that there are none.

        Args:
            before: called before STOP is said by a server that may be killed; writes that checkpoint.
        """
        connection = self._connections.evaluator
        if not connection or self._stopped or connection.pending or self._evaluations:
            return
        if self._comes_back:
            if self._evaluations.unheard:
                return
            before()
        self._stopped = True
        self._connections.say_stop([connection])

    def give_up(self, since: float) -> None:
        """Do without the evaluator if nothing was heard of it for too long.

        Args:
            since: when the wait began, in seconds of CLOCK_MONOTONIC.
        """
        connection, missing = self._connections.evaluator, self._evaluations.unheard
        waits = self._others and connection is not None
        patience = EVALUATOR_TIMEOUT if missing or waits else LEAVING_TIMEOUT
        if self.is_missing and self._comes_back and not missing:
            patience = COMING_BACK_TIMEOUT
        absent = connection is None and not self.is_missing
        if absent or time.monotonic() - max(since, self._heard) <= patience:
            return
        text = f"nothing was heard of it for {patience:g} s"
        if missing:
            text += f": {missing:,} evaluations are missing"
            self._report.event("error", text, self.number)
        self.waited_for, self._stopped = False, True
        if connection is not None:
            self._connections.close(connection, text)

    def state(self) -> list[Any]:
        """Return the evaluations without a result, for a checkpoint."""
        return self._evaluations.state()

    def restore(self, state: Iterable[Any]) -> None:
        """Ask again for the evaluations that had no result when the checkpoint was written."""
        for asked in self._evaluations.restore(state):
            self._report.evaluation_due(*astuple(asked), after_restoration=True)

"""The evaluator as a server or the evaluated peer sees it: what it is sent, how long it is waited for.

While the evaluator measures one version's parameters, snapshots of later ones wait in a queue. It
answers each with FINISHED. Where checkpoints are written, a snapshot is kept until then, so that a
restored server can have those evaluated that have no result yet.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np

from testbed.roles.evaluation.snapshots import NoRoomError, SnapshotQueue, UnreadableError
from testbed.roles.reporting import RoleReporter
from testbed.roles.transport.connection import Connection
from testbed.updates import as_bytes
from testbed.wire.encodings import DENSE
from testbed.wire.frames import Kind, header

EVALUATOR_TIMEOUT = 600.0
"""Seconds that the evaluator may take for one evaluation, when training waits for it or is over.

Also the seconds that a patient link gives it to close its connection.
"""
LEAVING_TIMEOUT = 30.0
"""Seconds that an evaluator with nothing left to do has to close its connection."""
COMING_BACK_TIMEOUT = 2.0
"""Seconds that a restored server waits for an evaluator of which it needs nothing any more.

It has left if the server that was killed told it that training is over.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """An evaluation that was asked for.

    A peer knows only the version: the coordinator has the time and the ledger.

    Attributes:
        when: by the run's clock, in seconds since training began.
        ledger: as ``ParameterService.ledger`` was then.
    """

    version: int
    when: float = 0.0
    ledger: Sequence[int] = (0, 0, 0, 0)


class ConnectionOwner(Protocol):
    """The connections to which the evaluator's belongs."""

    def sending(self, connection: Connection) -> AbstractContextManager[None]:
        """Send over a connection in the body, which may break."""

    def say_stop(self, connections: Iterable[Connection]) -> None:
        """Say STOP over connections, and send nothing after it."""

    def close(self, connection: Connection, reason: str | None) -> None:
        """Close a connection for a reason."""


class EvaluatorLink:
    """The evaluations of one run, and the connection over which they are sent.

    Attributes:
        connection: the evaluator's, while there is one; its owner sets it to None when it is closed.
        waited_for: True if a slow evaluator is waited for when the queue has no more room, instead of
            leaving evaluations out.
    """

    def __init__(
        self,
        connections: ConnectionOwner,
        size: int,
        report: RoleReporter,
        spill: int | None,
        *,
        number: int,
        waited_for: bool,
        patient: bool,
        comes_back: bool = False,
        remembered: bool = False,
        expected: bool = True,
    ) -> None:
        """Start without the evaluator, and without evaluations.

        Args:
            size: of the parameters, in bytes.
            spill: descriptor of a file for snapshots that memory is not to hold; None: there is none.
            patient: True if an evaluator with nothing left to do may stay as long as one that has: it
                may wait for the slices of other servers.
            comes_back: True if it connects again after its connection broke: the server may be killed.
            remembered: True if checkpoints are to hold the evaluations without a result.
            expected: False if it never connects.
        """
        self.connection: Connection | None = None
        self.number = number
        self.waited_for = waited_for
        self._patient = patient
        self._expected = expected
        self._comes_back = comes_back
        self._connections = connections
        self._report = report
        self._waiting = SnapshotQueue(size, spill, limited=remembered)
        self._remembered = remembered
        self._asked: dict[int, Asked] = {}
        self._sent: deque[tuple[int, bytes]] = deque()
        self._greeted = False
        self._stopped = False
        self._heard = -math.inf

    def greeted(self, connection: Connection) -> None:
        """Take the evaluator's connection, and send what waits for it."""
        connection.device = self.number
        connection.receiver.accept({Kind.FINISHED: 0})
        self.connection = connection
        self._greeted, self._stopped = True, False
        self._heard = time.monotonic()
        self.send()

    def heard(self, version: int) -> None:
        """Drop the version whose accuracy the evaluator has reported, and earlier ones."""
        self._heard = time.monotonic()
        self._asked.pop(version, None)
        while self._sent and self._sent[0][0] <= version:
            self._sent.popleft()

    def send(self) -> None:
        connection = self.connection
        if connection is None:
            return
        with self._connections.sending(connection):
            # As many as the kernel takes: with nothing pending, room for another is not reported.
            while not connection.pending and self._waiting:
                self._send_next(connection)

    def _send_next(self, connection: Connection) -> None:
        try:
            version, parameters = self._waiting.get()
        except UnreadableError as error:
            self._asked.pop(error.version, None)
            self._report.left_out(error.version, f"{error}")
            return
        if self._remembered:
            self._sent.append((version, parameters))
        head = header(Kind.PARAMETERS, version, encoding=DENSE, length=len(parameters))
        connection.send([head, parameters])

    def ask(self, asked: Asked, parameters: memoryview, *, last: bool) -> None:
        """Report that an evaluation is due, and have a copy of the parameters evaluated."""
        self._report.evaluation_due(*astuple(asked))
        self.evaluate(asked, parameters, last=last)

    def evaluate(self, asked: Asked, parameters: memoryview, *, last: bool) -> None:
        """Have a copy of the parameters evaluated, if there is room; the last ones in any case."""
        try:
            self._put(asked, parameters, always=self.waited_for or last)
        except NoRoomError as error:
            self._report.left_out(asked.version, f"{error}")
        self.send()

    def _put(self, asked: Asked, parameters: memoryview, *, always: bool) -> None:
        self._waiting.put(asked.version, parameters, always=always)
        self._asked[asked.version] = asked

    @property
    def crowded(self) -> bool:
        """True if evaluations wait for which there is no room, and the evaluator is waited for."""
        return self.waited_for and self._waiting.crowded

    @property
    def is_missing(self) -> bool:
        """True if the evaluator is not connected yet, or has to connect again."""
        comes = self._expected and (self._comes_back or not self._greeted)
        return comes and not self._stopped and self.connection is None

    def stop(self, before: Callable[[], None] = lambda: None) -> None:
        """Say STOP, once, if everything was sent, and reported where the server may be killed.

        A server that is restored from a checkpoint waits for the evaluations that have no result in it.
        An evaluator that was told that training is over does not come back: it is told only when a
        checkpoint says that there are none.

        Args:
            before: called before STOP is said by a server that may be killed; writes that checkpoint.
        """
        connection = self.connection
        if not connection or self._stopped or connection.pending or self._waiting:
            return
        if self._comes_back:
            if self._asked:
                return
            before()
        self._stopped = True
        self._connections.say_stop([connection])

    def give_up(self, since: float) -> None:
        """Do without the evaluator if nothing was heard of it for too long.

        Args:
            since: when the wait began, in seconds of CLOCK_MONOTONIC.
        """
        connection, missing = self.connection, len(self._asked)
        waits = self._patient and connection is not None
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
        """Return the evaluations without a result, for a checkpoint.

        Raises:
            OSError: a snapshot cannot be read.
        """
        return [
            (*astuple(self._asked[version]), np.frombuffer(parameters, np.float32))
            for version, parameters in (*self._sent, *self._waiting.all())
        ]

    def restore(self, state: Iterable[Any]) -> None:
        """Ask again for the evaluations that had no result when the checkpoint was written."""
        for *fields, vector in state:
            asked = Asked(*fields)
            self._put(asked, as_bytes(vector), always=True)
            self._report.evaluation_due(*astuple(asked), after_restoration=True)

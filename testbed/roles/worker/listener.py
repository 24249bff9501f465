"""The worker that is sent every version unasked: Push & Wait, Push & Interrupt (paper 004, §2).

Two events concern it: parameters arrive, and its computation ends. ``worker_protocols`` decides what it
does then. Under the wall clock it sees both itself. Under the virtual clock it receives an order for
each, and meanwhile reads what arrives, so that the server never waits for it.
"""

import select
import time
from abc import ABC, abstractmethod

import numpy as np

from testbed.roles.orders import OrderKind
from testbed.roles.pace import Draws
from testbed.roles.standstill import Standstill
from testbed.roles.transport.kernel_queues import STALLED
from testbed.roles.worker.pauses import ORDER
from testbed.roles.worker.session import Session
from testbed.training.worker_protocols import WorkerProtocol
from testbed.updates import FloatVector
from testbed.wire.frames import Kind, header


class WallListener(ABC):
    """A worker that listens, by the wall clock."""

    _stopped: bool

    def by_wall_clock(self, times: Draws) -> None:
        """Work until the server says STOP; draw the durations and wait for them to pass."""
        if not self._await(None):
            return
        training = time.monotonic()
        while True:
            began = time.monotonic()
            computing, waiting = times.draw(began - training)
            self._compute()
            until = max(began + computing, time.monotonic()) + waiting
            interrupted = self._await(until)
            if self._stopped:
                return
            if interrupted:
                continue
            if self._finish() is None and not self._await(None):
                return

    @abstractmethod
    def _await(self, until: float | None) -> bool:
        """Receive parameters until a computation is to begin, or until a moment (None: any time).

        Returns:
            True if a computation is to begin; False at the end of the time, or of training.
        """

    @abstractmethod
    def _compute(self) -> None:
        """Compute at the version that the protocol chose."""

    @abstractmethod
    def _finish(self) -> int | None:
        """Send the update, or report that it is too late; return the version to compute at next."""


class Listener(WallListener):
    """A worker that listens, over a greeted connection."""

    def __init__(self, session: Session, protocol: WorkerProtocol) -> None:
        self._session = session
        self._connection = session.connection
        self._answers = session.answers
        self._computation = session.computation
        self._protocol = protocol
        size = session.learners.own.layout.total
        self._gradient = np.empty(size, np.float32)
        self._loss = 0.0
        # Versions that were received and may still be needed, and memory for others.
        self._received: dict[int, FloatVector] = {}
        self._dealt: dict[int, int] = {}
        self._spare: list[FloatVector] = []
        self._newest = -1
        self._stopped = False

    def by_virtual_clock(self, standstill: Standstill) -> None:
        """Work by the clock's orders alone, until it says STOP.

        Raises:
            RunError: the clock says that a version has arrived that will never come, or that a
                computation is over that was never begun.
        """
        orders, poll = standstill.orders, select.poll()
        poll.register(orders, select.POLLIN)
        poll.register(self._connection, select.POLLIN)
        self._answers.listen()
        while True:
            standstill.waits_for = ORDER
            ready = {fd for fd, _ in poll.poll(1000 * STALLED)}
            if orders.fileno() not in ready:
                if ready or self._answers.stands_still():
                    self._receive()
                else:
                    standstill.claim()
                continue
            order = orders.take()
            assert order is not None
            match order.what:
                case OrderKind.ARRIVED:
                    standstill.waits_for = f"version {order.number}"
                    self._receive_until(order.number, standstill)
                    self._forget_before(order.number)
                    if self._protocol.arrived(order.number) is not None:
                        self._compute()
                case OrderKind.FINISHED:
                    if self._protocol.computing is None:
                        raise standstill.broken(
                            "the clock says that a computation is over, and none is under way: the "
                            "order of events is broken, please report it with the experiment file"
                        )
                    if self._finish() is not None:
                        self._compute()
                case OrderKind.RESUME:
                    self._computation.draw_past(order.number)
                case _:
                    break
        # A connection that is closed with STOP unread would be reset, and its last bytes be lost.
        while not self._stopped:
            self._receive()

    def _receive_until(self, version: int, standstill: Standstill) -> None:
        """Receive versions, up to the one that the clock says has arrived, or until STOP."""
        while version not in self._received and not self._stopped:
            if self._newest >= version:
                raise standstill.broken(
                    f"the clock says that version {version} has arrived, and the server has sent "
                    f"version {self._newest}, after which it cannot come any more: the order of events "
                    "is broken, please report it with the experiment file"
                )
            self._receive()

    def _await(self, until: float | None) -> bool:
        begin = False
        self._answers.listen()
        while not begin:
            patience = None if until is None else max(0.0, until - time.monotonic())
            if not self._answers.arrived(patience):
                return False
            version = self._receive()
            if version is None:
                return False
            self._session.faults.answered(version)
            self._forget_before(version)
            begin = self._protocol.arrived(version) is not None
        return True

    def _forget_before(self, version: int) -> None:
        for older in [v for v in self._received if v < version]:
            self._spare.append(self._received.pop(older))
            del self._dealt[older]

    def _receive(self) -> int | None:
        """Receive one version, and return its number; None for STOP."""
        version = self._answers.wait()
        if version is None:
            self._stopped = True
            return None
        vector = self._spare.pop() if self._spare else np.empty_like(self._gradient)
        self._answers.take(vector)
        self._answers.listen()
        self._received[version] = vector
        self._dealt[version] = self._answers.dealt
        self._newest = version
        return version

    def _compute(self) -> None:
        version = self._protocol.computing
        assert version is not None
        self._session.line.training()
        drawn = self._computation.draw(self._dealt[version])
        with self._session.learners.take() as learner:
            np.copyto(learner.parameters, self._received[version])
            gradient, self._loss = self._computation.gradient(learner, drawn, version)
            np.copyto(self._gradient, gradient)
        self._session.line.waiting()

    def _finish(self) -> int | None:
        version = self._protocol.computing
        assert version is not None
        finish = self._protocol.finished()
        if finish.late:
            self._connection.sendall(header(Kind.FINISHED, version))
        else:
            pieces = self._session.push(version, self._gradient, self._loss)
            self._connection.sendall(b"".join(pieces))
            self._session.faults.pushed()
        return finish.next

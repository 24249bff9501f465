"""The worker that several servers send every version unasked.

What it waits for, and at which versions it computes, ``training.gathering`` decides: by the wall clock
here, under the virtual clock in the process of the clock, whose orders say the versions. A server whose
version the worker has pushed for before only gets a report.
"""

import math
import time
from collections.abc import Sequence, Set

import numpy as np

from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.transport.sending import Pieces
from testbed.roles.worker.listener import WallListener
from testbed.roles.worker.sliced_session import SlicedSession
from testbed.training.gathering import Gathering
from testbed.training.worker_protocols import WorkerProtocol
from testbed.updates import FloatVector
from testbed.wire.frames import Kind, header


class ListenerToAll(WallListener):
    """A worker that listens to several servers, over greeted connections."""

    def __init__(self, session: SlicedSession, protocol: WorkerProtocol) -> None:
        self._session = session
        self._servers = session.servers
        count = len(session.servers.links)
        self._gathering = Gathering(protocol, count)
        self._gradient = np.empty(session.learners.own.layout.total, np.float32)
        self._loss = 0.0
        # By server: the slices that may still be needed, by version.
        self._received: list[dict[int, FloatVector]] = [{} for _ in range(count)]
        self._known_to_stop = [False] * count
        self._pushed: list[int | None] = [None] * count
        self._bases: Sequence[int] = ()
        self._stopped = False
        self._sessions = [0] * count
        # By server: whether it was greeted again since the computation under way began.
        self._outdated = [False] * count

    # -- by the wall clock

    def _await(self, until: float | None) -> bool:
        while True:
            left = math.inf if until is None else max(0.0, until - time.monotonic())
            versions = self._turn(left)
            if self._servers.all_stopped:
                self._stopped = True
                return False
            if versions is not None:
                self._bases = versions
                return True
            if until is not None and time.monotonic() >= until:
                return False

    def _turn(self, seconds: float) -> Sequence[int] | None:
        """Receive what comes; return the versions at which to begin to compute now, or None."""
        versions: Sequence[int] | None = None
        links = self._servers.links
        heard = self._servers.turn(seconds)
        self._note_sessions()
        for link, came in heard:
            index = links.index(link)
            for version in came:
                self._note(index, version, came[version])
                self._gathering.sent(index)
                versions = self._gathering.arrived(index, version) or versions
            if link.stopped and not self._known_to_stop[index]:
                self._known_to_stop[index] = True
                versions = self._gathering.stopped(index) or versions
        if versions is not None:
            self._session.faults.answered(min(versions))
        return versions

    def _note_sessions(self) -> None:
        """Forget what servers sent that were killed and have come back."""
        for index, link in enumerate(self._servers.links):
            if link.session != self._sessions[index]:
                self._sessions[index] = link.session
                self._received[index] = {}
                self._pushed[index] = None
                self._outdated[index] = True
                self._gathering.restored(index)

    def _note(self, index: int, version: int, part: FloatVector) -> None:
        self._received[index][version] = part
        if self._pushed[index] == version:
            self._pushed[index] = None  # the server had suspected this worker, and starts anew

    # -- by the clock's orders

    def by_orders(self, orders: OrderChannel) -> None:
        """Work by the virtual clock's orders alone, until all servers have said STOP."""
        versions = [-1] * len(self._servers.links)
        reports: set[int] = set()
        read: set[int] = set()
        while True:
            order = orders.take(wait=False)
            if order is None:
                self._receive()
                continue
            match order.what:
                case OrderKind.ARRIVED:
                    version, index = divmod(order.number, len(versions))
                    versions[index] = version
                case OrderKind.BEGIN:
                    while any(
                        version not in there
                        for version, there in zip(versions, self._received, strict=True)
                    ):
                        self._receive()
                    self._bases = list(versions)
                    self._compute()
                case OrderKind.REPORT:
                    reports.add(order.number)
                case OrderKind.READ:
                    read.add(order.number)
                case OrderKind.FINISHED:
                    self._send(reports, read)
                    reports.clear()
                    read.clear()
                case OrderKind.RESUME:
                    self._session.computation.draw_past(order.number)
                case OrderKind.WAIT:
                    continue
                case _:
                    break
        while not self._servers.all_stopped:
            self._servers.turn(math.inf)

    def _receive(self) -> None:
        links = self._servers.links
        for link, came in self._servers.turn(math.inf):
            for version, part in came.items():
                self._note(links.index(link), version, part)

    # -- computing and sending

    def _compute(self) -> None:
        self._session.line.training()
        self._outdated = [False] * len(self._outdated)
        computation = self._session.computation
        drawn = computation.draw()
        with self._session.learners.take() as learner:
            for index, base in enumerate(self._bases):
                there, own = self._received[index], self._servers.links[index].slice
                own.put(there[base], learner.parameters)
                self._received[index] = {v: part for v, part in there.items() if v >= base}
            gradient, self._loss = computation.gradient(learner, drawn, min(self._bases))
            np.copyto(self._gradient, gradient)
        self._session.line.waiting()

    def _finish(self) -> int | None:
        late, following = self._gathering.finished()
        outdated = {index for index, yes in enumerate(self._outdated) if yes}
        self._send(
            {i for i, base in enumerate(self._bases) if late or self._pushed[i] == base}, outdated
        )
        if following is None:
            return None
        self._bases = following
        return min(following)

    def _send(self, reports: Set[int], without: Set[int]) -> None:
        """Push the gradient to every server.

        Args:
            reports: the servers that get only a report, as it is too late for them.
            without: the servers that get nothing.
        """
        messages: list[Pieces] = [
            [] if index in without else [header(Kind.FINISHED, base)]
            for index, base in enumerate(self._bases)
        ]
        fresh = [i for i in range(len(self._bases)) if i not in reports and i not in without]
        if fresh:
            pushes = self._session.pushes(self._bases, self._gradient, self._loss)
            for index in fresh:
                messages[index] = pushes[index]
                self._pushed[index] = self._bases[index]
        self._servers.send(messages)
        if fresh:
            self._session.faults.pushed()

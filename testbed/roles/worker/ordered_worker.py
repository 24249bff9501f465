"""A worker under the virtual clock: its hands, which obey the orders of the clock.

What a worker does, the clock decides, where its protocol and its connections' states are. A worker that
asks computes as soon as it has been answered, and sends when the order comes; one that is sent every
version, or computes before it is answered, is told when to begin, and at which versions. Both read what
arrives at any time, so that no server ever waits for them.
"""

import math
from abc import ABC, abstractmethod

from testbed.engine.events import Received
from testbed.errors import RunError
from testbed.roles.orders import Order, OrderChannel, OrderKind
from testbed.roles.sockets.server_links import ServerLinks
from testbed.roles.transport.endpoint import Pieces
from testbed.roles.worker.hands import PULL, Hands, report
from testbed.roles.worker.memory import WorkerMemory

_BROKEN = "the order of events is broken, please report it with the experiment file"
_KNOWN = {OrderKind.RESUME, OrderKind.ARRIVED, OrderKind.BEGIN}
"""Orders to compute, which a worker that asks, and goes on at its own copy, does by itself."""


class OrderedWorker(ABC):
    """One incarnation of a worker, by the clock's orders."""

    def __init__(
        self, links: ServerLinks, hands: Hands, orders: OrderChannel, memory: WorkerMemory
    ) -> None:
        self._links, self._hands, self._orders, self._memory = links, hands, orders, memory
        self._every = range(len(links.links))
        # By server: the version that came last, and the one that is computed at.
        self._came = [-1] * len(self._every)
        self._bases = list(self._came)
        # The servers that get only a report, and those that had read the message before they were
        # restored.
        self._reports: set[int] = set()
        self._read: set[int] = set()

    @abstractmethod
    def run(self) -> None:
        """Work until all servers have said STOP.

        Raises:
            ConnectionError: a server is gone without a STOP, or the clock is.
            WireError: a server has sent what it must not.
        """

    def _receive(self, *, or_order: bool = False) -> list[Received]:
        """Wait until something comes, or an order; return the parameters that have come."""
        events = self._links.wait(math.inf, self._orders.fileno() if or_order else None)
        received = [event for event in events if isinstance(event, Received)]
        for one in received:
            self._came[one.conversation] = one.version
        return received

    def _end_computation(self, needed: int, *, pushes: bool, asks: bool) -> None:
        """Send what was computed, or a report of it, once what is remembered of it is written.

        Args:
            needed: as in ``WorkerMemory.end_computation``.
        """
        if pushes and len(self._reports) < len(self._every):
            # A server that has read its part, and is not sent it again, has had it encoded, too.
            self._hands.encode()
        self._memory.end_computation(needed)
        self._send(pushes=pushes, asks=asks)

    def _send(self, *, pushes: bool, asks: bool) -> None:
        """Send each server its part of what was computed, or a report of it, and ask it."""
        for one in self._every:
            if one in self._read:
                continue
            pieces: Pieces = []
            if one in self._reports:
                pieces = report(self._bases[one])
            elif pushes:
                pieces = self._hands.push(one)
            self._links.send(one, [*pieces, *(PULL if asks else ())], asks=asks)
        self._reports.clear()
        self._read.clear()

    def _heed(self, order: Order) -> bool:
        """Do what an order says of checkpoints; return False if it says nothing of them."""
        match order.what:
            case OrderKind.KEEP:
                self._memory.keep(order.number)
            case OrderKind.GO_ON:
                self._memory.go_on(order.number)
            case OrderKind.RESUME:
                self._hands.computation.draw_past(order.number)
            case OrderKind.READ:
                self._read.add(order.number)
            case _:
                return False
        return True

    def _finish(self) -> None:
        """Receive until all servers have said STOP, and close the connections.

        A connection that is closed with STOP unread would be reset, and its last bytes be lost.
        """
        while not self._links.all_stopped:
            self._receive()
        self._links.finish()


class AskingWorker(OrderedWorker):
    """A worker that asks, by the clock's orders."""

    def run(self) -> None:
        fresh: set[int] = set()
        stopped = False
        if self._links.goes_on:
            stopped = self._begin_again(fresh)
        else:
            self._send(pushes=False, asks=True)
        while not stopped:
            if not self._hands.computation.goes_on and not self._are_answered(fresh):
                break
            fresh.clear()
            stopped = not self._compute_and_send()
        self._finish()

    def _are_answered(self, fresh: set[int]) -> bool:
        """Wait until every server that goes on has answered; return False if none goes on.

        Args:
            fresh: the servers that have answered, to which others are added.
        """
        while not all(one in fresh or self._links.links[one].stopped for one in self._every):
            fresh |= {one.conversation for one in self._receive()}
        self._bases = list(self._came)
        return not self._links.all_stopped

    def _compute_and_send(self) -> bool:
        """Compute a leg, and push or ask when the order comes; return False if the order is to stop."""
        hands, leg = self._hands, self._hands.computation.leg
        with hands.computed(self._bases):
            if leg.pushes:
                hands.encode()
            order = self._order()
            if order is not None and order.what is OrderKind.FINISHED:
                # Sent from where it was computed.
                self._end_computation(order.number, pushes=leg.pushes, asks=leg.asks)
                return True
            if leg.pushes:
                hands.keep()
        while order is None:
            self._receive(or_order=True)
            order = self._order()
        if order.what is not OrderKind.FINISHED:
            return False
        self._end_computation(order.number, pushes=leg.pushes, asks=leg.asks)
        return True

    def _order(self) -> Order | None:
        """Return the next order that says whether to send; None if there is none yet."""
        while (order := self._orders.take(wait=False)) is not None:
            if order.what not in _KNOWN and not self._heed(order):
                return order
        return None

    def _begin_again(self, fresh: set[int]) -> bool:
        """Go on from where the worker was at a checkpoint; return True if the order is to stop.

        Args:
            fresh: becomes the servers that have answered since it computed last.
        """
        bases, what = [], OrderKind.RESUME
        # It may have been answered since, and still have to compute at what was there before.
        self._hands.parameters.only_newest = False
        while what not in (OrderKind.BEGIN, OrderKind.WAIT):
            order = self._orders.take()
            assert order is not None
            what = order.what
            if not self._heed(order) and what is OrderKind.ARRIVED:
                bases.append(order.number // len(self._every))
        # What a server sends first is what the worker had computed at, if it ever had.
        known: set[int] = set()
        while len(known) < len(bases):
            for one in self._receive():
                (fresh if one.conversation in known else known).add(one.conversation)
        stopped = False
        if what is OrderKind.BEGIN:
            self._bases = bases
            if self._hands.computation.goes_on:
                self._hands.parameters.use(bases)
            stopped = not self._compute_and_send()
        elif bases:
            self._hands.parameters.use(bases)
        self._hands.parameters.only_newest = True
        return stopped


class ListeningWorker(OrderedWorker):
    """A worker that is told at which versions to compute, by the clock's orders."""

    def __init__(
        self,
        links: ServerLinks,
        hands: Hands,
        orders: OrderChannel,
        memory: WorkerMemory,
        *,
        asks: bool,
    ) -> None:
        """Set the worker up.

        Args:
            asks: True if it asks for parameters with each push; otherwise it is sent every version.
        """
        super().__init__(links, hands, orders, memory)
        self._asks = asks
        # By server: the version that has arrived last, by the clock.
        self._arrived = list(self._came)

    def run(self) -> None:
        has_computed = False
        if self._asks and not self._links.goes_on:
            self._send(pushes=False, asks=True)
        while True:
            order = self._orders.take(wait=False)
            if order is None:
                self._receive(or_order=True)
                continue
            match order.what:
                case OrderKind.ARRIVED:
                    version, server = divmod(order.number, len(self._every))
                    self._arrived[server] = version
                    self._hands.parameters.forget_before(server, version)
                case OrderKind.BEGIN:
                    self._compute()
                    has_computed = True
                case OrderKind.REPORT:
                    self._reports.add(order.number)
                case OrderKind.FINISHED if not has_computed:
                    raise RunError(
                        f"the clock says that a computation is over, and none is under way: {_BROKEN}"
                    )
                case OrderKind.FINISHED:
                    self._end_computation(order.number, pushes=True, asks=self._asks)
                    has_computed = False
                case OrderKind.WAIT:
                    continue
                case _ if not self._heed(order):
                    break
        self._finish()

    def _compute(self) -> None:
        self._bases = list(self._arrived)
        for server, version in enumerate(self._bases):
            while not self._hands.parameters.has(server, version):
                if self._came[server] >= version:
                    raise RunError(
                        f"the clock says that version {version} has arrived, and the server has sent "
                        f"version {self._came[server]}, after which it cannot come any more: {_BROKEN}"
                    )
                self._receive()
        # Whether it is pushed is not known yet: it may be too late, or be interrupted.
        with self._hands.computed(self._bases):
            self._hands.keep()

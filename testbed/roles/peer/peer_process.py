"""A peer's process: it owns a model, computes, sends to the other peers and takes in what they send.

Each peer listens, and connects to the peers with lower numbers, so that every two have one connection.
One thread does everything: it computes, and otherwise waits for its sockets and for the coordinator, so
that a peer that has much to send never keeps others from sending.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import TypeAlias

from testbed.roles.orders import Order, OrderChannel, OrderKind
from testbed.roles.peer.peer_connections import PeerConnections
from testbed.roles.peer.peer_reports import ConnectionLost, Met, OrderDone, Parted
from testbed.roles.turn_taking import TurnTaking
from testbed.telemetry.state_board import DeviceLine
from testbed.training.exchange import Answered
from testbed.training.peer_computation import LocalPeer, PeerComputation, Sending
from testbed.training.settings import Settings
from testbed.updates import Update, as_bytes
from testbed.wire.frames import header

IDLE = 1.0
"""Seconds without an order after which a peer reads from all others, and so learns which are lost."""
Parts: TypeAlias = tuple[
    Settings, int, PeerComputation, TurnTaking, OrderChannel, PeerConnections, DeviceLine
]
"""The arguments of a peer; its number is the second."""


class PeerProcess(LocalPeer):
    """One peer of a run, which carries out what its role decides; see ``run``."""

    def __init__(self, *parts: *Parts) -> None:
        self._settings, self._number, computation, learners, orders, connections, line = parts
        super().__init__(computation)
        self._learners = learners
        self._orders = orders
        self._connections = connections
        self._line = line

    def run(self, others: Collection[int] | None = None) -> None:
        """Connect to the others, work until the coordinator says STOP, and disconnect.

        Args:
            others: if this peer was killed and comes back, the peers that are there.
        """
        if others is None:
            self._connections.connect()
        else:
            self._orders.forget()  # they were the killed process's
            self._connections.connect_again(others)
            for absent in self._connections.absent:
                self._half.forget(absent)
        incarnation = self._connections.identity.incarnation
        self._orders.report(Met(incarnation, self._connections.connected, self._half.version))
        self._line.waiting()
        self._work()
        self._line.done()
        digest = hashlib.sha256(self._half.parameters.tobytes()).hexdigest()
        if self._number == self._settings.network.evaluated_peer:
            self._connections.report.parameters(as_bytes(self._half.parameters))
        self._connections.disconnect()
        self._report_losses()  # of peers that were killed as they could not learn of the end
        received = self._connections.payload_bytes, self._connections.message_bytes
        self._orders.report(Parted(*received, digest))

    @abstractmethod
    def _work(self) -> None:
        """Work until the coordinator says STOP."""

    def _report_losses(self) -> None:
        for peer, incarnation in self._connections.lost():
            self._lose(peer)
            self._orders.report(ConnectionLost(peer, incarnation, self.ready, list(self.waits_for)))

    def _lose(self, peer: int) -> None:
        """Go on without a peer whose connection has broken."""
        self.forget(peer)

    # -- what carries out what the role decides

    def compute(self) -> None:
        self._line.training()
        with self._learners.take() as learner:
            self._compute_with(learner)
        self._line.waiting()

    def _next_from(self, sender: int) -> Update | None:
        frame = self._connections.next_from(sender)
        return None if frame is None else self.computation.decode(frame)

    def _send(self, sent: Sequence[Sending], version: int, loss: float = 0.0) -> None:
        for kind, encoded, receivers in sent:
            head = header(kind, version, encoding=encoded.encoding, loss=loss, length=encoded.size)
            for receiver in receivers:
                self._connections.send(receiver, [head, *encoded.body])


class OrderedPeer(PeerProcess):
    """A peer whose role is in the coordinator's process."""

    def _work(self) -> None:
        self._connections.also(self._orders.fileno())
        reading: int | None = None
        while True:
            ordered = self._connections.turn(IDLE, reading) or self._connections.turn(0.0)
            while not ordered:
                # Nothing to do: what comes from others is read, after which connections may have ended.
                self._report_losses()
                ordered = self._connections.turn(None)
            order = self._orders.take()
            assert order is not None
            # Others have to be rid of what they sent this peer, until all have settled.
            reading = -1 if order.what is OrderKind.SETTLE else None
            if order.what is OrderKind.STOP:
                return
            self._obey(order)

    def _obey(self, order: Order) -> None:
        lacking: Sequence[int] = ()
        match order.what:
            case OrderKind.BEGIN:
                self.compute()
                return
            case OrderKind.EVALUATE:
                self._connections.evaluate(order.number, self._half.parameters)
                return
            case OrderKind.FINISHED:
                self._orders.report(self.step())
            case OrderKind.ARRIVED:
                answered = Answered(self.receive(order.number))
                if not (self._half.paced or self._half.answers):
                    return
                self._orders.report(answered)
            case OrderKind.FORGET:
                self._connections.forget(order.number)
                self.forget(order.number)
            case OrderKind.ADMIT:
                self._connections.returned.remove(order.number)
                self.joined(order.number)
            case OrderKind.SUSPECT:
                self.suspect(order.number)
            case OrderKind.SETTLE:
                lacking = self._connections.settle()
        self._orders.report(OrderDone(self.ready, list(self.waits_for), lacking))

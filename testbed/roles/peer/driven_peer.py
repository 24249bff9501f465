"""An emulated peer as the virtual clock's process drives it: by orders, and what comes of them."""

from collections.abc import Collection, Container, Sequence
from typing import TypeVar

from testbed.roles.orders import OrderKind
from testbed.roles.peer.channels import PeerChannels
from testbed.roles.peer.peer_reports import ConnectionLost, OrderDone
from testbed.training.exchange import Answered, Step
from testbed.training.peer_bytes import Message

R = TypeVar("R")


class DrivenPeer:
    """The ``PeerHands`` of one peer's process.

    Attributes:
        ready, waits_for: those of the peer's half, after the last order that was answered.
    """

    def __init__(
        self, number: int, channels: PeerChannels, killed: Container[int], *, tells: bool
    ) -> None:
        """Start with a process that is connected to the others, and has nothing to wait for.

        Args:
            killed: the peers that the clock has killed: of others that are gone every process takes
                note by itself.
            tells: True if an arrival is answered: it may make the peer ready, or have it send.
        """
        self.ready = True
        self.waits_for: Collection[int] = ()
        self._number = number
        self._channels = channels
        self._killed = killed
        self._tells = tells

    def compute(self) -> None:
        self._channels.give(self._number, OrderKind.BEGIN)

    def step(self) -> Step | None:
        return self._ask(OrderKind.FINISHED, 0, Step)

    def receive(self, sender: int) -> Sequence[Message]:
        if not self._tells:
            self._channels.give(self._number, OrderKind.ARRIVED, sender)
            return ()
        answered = self._ask(OrderKind.ARRIVED, sender, Answered)
        return () if answered is None else answered.messages

    def suspect(self, peer: int) -> None:
        self._ask(OrderKind.SUSPECT, peer)

    def forget(self, peer: int) -> None:
        """Have the peer forget one that dies, once it has read what has arrived from it."""
        if peer in self._killed and self._number not in self._channels.gone:
            self._ask(OrderKind.FORGET, peer)

    def joined(self, peer: int) -> None:
        self._ask(OrderKind.ADMIT, peer)

    def _ask(self, what: OrderKind, number: int, first: type[R] | None = None) -> R | None:
        """Give an order, and wait until it was carried out; a frozen peer is given it at its thaw.

        Args:
            first: what the peer reports before that, which is returned.
        """
        self._channels.give(self._number, what, number)
        if self._number in self._channels.held:
            return None
        found = None if first is None else self._channels.wait_for(self._number, first)
        self.outcome()
        return found

    def outcome(self) -> OrderDone | None:
        """Wait until the last order was carried out; return None if the peer is gone."""
        outcome = self._channels.wait_for(self._number, OrderDone)
        self.note(outcome)
        return outcome

    def note(self, report: OrderDone | ConnectionLost | None) -> None:
        """Record whether the peer is ready, and which others it waits for; None: it is gone."""
        self.ready = report is not None and report.ready
        self.waits_for = () if report is None else report.waits_for

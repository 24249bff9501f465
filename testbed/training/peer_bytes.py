"""The bytes of messages to each peer: no socket, no clock, no thread.

By the virtual clock a message counts when it is sent, as both engines know that moment; by the wall
clock when its receiver has it whole, which only the receiver knows.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from testbed.checkpoints.stateful import Stateful
from testbed.wire.frames import HEADER, SECRET_SIZE


class Message(NamedTuple):
    """One copy of an update on its way.

    Attributes:
        size: bytes of the message.
        payload: bytes of the encoded update in it.
    """

    receiver: int
    size: int
    payload: int


class PeerBytes(Stateful):
    """The bytes of messages to each peer of a run, which says nothing of what is sent.

    Attributes:
        payload, messages: bytes by peer.
    """

    def __init__(self, peers: int) -> None:
        self.payload = [0] * peers
        self.messages = [0] * peers

    @property
    def total(self) -> tuple[int, int]:
        """The payload and message bytes of all peers."""
        return sum(self.payload), sum(self.messages)

    def connected(self, neighbours: Sequence[Sequence[int]]) -> None:
        """All peers have connected to the neighbours with lower numbers."""

    def sent(self, by: int, messages: Sequence[Message]) -> None:
        """A peer has sent messages, or nothing."""

    def lost(self, peer: int) -> None:
        """A peer is dead."""

    def returned(self, peer: int, others: Sequence[int]) -> None:
        """A peer that was dead has connected to others."""

    def parted(self, neighbours: Sequence[Sequence[int]]) -> None:
        """Faults are undone, and every peer tells the others that it has stopped."""


class ReceivedBytes(PeerBytes):
    """The bytes that peers say they have received, each since its process began."""

    def __init__(self, peers: int) -> None:
        super().__init__(peers)
        self._incarnations = [0] * peers
        self._before = [(0, 0)] * peers

    def received(self, peer: int, incarnation: int, payload: int, messages: int) -> None:
        """Take in what a peer's process has received so far.

        What an earlier process received after its last word is not known, and not counted.

        Args:
            incarnation: how often the peer was killed before.
        """
        if incarnation > self._incarnations[peer]:
            self._incarnations[peer] = incarnation
            self._before[peer] = self.payload[peer], self.messages[peer]
        before = self._before[peer]
        self.payload[peer], self.messages[peer] = before[0] + payload, before[1] + messages


class SentBytes(PeerBytes):
    """The bytes that are sent to peers.

    A message between two peers of which one cannot be reached is held: it counts at the first
    ``release`` at which both can be, and never if one of them dies before.

    Attributes:
        is_reachable: returns False of a peer that is cut off or lost now.
    """

    not_saved = frozenset({"is_reachable", "_passed"})

    def __init__(
        self,
        peers: int,
        passed: Callable[[int, Message], None] = lambda _sender, _message: None,
    ) -> None:
        """Start with no peer connected.

        Args:
            passed: told of each message that counts, and of who sends it.
        """
        super().__init__(peers)
        self.is_reachable: Callable[[int], bool] = lambda _peer: True
        self._passed = passed
        self._gone: set[int] = set()
        self._held: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        """The messages that are held, by sender and receiver; plain tuples, as checkpoints need."""

    def connected(self, neighbours: Sequence[Sequence[int]]) -> None:
        for caller, others in enumerate(neighbours):
            self._greet(caller, [called for called in others if called < caller])

    def _greet(self, caller: int, others: Collection[int]) -> None:
        self.messages[caller] += HEADER.size * len(others)
        for called in others:
            self.messages[called] += HEADER.size + SECRET_SIZE

    def sent(self, by: int, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.receiver in self._gone:
                continue
            if self._reach(by, message.receiver):
                self._count(by, message)
            else:
                self._held.setdefault((by, message.receiver), []).append((*message,))

    def _reach(self, one: int, other: int) -> bool:
        return self.is_reachable(one) and self.is_reachable(other)

    def _count(self, by: int, message: Message) -> None:
        self.payload[message.receiver] += message.payload
        self.messages[message.receiver] += message.size
        self._passed(by, message)

    def release(self) -> None:
        """Count what was held between peers that can both be reached now."""
        self._release([ends for ends in self._held if self._reach(*ends)])

    def _release(self, pairs: Collection[tuple[int, int]]) -> None:
        for ends in pairs:
            for message in self._held.pop(ends):
                self._count(ends[0], Message(*message))

    def lost(self, peer: int) -> None:
        self._gone.add(peer)
        self._held = {ends: held for ends, held in self._held.items() if peer not in ends}

    def returned(self, peer: int, others: Sequence[int]) -> None:
        self._gone.discard(peer)
        self._greet(peer, others)

    def parted(self, neighbours: Sequence[Sequence[int]]) -> None:
        self._release(list(self._held))
        for peer, others in enumerate(neighbours):
            if peer not in self._gone:
                self.messages[peer] += HEADER.size * len(set(others) - self._gone)

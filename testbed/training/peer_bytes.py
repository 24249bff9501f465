"""The bytes of messages to each peer: no socket, no clock, no thread.

A message counts when its receiver has it whole. By the virtual clock that is an event; by the wall
clock only the receiver knows.
"""

from collections import deque
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

    def arrived(self, receiver: int, sender: int) -> None:
        """A peer has the first message of another one that was under way to it."""

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


class ArrivedBytes(PeerBytes):
    """The bytes of the messages that have reached each peer by the clock.

    Attributes:
        undelivered: by peer, the bytes of messages to it that were under way as one of both ends died,
            or was lost: no peer has received them, and an emulation's host may have carried them.
    """

    not_saved = frozenset({"_passed"})

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
        self.undelivered = [0] * peers
        self._passed = passed
        self._gone: set[int] = set()
        self._under_way: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        """Size and payload of each message under way, by sender and receiver, the first one first."""

    def connected(self, neighbours: Sequence[Sequence[int]]) -> None:
        for caller, others in enumerate(neighbours):
            self._greet(caller, [called for called in others if called < caller])

    def _greet(self, caller: int, others: Collection[int]) -> None:
        self.messages[caller] += HEADER.size * len(others)
        for called in others:
            self.messages[called] += HEADER.size + SECRET_SIZE

    def sent(self, by: int, messages: Sequence[Message]) -> None:
        for receiver, size, payload in messages:
            if receiver not in self._gone:
                self._under_way.setdefault((by, receiver), deque()).append((size, payload))

    def arrived(self, receiver: int, sender: int) -> None:
        if sender in self._gone:
            return  # how much of a dead process's last messages comes is the host's chance
        message = Message(receiver, *self._under_way[sender, receiver].popleft())
        self.payload[receiver] += message.payload
        self.messages[receiver] += message.size
        self._passed(sender, message)

    def lost(self, peer: int) -> None:
        self._gone.add(peer)
        for ends in [ends for ends in self._under_way if peer in ends]:
            self.undelivered[ends[1]] += sum(size for size, _ in self._under_way.pop(ends))

    def returned(self, peer: int, others: Sequence[int]) -> None:
        self._gone.discard(peer)
        self._greet(peer, others)

    def parted(self, neighbours: Sequence[Sequence[int]]) -> None:
        for (sender, receiver), messages in self._under_way.items():
            for _ in range(len(messages)):
                self.arrived(receiver, sender)
        for peer, others in enumerate(neighbours):
            if peer not in self._gone:
                self.messages[peer] += HEADER.size * len(set(others) - self._gone)

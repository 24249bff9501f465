"""The staleness clocks of a peer: how far it may be ahead of the slowest of the others.

Stale synchronous parallel (SSP), as Ako has it (paper 003, §3.3 and Algorithm 1, lines 3, 11 and 14): a
peer j counts its own gradients, c, and the messages of each other peer i, s_i. Each peer sends one
message to each other for every gradient.
"""

from collections.abc import Iterable


class StalenessClocks:
    """One peer's clocks.

    Attributes:
        c: the number of gradients that the peer has computed.
        s: the number of messages that have come from each other peer.
    """

    def __init__(self, others: Iterable[int]) -> None:
        self.c = 0
        self.s = dict.fromkeys(others, 0)

    @property
    def lead(self) -> int:
        """The number of gradients by which the peer is ahead of the slowest other, by its clocks."""
        return self.c - min(self.s.values(), default=self.c)

    def received(self, sender: int) -> None:
        """Count a message; one of a peer that was forgotten counts for nothing."""
        if sender in self.s:
            self.s[sender] += 1

    def forget(self, peer: int) -> None:
        """Wait for a peer no longer."""
        self.s.pop(peer, None)

    def joined(self, peer: int) -> None:
        """Wait for a peer from now on, which is as far as this one."""
        self.s[peer] = self.c

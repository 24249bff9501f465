"""The staleness clocks of a peer: how far it may be ahead of the slowest of the others.

Stale synchronous parallel (SSP), as Ako has it (paper 003, §3.3 and Algorithm 1, lines 3, 11 and 14): a
peer j counts its own gradients, c, and the messages of each other peer i, s_i. Each peer sends one
message to each other for every gradient.
"""

from collections.abc import Iterable

from testbed.checkpoints.stateful import Stateful


class StalenessClocks(Stateful):
    """One peer's clocks.

    Attributes:
        c: the number of gradients that the peer has computed.
        s: the number of messages that have come from each other peer.
        suspected: the peers that are not waited for, as they are silent.
    """

    def __init__(self, others: Iterable[int]) -> None:
        self.c = 0
        self.s = dict.fromkeys(others, 0)
        self.suspected: set[int] = set()

    @property
    def lead(self) -> int:
        """The number of gradients by which the peer is ahead of the slowest other, by its clocks."""
        awaited = (s for peer, s in self.s.items() if peer not in self.suspected)
        return self.c - min(awaited, default=self.c)

    def behind(self, most: int) -> list[int]:
        """Return the peers that are waited for if the lead may be no more than ``most``."""
        return [
            peer for peer, s in self.s.items() if self.c - s > most and peer not in self.suspected
        ]

    def received(self, sender: int, most: int | None = None) -> None:
        """Count a message; one of a peer that was forgotten counts for nothing.

        Args:
            most: the largest lead that is allowed; None: any. A peer that was suspected is waited for
                again, and counts as that far behind: it need not make up for all of its silence.
        """
        if sender not in self.s:
            return
        self.s[sender] += 1
        if sender in self.suspected:
            self.suspected.remove(sender)
            if most is not None:
                self.s[sender] = max(self.s[sender], self.c - most)

    def forget(self, peer: int) -> None:
        """Wait for a peer no longer."""
        self.s.pop(peer, None)
        self.suspected.discard(peer)

    def joined(self, peer: int) -> None:
        """Wait for a peer from now on, which is as far as this one."""
        self.s[peer] = self.c

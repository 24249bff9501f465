"""Peers that wait for others which are silent, under the virtual clock.

A peer that is held by its bound times how long each of those that it waits for is silent; after the
limit it suspects them, which waits for them no longer (``PeerHalf.suspect``), until it hears of them.
"""

import math
from collections.abc import Collection

from testbed.training.entries import Entry
from testbed.training.exchange import ExchangeService
from testbed.training.silence import Silence


class PeerSilence:
    """The silences that the peers of a run time."""

    def __init__(self, peers: int, patience: float | None, service: ExchangeService) -> None:
        """Begin without any.

        Args:
            peers: the number of peers.
            patience: the seconds for which a peer that is waited for may be silent; None: no limit.
            service: the run's, to which suspicions are told.
        """
        self._service = service
        self._patience = patience
        self._silence = [Silence(patience) for _ in range(peers)]
        self._looks = [math.inf] * peers
        self._suspects: set[tuple[int, int]] = set()
        """The peers that suspect others, with those."""

    def time(self, peer: int, awaited: Collection[int], now: float) -> float | None:
        """Time those that a peer waits for now, and no others.

        Returns:
            When the clock has to call ``overdue``; None if it need not, or will do so earlier.
        """
        if self._patience is None:
            return None
        silence = self._silence[peer]
        deadlines = []
        for other in range(len(self._silence)):
            if other not in awaited:
                silence.ends(other)
                continue
            silence.begins(other, now)
            if (deadline := silence.deadline(other)) is not None:
                deadlines.append(max(now, deadline))
        look = min(deadlines, default=math.inf)
        if look >= self._looks[peer]:
            return None
        self._looks[peer] = look
        return look

    def heard(self, peer: int, sender: int, now: float) -> list[Entry]:
        """Note that a message has come."""
        silence = self._silence[peer]
        silence.ends(sender)
        if (peer, sender) in self._suspects:
            self._suspects.remove((peer, sender))
            silence.was_slow(sender)
            return self._service.heard(sender, peer, now)
        silence.was_in_time(sender)
        return []

    def returned(self, peer: int, now: float) -> list[Entry]:
        """Note that a peer that was killed is back: it suspects none, and is suspected by none."""
        self._silence[peer] = Silence(self._patience)
        for silence in self._silence:
            silence.ends(peer)
            silence.was_in_time(peer)
        found: list[Entry] = []
        for by, other in sorted(one for one in self._suspects if peer in one):
            self._suspects.remove((by, other))
            found += self._service.heard(other, by, now)
        return found

    def looks(self, peer: int) -> None:
        """Note that the time is there that ``time`` returned last."""
        self._looks[peer] = math.inf

    def overdue(self, peer: int, now: float) -> list[int]:
        """Return those that a peer has waited for too long for; ``suspect`` each of them."""
        return self._silence[peer].overdue(now)

    def suspect(self, peer: int, other: int, now: float) -> list[Entry]:
        """Let a peer suspect another one from now on."""
        silence = self._silence[peer]
        self._suspects.add((peer, other))
        silent = silence.lasts(other, now)
        silence.ends(other)
        return self._service.suspected(other, peer, silent, now)

"""Peers that wait for each other under the virtual clock, found without a time limit.

A peer that waits claims so about once a second, over the clock's channel (``OrderChannel.claim``). It
waits either for a message of another peer, from which it has nothing left to read, or for the clock's
next order. The claim also names the peers to which bytes of its own are still under way.

The coordinator awaits one peer and gives no orders meanwhile. It follows the claims from that peer to
the peer that it waits for, and so on, up to a peer that waits for an order or is in the chain already.
None of these peers can ever go on if none has bytes under way to the peer that waits for it, and each
looked again, in the same wait, after all of them had claimed once: bytes that a peer sent before its
first claim had reached the other's kernel by then, and the other's later look would have found them.

A busy host, a frozen process or a slow link makes a peer claim nothing, or that bytes are under way: a
run that is merely slow is never ended.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.device_names import peer_name


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of a peer, as a claim states it; equal as long as it lasts and no bytes move.

    Attributes:
        sender: the peer whose message is waited for; None for the clock's next order.
        orders: the number of orders that the waiting peer has taken so far.
        under_way: the peers whose kernels have not received all bytes sent to them.
    """

    sender: int | None
    orders: int
    under_way: frozenset[int]

    def __str__(self) -> str:
        whose = "the clock's next order"
        return whose if self.sender is None else f"a message of {peer_name(self.sender)}"


@dataclass(slots=True)
class _Claims:
    """A peer's claims of one wait; moments are seconds of CLOCK_MONOTONIC.

    Attributes:
        heard: when the first claim was received.
        looked: when the peer began the look that the newest claim reports.
    """

    wait: Wait
    heard: float
    looked: float


class PeerStandstill:
    """The coordinator's side: the claims of peers while it awaits one of them."""

    def __init__(self) -> None:
        self._began = 0.0
        self._claims: dict[int, _Claims] = {}

    def begin(self) -> None:
        """Wait for a peer from now on: earlier claims do not count."""
        self._began = time.monotonic()
        self._claims.clear()

    def hear(self, peer: int, told: Mapping[str, Any]) -> None:
        """Take in a peer's claim."""
        wait = Wait(told["waits_for"], told["orders"], frozenset(told["under_way"]))
        looked = float(told["looked"])
        if looked < self._began:
            return
        known = self._claims.get(peer)
        if known is None or known.wait != wait:
            self._claims[peer] = _Claims(wait, time.monotonic(), looked)
        else:
            known.looked = looked

    def found(self, awaited: int) -> str | None:
        """Return which peer waits for which, in words, if the awaited peer can never go on."""
        chain: list[int] = []
        peer: int | None = awaited
        while peer is not None and peer not in chain:
            claims = self._claims.get(peer)
            if claims is None or (chain and chain[-1] in claims.wait.under_way):
                return None
            chain.append(peer)
            peer = claims.wait.sender
        if peer is not None and chain[-1] in self._claims[peer].wait.under_way:
            return None
        in_chain = [self._claims[member] for member in chain]
        all_heard = max(claims.heard for claims in in_chain)
        if min(claims.looked for claims in in_chain) < all_heard:
            return None
        waits = [f"which waits for {claims.wait}" for claims in in_chain]
        return ", ".join([peer_name(awaited), *waits])

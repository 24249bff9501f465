"""Peers that wait for each other, under the virtual clock: noticed by facts, not by a time limit.

A peer that waits claims so, about once a second, over the clock's channel (``Leave.claim``). It waits
either for a message of another peer, of which it has nothing left to read, or for the clock's next
order, and has none. The claim also names the peers to which something of its own is still under way.

The coordinator awaits one peer and gives no orders meanwhile. It follows the claims from that peer to
the one that it waits for, and so on, to a peer that waits for an order or that was met before. None of
these peers can ever go on if none has anything under way to the one that waits for it, and each looked
again, in the same wait, after all had claimed so once: what a peer had sent before its first claim had
reached the other's kernel by then, and the other's later look would have seen it there.

A busy host, a frozen process or a slow link make a peer claim nothing, or that something is under way.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.device_names import peer_name


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of a peer; equal as long as it lasts and nothing moves.

    Attributes:
        sender: the peer whose message is waited for; None for the clock's next order.
        orders: how many orders the waiting peer has taken so far.
        under_way: the peers whose kernels have not received everything that was sent to them.
    """

    sender: int | None
    orders: int
    under_way: frozenset[int]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Wait":
        """Return the wait that a claim, as the coordinator heard it, is about."""
        return cls(told["waits_for"], told["orders"], frozenset(told["under_way"]))


@dataclass(slots=True)
class _Claims:
    """A peer's claims of one wait; moments are seconds of CLOCK_MONOTONIC.

    Attributes:
        heard: when the first was heard.
        looked: when the peer began to look at what the newest says.
    """

    wait: Wait
    heard: float
    looked: float


class PeerStandstill:
    """The coordinator's side: what peers claimed while it awaited one of them."""

    def __init__(self) -> None:
        self._began = 0.0
        self._claims: dict[int, _Claims] = {}

    def begin(self) -> None:
        """Begin to await a peer: what was claimed before counts for nothing."""
        self._began = time.monotonic()
        self._claims.clear()

    def hear(self, peer: int, told: Mapping[str, Any]) -> None:
        """Take in a claim of a peer."""
        wait, looked = Wait.of(told), float(told["looked"])
        if looked < self._began:
            return
        known = self._claims.get(peer)
        if known is None or known.wait != wait:
            self._claims[peer] = _Claims(wait, time.monotonic(), looked)
        else:
            known.looked = looked

    def found(self, awaited: int) -> str | None:
        """Return who waits for whom, in words, if the awaited peer can never go on."""
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
        members = [self._claims[one] for one in chain]
        all_heard = max(one.heard for one in members)
        if min(one.looked for one in members) < all_heard:
            return None
        waits = [f"which waits for {_what(one.wait)}" for one in members]
        return ", ".join([peer_name(awaited), *waits])


def _what(wait: Wait) -> str:
    return (
        "the clock's next order"
        if wait.sender is None
        else f"a message of {peer_name(wait.sender)}"
    )

"""Peers that can never go on are found by their claims; a missing or old claim proves nothing."""

import time
from typing import Any

import pytest

from testbed.roles.peer.peer_standstill import PeerStandstill

ORDER = "the clock's next order"
PARTS = {"chain": {0: 1, 1: 2, 2: None, 3: None}, "ring": {0: 1, 1: 2, 2: 0, 3: None}}
"""The peer that each peer waits for (None: the clock's next order); peer 0 does not need peer 3."""


def claim(sender: int | None, **changes: Any) -> dict[str, Any]:
    return {"waits_for": sender, "orders": 7, "looked": time.monotonic(), "under_way": []} | changes


@pytest.fixture
def standstill() -> PeerStandstill:
    made = PeerStandstill()
    made.begin()
    return made


def hear(standstill: PeerStandstill, peers: dict[int, int | None], but: int = -1) -> None:
    for peer, sender in peers.items():
        if peer != but:
            standstill.hear(peer, claim(sender))


def test_a_peer_that_waits_for_an_order_is_found_after_two_claims(
    standstill: PeerStandstill,
) -> None:
    standstill.hear(0, claim(None))
    assert standstill.found(0) is None
    standstill.hear(0, claim(None))
    assert standstill.found(0) == f"peer-0, which waits for {ORDER}"
    assert standstill.found(1) is None


@pytest.mark.parametrize("shape", PARTS)
def test_peers_that_wait_for_each_other_are_found(standstill: PeerStandstill, shape: str) -> None:
    hear(standstill, PARTS[shape])
    assert standstill.found(0) is None
    hear(standstill, PARTS[shape])
    last = {"chain": ORDER, "ring": "a message of peer-0"}[shape]
    assert standstill.found(0) == (
        "peer-0, which waits for a message of peer-1, which waits for a message of peer-2, "
        f"which waits for {last}"
    )


@pytest.mark.parametrize("shape", PARTS)
@pytest.mark.parametrize("peer", [0, 1, 2])
def test_every_peer_has_to_look_again_after_all_have_claimed(
    standstill: PeerStandstill, shape: str, peer: int
) -> None:
    peers = PARTS[shape]
    hear(standstill, peers, but=peer)
    hear(standstill, peers, but=peer)
    assert standstill.found(0) is None
    before = time.monotonic()
    standstill.hear(peer, claim(peers[peer]))
    assert standstill.found(0) is None  # the others' claims may be out of date
    hear(standstill, peers, but=peer)
    assert standstill.found(0) is None
    standstill.hear(peer, claim(peers[peer], looked=before))  # it looked before all had claimed
    assert standstill.found(0) is None
    standstill.hear(peer, claim(peers[peer]))
    assert standstill.found(0) is not None


@pytest.mark.parametrize("shape", PARTS)
@pytest.mark.parametrize("peer", [0, 1, 2])
@pytest.mark.parametrize("change", [{"orders": 8}, {"under_way": [3]}, {"waits_for": 3}])
def test_a_peer_that_went_on_in_between_has_to_claim_again(
    standstill: PeerStandstill, shape: str, peer: int, change: dict[str, Any]
) -> None:
    peers = PARTS[shape]
    hear(standstill, peers)
    hear(standstill, peers, but=peer)
    standstill.hear(peer, claim(peers[peer], **change))
    assert standstill.found(0) is None


@pytest.mark.parametrize("shape", PARTS)
def test_a_message_under_way_is_no_standstill(standstill: PeerStandstill, shape: str) -> None:
    peers = PARTS[shape]
    for waiting, sender in peers.items():
        if sender is None:
            continue
        for under_way, found in (([waiting], False), ([3], True)):
            standstill.begin()
            for _ in range(3):
                hear(standstill, peers, but=sender)
                standstill.hear(sender, claim(peers[sender], under_way=under_way))
            assert (standstill.found(0) is not None) is found


def test_claims_from_before_the_coordinator_waits_do_not_count(standstill: PeerStandstill) -> None:
    old = claim(None)
    standstill.hear(0, old)
    standstill.hear(0, claim(None))
    assert standstill.found(0) is not None
    standstill.begin()
    assert standstill.found(0) is None
    for _ in range(3):
        standstill.hear(0, old)
    assert standstill.found(0) is None

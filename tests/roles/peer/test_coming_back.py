"""Peers whose process is killed and that connect again, over real sockets."""

import select
import socket
import threading
from typing import Any

import numpy as np
import pytest

from testbed.roles.transport.greeting import Identity, call
from testbed.wire.frames import Kind
from tests.roles.peer.test_peer_connections import SIZE, Place, frames, hello, push, receive, turned


def test_what_a_dead_process_sent_is_told_from_what_the_next_one_sends(place: Place) -> None:
    peer = place.peer(0, 3)
    before = place.greeted(0, 2)
    turned(peer, lambda: 2 in peer.workers)
    peer.forget(2)
    assert peer.connected == []
    assert peer.next_from(2) is None
    before.sendall(b"".join(push(1, 1.0)))  # it was under way
    after = place.connect(0, hello(int(Identity(2, 1))))
    turned(peer, lambda: peer.returned == [2])
    after.sendall(b"".join(push(1, 2.0)))
    frame = peer.next_from(2)
    assert frame is not None
    assert np.frombuffer(frame.body, np.float32)[0] == 2.0
    before.close()
    turned(peer, lambda: len(peer.open) == 1)
    # Its end is no loss, and the new connection stays.
    assert list(peer.lost()) == []
    assert peer.connected == [2]
    assert receive(after)[:2] == (Kind.WELCOME, SIZE)


def test_a_peer_may_be_back_before_its_end_is_noticed(place: Place) -> None:
    peer = place.peer(1, 3)
    place.greeted(1, 2)
    turned(peer, lambda: 2 in peer.workers)
    for incarnation in (1, 2):
        place.connect(1, hello(int(Identity(2, incarnation))))
        turned(peer, lambda: 2 in peer.returned)
        assert peer.returned.pop() == 2
        assert list(peer.lost()) == [(2, incarnation - 1)]
        assert peer.connected == [2]
    # One that is back calls peers with higher numbers, too.
    place.connect(1, hello(int(Identity(0, 1))))
    turned(peer, lambda: peer.returned == [0])
    assert peer.message_bytes == 4 * 64


def test_the_dead_process_is_heard_in_the_moment_in_which_the_next_one_greets(
    place: Place,
) -> None:
    peer = place.peer(1, 3)
    before = place.greeted(1, 2)
    turned(peer, lambda: 2 in peer.workers)
    after = place.connect(1, b"")
    turned(peer, lambda: len(peer.open) == 2)
    (accepted,) = [one for one in peer.open if one.device is None]
    after.sendall(hello(int(Identity(2, 1))))
    assert select.select([accepted.socket], [], [], 10)[0]
    before.sendall(b"".join(push(1, 1.0)))
    assert select.select([peer.workers[2].socket], [], [], 10)[0]
    peer.turn(1.0)  # both are ready, the greeting first
    assert peer.returned == [2]
    assert list(peer.lost()) == [(2, 0)]
    assert frames(peer) == []


@pytest.mark.parametrize("incarnation", [0, 1])
def test_an_earlier_process_may_not_connect_any_more(place: Place, incarnation: int) -> None:
    peer = place.peer(0, 2)
    place.connect(0, hello(int(Identity(1, 1))))
    turned(peer, lambda: 1 in peer.workers)
    place.events(0)
    place.connect(0, hello(int(Identity(1, incarnation))))
    (text,) = turned(peer, lambda: place.events(0))
    assert "must not connect here, or is connected already" in text
    assert peer.connected == [1]


def test_a_peer_that_is_back_calls_those_that_are_there(place: Place) -> None:
    peers = place.connected_peers(4, evaluator=False, evaluated_peer=9)
    dead = peers[1]
    for connection in list(dead.workers.values()):
        connection.socket.close()
    dead.workers.clear()
    dead._listener.close()
    dead._selector.close()
    for other in (0, 2):
        peers[other].forget(1)
    back = place.peer(1, 4, incarnation=1, evaluated_peer=9)
    done: list[bool] = []

    def accept(number: int) -> None:
        turned(peers[number], lambda: peers[number].returned == [1] and done)

    def call() -> None:
        back.connect_again([0, 2])
        done.append(True)

    place.together(call, lambda: accept(0), lambda: accept(2))
    assert back.connected == [0, 2]
    assert back.message_bytes == 2 * 32
    assert [back.workers[other].incarnation for other in (0, 2)] == [0, 0]
    assert [peers[other].workers[1].incarnation for other in (0, 2)] == [1, 1]
    assert list(peers[2].lost()) == []


@pytest.mark.parametrize("crossing", [True, False])
@pytest.mark.parametrize("incarnations", [(1, 1), (1, 3), (2, 1)])
def test_two_peers_that_come_back_at_once_have_one_connection(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    incarnations: tuple[int, int],
    crossing: bool,
) -> None:
    if crossing:  # neither has read the other's greeting as it sends its own
        both = threading.Barrier(2)

        def at_the_same_moment(where: str, seconds: float) -> socket.socket:
            called = call(where, seconds)
            both.wait(10)
            return called

        monkeypatch.setattr("testbed.roles.peer.peer_connections.call", at_the_same_moment)
    changes: dict[str, Any] = {"clock": "wall", "evaluated_peer": 9}
    back = {
        number: place.peer(number, 3, incarnation=incarnation, **changes)
        for number, incarnation in zip((1, 2), incarnations, strict=True)
    }
    done: set[int] = set()

    def come_back(number: int, other: int) -> None:
        back[number].connect_again([other])
        done.add(number)
        turned(back[number], lambda: len(done) == 2)

    place.together(lambda: come_back(1, 2), lambda: come_back(2, 1))
    lower, higher = back[1].workers[2], back[2].workers[1]
    assert lower.socket.getsockname() == higher.socket.getpeername()
    assert (higher.incarnation, lower.incarnation) == incarnations
    back[1].send(2, push(1, 1.0))
    back[2].send(1, push(1, 2.0))
    for number, other, value in ((2, 1, 1.0), (1, 2, 2.0)):
        frame = back[number].next_from(other)
        assert frame is not None and np.frombuffer(frame.body, np.float32)[0] == value
    for number, peer in back.items():
        while len(peer.open) > 1:
            peer.turn(1.0)
        assert list(peer.lost()) == []
        assert place.events(number) == []


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_a_peer_that_cannot_be_reached_is_left_out_by_the_wall_clock_only(
    place: Place, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.roles.peer.peer_connections.CONNECTING_TIMEOUT", 0.2)
    back = place.peer(1, 3, incarnation=1, clock=clock)
    if clock == "virtual":
        with pytest.raises(OSError, match="refused"):
            back.connect_again([0])
    else:
        back.connect_again([0])
        assert back.connected == []
        assert "which is back, has not reached it" in place.events(1)[0]


def test_a_frozen_peer_that_is_called_takes_no_time_from_the_others_and_is_hung_up_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.roles.peer.peer_connections.CONNECTING_TIMEOUT", 0.2)
    changes: dict[str, Any] = {"clock": "wall", "evaluated_peer": 9}
    frozen, there = (place.peer(number, 3, **changes) for number in (0, 2))
    back = place.peer(1, 3, incarnation=1, **changes)
    place.together(
        lambda: back.connect_again([0, 2]),
        lambda: turned(there, lambda: there.returned == [1]),
    )
    assert back.connected == [2]
    (text,) = [one for one in place.events(1) if "has not reached it" in one]
    assert "does not answer" in text
    assert [one.device for one in back.open] == [2]
    # At its thaw it takes the one that is back for lost, and not for one that it is connected to.
    turned(frozen, lambda: not frozen.open and list(frozen.lost()) == [(1, 1)])
    assert frozen.connected == []

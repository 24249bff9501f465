"""The claims that prove a standstill to a server, and when a worker makes them."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from testbed.roles.orders import OrderChannel
from testbed.roles.standstill import ENOUGH, Standstill, Suspicion
from testbed.roles.transport.kernel_queues import is_idle

CLAIM = ["parameters"]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_claims_made_after_the_queues_were_seen_empty_are_a_standstill() -> None:
    suspicion = Suspicion()
    assert not suspicion.confirmed([], idle=True)
    assert not suspicion.confirmed(CLAIM, idle=True)
    assert not suspicion.confirmed([], idle=True)
    assert suspicion.confirmed(CLAIM, idle=True)


def test_claims_from_before_the_queues_were_seen_empty_do_not_count() -> None:
    """They may have been made while something was still under way."""
    first, busy = Suspicion(), Suspicion()
    assert not first.confirmed(CLAIM * 10, idle=True)  # the first look at the queues
    assert not busy.confirmed(CLAIM * 10, idle=False)
    assert not busy.confirmed(CLAIM * 10, idle=True)
    for suspicion in (first, busy):
        assert not suspicion.confirmed(CLAIM, idle=True)
        assert suspicion.confirmed(CLAIM, idle=True)


def test_bytes_that_move_between_claims_restart_the_count() -> None:
    suspicion = Suspicion()
    for _ in range(5):
        assert not suspicion.confirmed([], idle=True)
        assert not suspicion.confirmed(CLAIM, idle=True)
        assert not suspicion.confirmed(CLAIM, idle=False)
    assert not suspicion.confirmed(CLAIM, idle=True)
    assert suspicion.confirmed(CLAIM * ENOUGH, idle=True)


def test_without_claims_there_is_never_a_standstill() -> None:
    suspicion = Suspicion()
    assert not any(suspicion.confirmed([], idle=True) for _ in range(1000))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        yield ours, theirs


def test_a_worker_claims_only_if_nothing_of_it_or_for_it_is_under_way(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    clock, device = (
        OrderChannel(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    )
    standstill = Standstill(lambda: is_idle(ours), device)
    standstill.waits_for = "version 5"

    def claims() -> list[str]:
        standstill.claim()
        return [one["waits_for"] for one in clock.heard()]

    assert claims() == ["version 5"]
    theirs.sendall(b"unread")
    wait_until(lambda: not is_idle(ours))
    assert claims() == []
    ours.recv(100)
    assert claims() == ["version 5"]
    # More than the other side's kernel takes while nothing is read there.
    ours.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += ours.send(bytes(1 << 20))
    assert not is_idle(ours)
    assert claims() == []
    while sent:
        sent -= len(theirs.recv(1 << 22))
    wait_until(lambda: is_idle(ours))
    assert claims() == ["version 5"]
    clock.close()
    device.close()

"""Turns with real processes: exclusive, passed on, and not lost with a holder that dies or freezes."""

import contextlib
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from testbed.nodes import computing_turns as turns_module
from testbed.nodes import linux
from testbed.nodes.computing_turns import ComputingTurns, holds_turn


@pytest.fixture
def children() -> Iterator[Callable[[Callable[[], None]], int]]:
    made: list[int] = []

    def start(body: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                body()
            os._exit(0)
        made.append(pid)
        return pid

    yield start
    for pid in made:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.005)
    return False


def hold(turns: ComputingTurns, flag: mmap.mmap, at: int) -> Callable[[], None]:
    def body() -> None:
        with turns.take() as turn:
            flag[at] = 1 if turn is not None else 2
            time.sleep(60)

    return body


def test_a_turn_has_one_holder_at_a_time_and_every_process_gets_one(
    children: Callable[[Callable[[], None]], int],
) -> None:
    turns = ComputingTurns()
    inside, done = mmap.mmap(-1, 200), mmap.mmap(-1, 20)

    def body_of(number: int) -> Callable[[], None]:
        def body() -> None:
            for _ in range(30):
                with turns.take() as turn:
                    assert turn is not None
                    assert inside[turn] == 0
                    inside[turn] = 1
                    time.sleep(0.0005)
                    inside[turn] = 0
            done[number] = 1

        return body

    for number in range(20):
        children(body_of(number))
    assert wait_until(lambda: done[:] == bytes([1] * 20), 30)


def test_a_turn_outlives_its_killed_holder(
    children: Callable[[Callable[[], None]], int],
) -> None:
    turns, flag = ComputingTurns(most=1), mmap.mmap(-1, 2)
    first = children(hold(turns, flag, 0))
    assert wait_until(lambda: flag[0] == 1)
    children(hold(turns, flag, 1))
    time.sleep(0.1)
    assert flag[1] == 0
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    assert wait_until(lambda: flag[1] == 1, turns_module.LOOK_AROUND + 2)


def test_a_frozen_holder_stops_no_other_process_for_good(
    children: Callable[[Callable[[], None]], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "PATIENCE", 0.5)
    turns, flag = ComputingTurns(most=1), mmap.mmap(-1, 2)
    first = children(hold(turns, flag, 0))
    assert wait_until(lambda: flag[0] == 1)
    os.kill(first, signal.SIGSTOP)
    children(hold(turns, flag, 1))
    assert wait_until(lambda: flag[1] == 2, turns_module.LOOK_AROUND + 3)


def test_the_holder_of_a_turn_is_known_by_its_network(
    children: Callable[[Callable[[], None]], int],
) -> None:
    """Both have networks of their own: in the host's, any program may hold a lock."""
    turns, flag = ComputingTurns(), mmap.mmap(-1, 2)

    def holding() -> None:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
        with turns.take():
            flag[0] = 1
            wait_until(lambda: flag[0] == 2, 30)
        flag[0] = 3
        time.sleep(60)

    def idle() -> None:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
        flag[1] = 1
        time.sleep(60)

    holder, other = children(holding), children(idle)
    if not wait_until(lambda: flag[:2] == b"\1\1", 5):
        pytest.skip("this user may make no namespaces")
    with contextlib.ExitStack() as opened:
        networks = []
        for process in (holder, other):
            networks.append(os.open(f"/proc/{process}/ns/net", os.O_RDONLY))
            opened.callback(os.close, networks[-1])
        assert [holds_turn(network) for network in networks] == [True, False]
        flag[0] = 2
        assert wait_until(lambda: flag[0] == 3)
        assert [holds_turn(network) for network in networks] == [False, False]


def test_a_process_that_has_lost_patience_does_not_wait_again(
    monkeypatch: pytest.MonkeyPatch, children: Callable[[Callable[[], None]], int]
) -> None:
    monkeypatch.setattr(turns_module, "PATIENCE", 0.5)
    turns, flag = ComputingTurns(most=1), mmap.mmap(-1, 2)
    children(hold(turns, flag, 0))
    assert wait_until(lambda: flag[0] == 1)

    def body() -> None:
        with turns.take() as first:
            pass
        began = time.monotonic()
        again = []
        for _ in range(20):
            with turns.take() as turn:
                again.append(turn)
        quick = time.monotonic() - began < 0.5
        flag[1] = 1 if quick and {first, *again} == {None} else 2

    children(body)
    assert wait_until(lambda: flag[1] > 0, 30)
    assert flag[1] == 1


def test_a_long_queue_that_moves_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, children: Callable[[Callable[[], None]], int]
) -> None:
    """The last of twelve waits for longer than the patience, and every half second a turn ends."""
    monkeypatch.setattr(turns_module, "PATIENCE", 3.0)
    count = 12
    turns, flag = ComputingTurns(most=1), mmap.mmap(-1, count)

    def body(place: int) -> Callable[[], None]:
        def wait_for_one() -> None:
            with turns.take() as turn:
                time.sleep(0.5)
            flag[place] = 1 if turn == 0 else 2

        return wait_for_one

    for place in range(count):
        children(body(place))
    assert wait_until(lambda: all(flag[:]), 60)
    assert set(flag[:]) == {1}

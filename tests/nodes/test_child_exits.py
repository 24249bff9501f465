"""Noticing that children have ended: which ones, their statuses, and the cost to their siblings."""

import functools
import os
import signal
import traceback
from collections.abc import Callable
from contextlib import closing

from testbed.channel import readable
from testbed.nodes.child_exits import ChildExits


def apart(test: Callable[[], None]) -> Callable[[], None]:
    """Make a test run in a process of its own, as it must not wait for the children of this one."""

    @functools.wraps(test)
    def run() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                test()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0

    return run


def child(status: int = 0, wait_for: int | None = None) -> int:
    """Fork a child that ends with a status, as soon as ``wait_for`` can be read; return its id."""
    pid = os.fork()
    if pid == 0:
        if wait_for is not None:
            os.read(wait_for, 1)
        os._exit(status)
    return pid


def gather(exits: ChildExits, count: int) -> dict[int, int]:
    """Return the statuses of ``count`` children that end, by id."""
    found: dict[int, int] = {}
    while len(found) < count:
        assert readable(exits.fileno(), 20)
        found |= dict(exits.read())
    return found


@apart
def test_each_child_that_ends_is_reported_once_with_its_status() -> None:
    with closing(ChildExits()) as exits:
        expected = {child(status): status for status in (0, 1, 70)}
        reading, writing = os.pipe()
        killed, other = child(wait_for=reading), child(3, wait_for=reading)
        os.kill(killed, signal.SIGKILL)
        assert gather(exits, 4) == expected | {killed: -signal.SIGKILL}
        assert not readable(exits.fileno(), 0.2)
        assert not list(exits.read())
        os.write(writing, b"x")
        assert gather(exits, 1) == {other: 3}


@apart
def test_a_child_that_had_ended_before_is_reported() -> None:
    early = child(5)
    os.waitid(os.P_PID, early, os.WEXITED | os.WNOWAIT)
    with closing(ChildExits()) as exits:
        assert gather(exits, 1) == {early: 5}


@apart
def test_children_inherit_nothing_that_grows_with_their_number() -> None:
    with closing(ChildExits()) as exits:
        before = len(os.listdir("/proc/self/fd"))
        reading, writing = os.pipe()
        many = [child(wait_for=reading) for _ in range(50)]
        assert len(os.listdir("/proc/self/fd")) == before + 2
        os.write(writing, b"x" * 50)
        assert gather(exits, 50) == dict.fromkeys(many, 0)


@apart
def test_afterwards_the_process_is_as_it_was() -> None:
    before = os.listdir("/proc/self/fd")
    with closing(ChildExits()):
        pass
    assert os.listdir("/proc/self/fd") == before
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == -1

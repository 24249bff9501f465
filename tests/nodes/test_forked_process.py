"""Processes forked in place of interpreters: what they keep of their parent, and how they end."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from testbed.nodes.forked_process import ForkedCommand

TITLE = "testbed:tried"


def fail() -> None:
    raise ValueError("the reason")


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("body", "status", "told", "complaint"),
    [
        (lambda: print("said"), 0, b"said\n", b""),
        (lambda: sys.exit(3), 3, b"", b""),
        (lambda: sys.exit("a sentence"), 1, b"", b"a sentence\n"),
        (fail, 70, b"", b"ValueError: the reason\n"),
        (kill_itself, -signal.SIGKILL, b"", b""),
    ],
)
def test_it_ends_as_a_command_does(
    body: Callable[[], None], status: int, told: bytes, complaint: bytes
) -> None:
    command = ForkedCommand(TITLE, body)
    said, errors = command.finish(20.0)
    assert said == told and errors.endswith(complaint) and bool(errors) == bool(complaint)
    assert command.status == command.poll() == status


def test_it_keeps_what_it_is_told_to_and_a_session_of_its_own() -> None:
    def describe() -> None:
        listed = map(int, os.listdir("/proc/self/fd"))
        there = sorted(number for number in listed if Path(f"/proc/self/fd/{number}").exists())
        print(there, os.getsid(0) == os.getpid())

    with Path(os.devnull).open() as kept, Path(os.devnull).open():
        command = ForkedCommand(TITLE, describe, [kept.fileno()])
        told, _ = command.finish(20.0)
        assert told.decode() == f"{[0, 1, 2, kept.fileno()]} True\n"


@pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="this kernel has no groups of sessions"
)
def test_its_session_is_as_nice_as_its_parent() -> None:
    def fork_another() -> None:
        os.nice(7)
        command = ForkedCommand(TITLE, lambda: print(Path("/proc/self/autogroup").read_text()))
        # Its session has a fifth of the weight of others, which may have the processors for long.
        for text in command.finish(100.0):
            print(text.decode(), end="")
        print(command.status)

    told, _ = ForkedCommand(TITLE, fork_another).finish(120.0)
    nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)  # the tests may run under nice
    assert told.split()[1:] == [b"nice", str(nice).encode(), b"0"]


def test_it_has_its_title_reads_its_input_and_ends_with_it() -> None:
    command = ForkedCommand(TITLE, lambda: print(sys.stdin.read().upper()))
    process = psutil.Process(command.process)
    deadline = time.monotonic() + 20
    while process.cmdline()[:1] != [TITLE] or process.name() != "tried":
        assert time.monotonic() < deadline, process.cmdline()
        time.sleep(0.01)
    command.write(b"text")
    assert command.poll() is None
    assert command.finish(20.0) == (b"TEXT\n", b"")


def test_one_that_does_not_end_is_killed() -> None:
    command = ForkedCommand(TITLE, lambda: time.sleep(600))
    began = time.monotonic()
    command.finish(0.3)
    assert command.status == -signal.SIGKILL and time.monotonic() - began < 10


def test_what_waits_in_the_parent_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "written"
    with path.open("w") as stream:
        stream.write("once")
        before, sys.stdout = sys.stdout, stream
        try:
            assert ForkedCommand(TITLE, lambda: print("child")).finish(20.0)[0] == b"child\n"
        finally:
            sys.stdout = before
    assert path.read_text() == "once"


def test_streams_that_are_closed_are_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that was started without standard output has None in its place."""
    monkeypatch.setattr(sys, "stdout", None)
    assert ForkedCommand(TITLE, lambda: print("said")).finish(20.0) == (b"said\n", b"")

"""The streams of a command between two hosts: bytes, ends, and readers that are slow or gone."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from testbed.orchestrator.hosts.carried_streams import WINDOW, CarriedStreams
from testbed.orchestrator.hosts.relay import FrameKind
from testbed.orchestrator.hosts.secured_connection import ConnectionLostError, SecuredConnection
from tests.end_to_end.conftest import until
from tests.orchestrator.hosts.test_secured_connection import SECRET, proven


@dataclass
class Carried:
    """The outer ends of an input and an output, each of which crosses from one end to the other."""

    typed: int
    read: int
    written: int
    shown: int
    caller: CarriedStreams
    called: SecuredConnection
    problems: list[str]


@pytest.fixture
def carried() -> Iterator[Carried]:
    caller, called = proven(SECRET, SECRET)
    assert isinstance(caller, SecuredConnection)
    assert isinstance(called, SecuredConnection)
    pipes = [os.pipe() for _ in range(4)]
    (here_in, typed), (read, there_in), (there_out, written), (shown, here_out) = pipes
    ends = (
        CarriedStreams(caller, {0: here_in}, {1: here_out}),
        CarriedStreams(called, {1: there_out}, {0: there_in}),
    )
    problems = list[str]()

    def carry(end: CarriedStreams) -> None:
        try:
            while True:
                end.turn()
        except ConnectionLostError as error:
            problems.append(str(error))
        end.close()

    threads = [threading.Thread(target=carry, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    yield Carried(typed, read, written, shown, ends[0], called, problems)
    for one in (caller.socket, called.socket):
        with contextlib.suppress(OSError):
            one.shutdown(2)
    for descriptor in (typed, read, written, shown):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    caller.socket.close()
    called.socket.close()


def filled(descriptor: int, seconds: float = 1.0) -> int:
    """Write as much as there is room for; return how much that was."""
    os.set_blocking(descriptor, False)
    count, rested = 0, 0
    while rested < 10:
        try:
            count += os.write(descriptor, bytes(4096))
            rested = 0
        except BlockingIOError:
            threading.Event().wait(seconds / 10)
            rested += 1
    return count


def test_what_nobody_reads_waits_at_its_source_and_holds_nothing_else_up(carried: Carried) -> None:
    pipe = 1 << 16
    assert filled(carried.typed) <= WINDOW + 3 * pipe
    os.write(carried.written, b"a word in the other direction")
    assert os.read(carried.shown, 100) == b"a word in the other direction"
    held = len(os.read(carried.read, pipe))
    while held < WINDOW + pipe:
        held += len(os.read(carried.read, pipe))
    os.close(carried.typed)
    while part := os.read(carried.read, pipe):
        held += len(part)
    assert WINDOW + pipe <= held <= WINDOW + 3 * pipe
    assert carried.problems == []


def test_a_reader_that_has_ended_ends_the_writer(carried: Carried) -> None:
    os.close(carried.shown)

    def is_refused() -> bool:
        try:
            os.write(carried.written, b"more")
        except BrokenPipeError:
            return True
        return False

    until(is_refused, "the end of the writer", 10)


def test_an_end_that_sends_more_than_it_may_is_not_listened_to(carried: Carried) -> None:
    for _ in range(1 + (WINDOW + (1 << 17)) // 4096):  # more than the window and the pipe
        carried.called.queue(FrameKind.STREAM, 1, bytes(4096))
    os.write(carried.written, b"x")  # which wakes it up
    until(lambda: "it has sent more than it may" in carried.problems, "the end", 10)

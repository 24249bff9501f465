"""The board: one process reads what others write, each on its own line."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from testbed.channel import Channel
from testbed.errors import RunError
from testbed.telemetry.state_board import (
    BINS,
    Board,
    DeviceLine,
    DeviceState,
    ServerLine,
    further_lines,
    hub_line,
    lines_of,
)


def in_child(body: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_board_shows_what_forked_processes_write() -> None:
    board = Board.create(lines_of(3))
    assert board.states().tolist() == [DeviceState.STARTING] * 5

    def one(number: int) -> None:
        line = board.device(number)
        sum(i * i for i in range(200_000))
        line.training()
        if number:
            line.waiting()
        if number == 2:
            line.done()

    for number in range(3):
        in_child(partial(one, number))
    in_child(lambda: board.device(hub_line(3)).look())
    expected = [
        DeviceState.TRAINING,
        DeviceState.WAITING,
        DeviceState.DONE,
        DeviceState.STARTING,
        DeviceState.STARTING,
    ]
    assert board.states().tolist() == expected
    seconds = board.processor_seconds()
    assert seconds[0] == 0  # its processor time is not due to be written yet
    assert np.all(seconds[[1, 2, 4]] > 0) and seconds[3] == 0
    board.close()


def test_the_processor_time_of_a_device_that_came_back_is_that_of_all_its_processes() -> None:
    board = Board.create(1)

    def used() -> float:
        return float(board.processor_seconds()[0])

    def compute(rounds: int) -> None:
        line = board.device(0)
        line.look()
        sum(i * i for i in range(rounds))
        line.done()

    in_child(partial(compute, 2_000_000))
    assert (first := used()) > 0.02
    in_child(partial(compute, 2_000))  # which was killed, and is back
    assert first < used() < 2 * first
    board.close()


def test_the_servers_line_adds_up_times_and_bytes() -> None:
    board = Board.create(2)
    line = board.server()
    line.queued(1_500)
    line.queued(-7)  # the host's clock was set back
    line.applied(20)
    line.sent(100, 80)
    line.sent(24)
    assert board.of_server() == {
        "queue": 1_500,
        "queued": 2,
        "apply": 20,
        "applied": 1,
        "sent_message_bytes": 124,
        "sent_payload_bytes": 80,
    }
    assert board.states().tolist() == [0, 0]
    board.close()


def test_a_process_that_is_not_forked_is_given_the_descriptor() -> None:
    board = Board.create(lines_of(4))
    ours, theirs = Channel.pair()
    code = (
        "import sys\n"
        "from testbed.channel import Channel\n"
        "from testbed.telemetry.state_board import Board\n"
        "message = Channel.from_descriptor(int(sys.argv[1])).receive()\n"
        "board = Board.open(message.descriptors[0])\n"
        "assert board.devices == 6 and board.shared\n"
        "board.device(message.fields['device']).waiting()\n"
    )
    ours.send({"device": 3}, descriptors=[board.descriptor or 0])
    subprocess.run(
        [sys.executable, "-c", code, str(theirs.fileno())], pass_fds=[theirs.fileno()], check=True
    )
    assert board.states().tolist() == [0, 0, 0, DeviceState.WAITING, 0, 0]
    board.close()


def test_a_private_board_and_unread_lines_can_be_written() -> None:
    board = Board.private(2)
    assert not board.shared
    board.device(1).training()
    assert board.states().tolist() == [0, DeviceState.TRAINING]
    DeviceLine.unread().done()
    ServerLine.unread().sent(1, 1)
    with pytest.raises(IndexError):
        board.device(2)


@pytest.mark.parametrize("content", [b"", bytes(64), b"testbed1" + bytes(100)])
def test_a_file_that_is_no_board_is_refused(content: bytes) -> None:
    descriptor = os.memfd_create("something")
    os.write(descriptor, content)
    with pytest.raises(RunError, match="is no board of this version"):
        Board.open(descriptor)
    os.close(descriptor)


def test_wake_ups_are_counted_by_how_late_they_are() -> None:
    board = Board.create(lines_of(3, servers=3), stamped=False)
    for further in (None, *further_lines(3, 3)):
        board.server(further).sent(4_000, 3_000)  # bytes are no wake-ups

    def one(number: int) -> None:
        line = board.device(number)
        for late in (-0.001, 0.000_009, 0.000_01, 0.000_039, 0.5, 100.0):
            line.woke(0.25, late)

    in_child(partial(one, 2))
    (found,) = board.wake_ups(3)
    assert sum(found.counts) == 6
    places = {at: count for at, count in enumerate(found.counts) if count}
    assert places == {0: 2, 1: 1, 2: 1, 16: 1, BINS - 1: 1}
    assert (found.asked, found.worst) == (1.5, 100.0)
    board.close()


@pytest.mark.parametrize("stamped", [True, False])
def test_whoever_maps_a_board_learns_if_messages_are_to_be_stamped(stamped: bool) -> None:
    board = Board.create(lines_of(3), stamped=stamped)
    assert board.descriptor is not None
    assert Board.open(board.descriptor).stamped is stamped
    assert not Board.private(lines_of(3)).stamped
    board.close()

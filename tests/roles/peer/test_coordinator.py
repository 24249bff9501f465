"""The end of a run of peers, by its coordinator, whose peers are threads of the test."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from testbed.channel import Channel
from testbed.messages.reports import REPORTS, ServerFinished
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.pace import Paces
from testbed.roles.peer.coordinator import PARTING_TIMEOUT, Coordinator
from testbed.roles.peer.peer_reports import Met, Parted
from testbed.telemetry.state_board import Board, hub_line, lines_of
from testbed.training.exchange import Step
from testbed.training.times import Times
from tests.settings import SIMPLE, with_changes

SETTINGS = with_changes(SIMPLE, workers=2, updates=2, peer_addresses=("10.0.0.1", "10.0.0.2"))
STEP = Step(0, 0, 1.0, [])


def told_to_stop(channel: OrderChannel) -> None:
    """Be a peer until the run is over: connect, make a step, and wait for STOP."""
    channel.report(Met(0, [], 0))
    while (order := channel.take()) is None or order.what is not OrderKind.STOP:
        if order is not None and order.what is OrderKind.BEGIN:
            channel.report(STEP)


@pytest.mark.parametrize("told_first", [False, True])
def test_a_peer_that_was_killed_after_training_is_not_waited_for(told_first: bool) -> None:
    """It may have said goodbye to the others, to which its end is no loss then."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    ours, theirs = zip(*([OrderChannel(end) for end in pair] for pair in pairs), strict=True)
    told, report = Channel.pair()
    paces = Paces.make(2)
    coordinator = Coordinator(
        SETTINGS,
        Times.of(SETTINGS),
        list(ours),
        report,
        neighbours=[[1], [0]],
        tells=False,
        line=Board.private(lines_of(2)).device(hub_line(2)),
        paces=paces,
    )

    def left(number: int) -> None:
        told_to_stop(theirs[number])
        if number == 0 or told_first:
            theirs[number].report(Parted(5, 7, ""))
        if number == 1:
            time.sleep(0.1)
            Paces(paces.descriptor, 2).end(1)  # as the orchestrator does

    with ThreadPoolExecutor() as threads:
        began = time.monotonic()
        ends = [threads.submit(left, number) for number in range(2)]
        coordinator.run()
        assert time.monotonic() - began < PARTING_TIMEOUT / 4
        for end in ends:
            end.result()
    report.close()
    found = []
    while (received := told.receive()) is not None:
        found.append(REPORTS.decode(received))
    finished = found[-1]
    assert isinstance(finished, ServerFinished)
    assert set(finished.peers) == {"peer-0", "peer-1"}
    heard = [one for one in finished.peers.values() if one["parameters_sha256"] is not None]
    assert len(heard) == 1 + told_first
    assert finished.payload_bytes == 5 * len(heard)

"""Messages that take a server time: the times of events, computed by hand."""

from testbed.experiment.sections.timing import CostsSpec
from testbed.wire.frames import HEADER
from tests.clock.test_star import Case, Played

COSTS = CostsSpec.model_construct(message=1 / 8, byte=1 / 8192, apply=1 / 4)
PARAMETERS = 1 / 8 + 1024 / 8192
"""Seconds that a server handles parameters; a push has a question beside it, and is applied."""
PUSH = 2 / 8 + 1024 / 8192 + 1 / 4


def test_a_server_handles_one_message_after_the_other_and_answers_before_it_reads_on() -> None:
    case = Case(
        protocol="pull",
        wait_for=None,
        updates=3,
        durations=[[4], [4]],
        sizes=[[1024 - HEADER.size]] * 2,
        answers=[[1024]] * 2,
        uplink=None,
        downlink=None,
    )
    played = Played(case, costs=COSTS)
    clock = played.clock
    clock.run()
    # The first parameters leave one after the other. Worker 1's push comes at 1.5, while worker 0's of
    # 1.25 is handled, and waits for that and for the answer to it.
    assert (PARAMETERS, PUSH) == (0.25, 0.625)
    assert played.rows == [
        (1.875, 0, 0, 0, True),
        (2.75, 1, 0, 1, True),
        (3.75, 0, 1, 1, True),
    ]
    assert played.computations == [(0.25, 0, 0), (0.5, 1, 0), (2.125, 0, 1), (3.0, 1, 2)]
    assert clock.processors is not None
    assert clock.processors.used(0, clock.now) == 4 * PARAMETERS + 3 * PUSH
    assert clock.processors.wait(0) == 0.625 / 3


def test_workers_that_are_sent_every_version_get_it_one_after_the_other() -> None:
    case = Case(
        protocol="push-and-interrupt",
        wait_for=1,
        updates=3,
        durations=[[1], [400]],
        sizes=[[1024]] * 2,
        answers=[[1024]] * 2,
        uplink=None,
        downlink=None,
    )
    played = Played(case, costs=CostsSpec.model_construct(message=0, byte=1 / 1024, apply=0))
    played.clock.run()
    # 1 s for each message. Worker 0 computes until 1.25; the server is sending to worker 1 until 2, has
    # taken worker 0's push in at 3, and sends the new version to both in turn.
    assert [row[0] for row in played.rows] == [3, 6, 9]
    assert played.computations == [(1, 0, 0), (2, 1, 0), (4, 0, 1), (5, 1, 1), (7, 0, 2), (8, 1, 2)]

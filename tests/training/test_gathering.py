"""What a worker waits for, of several servers."""

from collections.abc import Sequence

import pytest

from testbed.training.gathering import Gathering
from testbed.training.worker_protocols import (
    PullProtocol,
    PushAndInterrupt,
    PushAndWait,
    WorkerProtocol,
)


def arrive(gathering: Gathering, server: int, version: int) -> list[int] | None:
    gathering.sent(server)
    began = gathering.arrived(server, version)
    return None if began is None else list(began)


def test_a_worker_that_asks_waits_for_every_answer() -> None:
    gathering = Gathering(PullProtocol(), 3)
    assert arrive(gathering, 1, 4) is None
    assert arrive(gathering, 0, 5) is None
    assert arrive(gathering, 2, 4) == [5, 4, 4]
    assert gathering.finished() == (False, None)
    assert arrive(gathering, 0, 6) is None
    assert arrive(gathering, 2, 6) is None
    assert arrive(gathering, 1, 6) == [6, 6, 6]


def test_a_server_that_stops_is_not_waited_for() -> None:
    gathering = Gathering(PullProtocol(), 2)
    assert arrive(gathering, 0, 0) is None
    assert arrive(gathering, 1, 0) == [0, 0]
    assert arrive(gathering, 1, 1) is None
    assert gathering.stopped(0) == [0, 1]
    assert arrive(gathering, 1, 2) == [0, 2]
    assert gathering.stopped(1) is None


def test_what_is_on_its_way_from_a_server_that_stops_is_waited_for() -> None:
    gathering = Gathering(PullProtocol(), 2)
    gathering.sent(0)
    assert arrive(gathering, 1, 3) is None
    assert gathering.stopped(0) is None
    assert gathering.arrived(0, 7) == [7, 3]


def test_nothing_begins_without_every_part() -> None:
    gathering = Gathering(PullProtocol(), 2)
    assert gathering.stopped(0) is None
    assert arrive(gathering, 1, 3) is None


def test_a_worker_that_is_sent_every_version_begins_when_every_server_has_a_newer_one() -> None:
    gathering = Gathering(PushAndWait(), 2)
    assert arrive(gathering, 0, 0) is None
    assert arrive(gathering, 1, 0) == [0, 0]
    assert arrive(gathering, 0, 1) is None
    assert arrive(gathering, 0, 2) is None
    assert arrive(gathering, 1, 1) is None  # it computes; version 1 is complete now
    assert gathering.finished() == (True, [1, 1])
    assert gathering.finished() == (False, None)
    assert arrive(gathering, 1, 2) == [2, 2]


def test_a_complete_newer_version_interrupts() -> None:
    gathering = Gathering(PushAndInterrupt(), 2)
    arrive(gathering, 0, 0)
    assert arrive(gathering, 1, 0) == [0, 0]
    assert arrive(gathering, 0, 1) is None
    assert arrive(gathering, 1, 1) == [1, 1]
    assert gathering.stopped(0) is None
    assert arrive(gathering, 1, 2) == [1, 2]


def test_a_part_of_a_version_that_its_server_skipped_is_the_newest_before_it() -> None:
    gathering = Gathering(PushAndWait(), 2)
    arrive(gathering, 0, 0)
    arrive(gathering, 1, 0)
    arrive(gathering, 0, 2)
    arrive(gathering, 1, 1)
    assert gathering.finished() == (True, [0, 1])


def test_a_part_of_a_version_before_the_workers_first_one_is_the_oldest() -> None:
    gathering = Gathering(PushAndWait(), 2)
    assert arrive(gathering, 0, 5) is None
    assert arrive(gathering, 1, 4) == [5, 4]


def test_what_one_server_sends_again_is_computed_again() -> None:
    gathering = Gathering(PushAndWait(), 2)
    arrive(gathering, 0, 1)
    assert arrive(gathering, 1, 1) == [1, 1]
    assert gathering.finished() == (False, None)
    assert arrive(gathering, 1, 1) == [1, 1]


@pytest.mark.parametrize("protocol", [PushAndWait, PushAndInterrupt])
def test_an_earlier_version_of_a_server_that_was_killed_counts_as_newer(
    protocol: type[WorkerProtocol],
) -> None:
    gathering = Gathering(protocol(), 2)
    arrive(gathering, 0, 50)
    assert arrive(gathering, 1, 50) == [50, 50]
    gathering.restored(1)
    begun: Sequence[int] | None = arrive(gathering, 1, 30)
    if protocol is PushAndWait:  # it finishes what it computes, and knows that it is too late
        assert begun is None
        late, begun = gathering.finished()
        assert late
    assert begun == [50, 30]
    assert gathering.finished() == (False, None)
    assert arrive(gathering, 1, 31) == [50, 31]


def test_a_worker_that_finishes_before_a_restored_server_has_sent_again_waits_for_it() -> None:
    gathering = Gathering(PushAndWait(), 2)
    arrive(gathering, 0, 50)
    assert arrive(gathering, 1, 50) == [50, 50]
    arrive(gathering, 0, 51)
    arrive(gathering, 1, 51)
    gathering.restored(1)
    assert gathering.finished() == (True, None)
    assert arrive(gathering, 1, 30) == [50, 30]

"""What a worker waits for, of several servers."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.algorithms.asgd import Asgd
from testbed.algorithms.server_half import Protocol
from testbed.errors import RunError
from testbed.training import computation
from testbed.training.gathering import Gathering
from tests.training.test_parameter_service import LAYOUT, SIZE
from tests.training.test_parameter_service import settings as of_service

Event: TypeAlias = Literal["arrives", "skips", "ends"]
events = st.lists(st.sampled_from(get_args(Event)), max_size=30)


def arrive(gathering: Gathering, server: int, version: int) -> list[int] | None:
    gathering.sent(server)
    began = gathering.arrived(server, version)
    return None if began is None else list(began)


def test_a_worker_that_asks_waits_for_every_answer() -> None:
    gathering = Gathering("pull", 3)
    assert arrive(gathering, 1, 4) is None
    assert arrive(gathering, 0, 5) is None
    assert arrive(gathering, 2, 4) == [5, 4, 4]
    assert gathering.finished() == (False, None)
    assert arrive(gathering, 0, 6) is None
    assert arrive(gathering, 2, 6) is None
    assert arrive(gathering, 1, 6) == [6, 6, 6]


def test_a_server_that_stops_is_not_waited_for() -> None:
    gathering = Gathering("pull", 2)
    assert arrive(gathering, 0, 0) is None
    assert arrive(gathering, 1, 0) == [0, 0]
    assert arrive(gathering, 1, 1) is None
    assert gathering.stopped(0) == [0, 1]
    assert arrive(gathering, 1, 2) == [0, 2]
    assert gathering.stopped(1) is None


def test_what_is_on_its_way_from_a_server_that_stops_is_waited_for() -> None:
    gathering = Gathering("pull", 2)
    gathering.sent(0)
    assert arrive(gathering, 1, 3) is None
    assert gathering.stopped(0) is None
    assert gathering.arrived(0, 7) == [7, 3]


def test_nothing_begins_without_every_part() -> None:
    gathering = Gathering("pull", 2)
    assert gathering.stopped(0) is None
    assert arrive(gathering, 1, 3) is None


def test_a_worker_that_is_sent_every_version_begins_when_every_server_has_a_newer_one() -> None:
    gathering = Gathering("push-and-wait", 2)
    assert arrive(gathering, 0, 0) is None
    assert arrive(gathering, 1, 0) == [0, 0]
    assert arrive(gathering, 0, 1) is None
    assert arrive(gathering, 0, 2) is None
    assert arrive(gathering, 1, 1) is None  # it computes; version 1 is complete now
    assert gathering.finished() == (True, [1, 1])
    assert gathering.finished() == (False, None)
    assert arrive(gathering, 1, 2) == [2, 2]


def test_a_complete_newer_version_interrupts() -> None:
    gathering = Gathering("push-and-interrupt", 2)
    arrive(gathering, 0, 0)
    assert arrive(gathering, 1, 0) == [0, 0]
    assert arrive(gathering, 0, 1) is None
    assert arrive(gathering, 1, 1) == [1, 1]
    assert gathering.stopped(0) is None
    assert arrive(gathering, 1, 2) == [1, 2]


def test_a_part_of_a_version_that_its_server_skipped_is_the_newest_before_it() -> None:
    gathering = Gathering("push-and-wait", 2)
    arrive(gathering, 0, 0)
    arrive(gathering, 1, 0)
    arrive(gathering, 0, 2)
    arrive(gathering, 1, 1)
    assert gathering.finished() == (True, [0, 1])


def test_a_part_of_a_version_before_the_workers_first_one_is_the_oldest() -> None:
    gathering = Gathering("push-and-wait", 2)
    assert arrive(gathering, 0, 5) is None
    assert arrive(gathering, 1, 4) == [5, 4]


def test_what_one_server_sends_again_is_computed_again() -> None:
    gathering = Gathering("push-and-wait", 2)
    arrive(gathering, 0, 1)
    assert arrive(gathering, 1, 1) == [1, 1]
    assert gathering.finished() == (False, None)
    assert arrive(gathering, 1, 1) == [1, 1]


@pytest.mark.parametrize("protocol", ["push-and-wait", "push-and-interrupt"])
def test_an_earlier_version_of_a_server_that_was_killed_counts_as_newer(
    protocol: Protocol,
) -> None:
    gathering = Gathering(protocol, 2)
    arrive(gathering, 0, 50)
    assert arrive(gathering, 1, 50) == [50, 50]
    gathering.restored(1)
    begun: Sequence[int] | None = arrive(gathering, 1, 30)
    if protocol == "push-and-wait":  # it finishes what it computes, and knows that it is too late
        assert begun is None
        late, begun = gathering.finished()
        assert late
    assert begun == [50, 30]
    assert gathering.finished() == (False, None)
    assert arrive(gathering, 1, 31) == [50, 31]


def test_a_worker_that_finishes_before_a_restored_server_has_sent_again_waits_for_it() -> None:
    gathering = Gathering("push-and-wait", 2)
    arrive(gathering, 0, 50)
    assert arrive(gathering, 1, 50) == [50, 50]
    arrive(gathering, 0, 51)
    arrive(gathering, 1, 51)
    gathering.restored(1)
    assert gathering.finished() == (True, None)
    assert arrive(gathering, 1, 30) == [50, 30]


# -- the three protocols against Xu et al.'s description, followed event by event


class Followed:
    """A worker of one server at which versions arrive one after the other; some may be skipped."""

    def __init__(self, protocol: Protocol) -> None:
        self.gathering = Gathering(protocol, 1)
        self.version = -1
        self.computing: int | None = None

    def arrives(self) -> int | None:
        self.version += 1
        begun = self.gathering.arrived(0, self.version)
        if begun is None:
            return None
        (self.computing,) = begun
        return self.computing

    def ends(self) -> tuple[bool, int | None]:
        late, following = self.gathering.finished()
        self.computing = following[0] if following else None
        return late, self.computing


@settings(deadline=None)  # the host may be busy
@given(st.lists(st.integers(1, 5), max_size=20))
def test_an_asking_worker_computes_at_what_it_gets_and_waits(skips: list[int]) -> None:
    worker = Followed("pull")
    for skip in skips:
        worker.version += skip - 1
        assert worker.arrives() == worker.version
        assert worker.ends() == (False, None)


@settings(deadline=None)  # the host may be busy
@given(events)
def test_push_and_wait_finishes_then_takes_the_newest_version(happens: list[Event]) -> None:
    worker = Followed("push-and-wait")
    newer = False  # True if a newer version came while it computed
    for event in happens:
        if event == "skips":
            worker.version += 1
        elif event == "arrives":
            idle = worker.computing is None
            assert worker.arrives() == (worker.version if idle else None)
            newer = not idle
            latest = worker.version
        elif worker.computing is not None:
            expected = (True, latest) if newer else (False, None)
            assert worker.ends() == expected
            newer = False


@settings(deadline=None)  # the host may be busy
@given(events)
def test_push_and_interrupt_drops_its_computation_for_a_new_version(happens: list[Event]) -> None:
    worker = Followed("push-and-interrupt")
    for event in happens:
        if event == "skips":
            worker.version += 1
        elif event == "arrives":
            assert worker.arrives() == worker.version
        elif worker.computing is not None:
            # It always computes at the newest version that it has.
            assert worker.ends() == (False, None)


@pytest.mark.parametrize("name", get_args(Protocol))
def test_version_0_is_like_any_other(name: Protocol) -> None:
    worker = Followed(name)
    assert worker.arrives() == 0
    assert worker.ends() == (False, None)
    assert worker.arrives() == 1


def test_a_half_that_speaks_another_protocol_than_its_algorithm_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = of_service()
    monkeypatch.setattr(Asgd, "protocol", staticmethod(lambda options: "push-and-wait"))
    said = r"StalenessDivided\.protocol is 'pull', and Asgd\.protocol\(\) returns 'push-and-wait'"
    with pytest.raises(RunError, match=said):
        computation.server_half(run, LAYOUT, np.zeros(SIZE, np.float32))

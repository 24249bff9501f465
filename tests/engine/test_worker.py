"""The worker's table: events in, actions out."""

from collections.abc import Iterable

import pytest

from testbed.algorithms.worker_half import Leg
from testbed.engine.events import (
    Action,
    Coming,
    Compute,
    Computed,
    Event,
    Job,
    Lost,
    Opened,
    Over,
    Pull,
    Push,
    Received,
    Report,
    Send,
    Stopped,
)
from testbed.engine.overlapping_worker import OverlappingWorker
from testbed.engine.worker import State, Worker

LEGS = (Leg(2, pushes=True, asks=False), Leg(1, pushes=False, asks=True))


def after(worker: Worker, *events: Event) -> list[Action]:
    """Return the actions that follow events, one after the other."""
    return [action for event in events for action in worker.handle(event)]


def to(conversations: Iterable[int], *messages: Pull | Push | Report) -> list[Action]:
    return [Send(one, message) for one in conversations for message in messages]


@pytest.mark.parametrize("servers", [1, 3])
def test_a_worker_that_asks(servers: int) -> None:
    worker, all_of = Worker("pull", servers), range(servers)
    assert after(worker, *map(Opened, all_of)) == to(all_of, Pull())
    for version in (0, 4):
        *first, last = (Received(one, version) for one in all_of)
        assert after(worker, *first) == []
        (begun,) = after(worker, last)
        assert isinstance(begun, Compute)
        assert begun.job.bases == (version,) * servers
        assert after(worker, Computed(begun.job)) == to(all_of, Push(begun.job), Pull())
        assert worker.state is State.ASKED
    *others, end = map(Stopped, all_of)
    assert after(worker, *others) == []
    assert after(worker, end) == [Over()]


def test_a_server_that_stops_is_sent_to_and_not_waited_for() -> None:
    worker = Worker("pull", 2)
    after(worker, Opened(0), Opened(1), Received(0, 0))
    (begun,) = after(worker, Received(1, 0))
    assert isinstance(begun, Compute)
    after(worker, Computed(begun.job), Stopped(1))
    assert after(worker, Received(0, 1)) == [Compute(Job(2, (1, 0)))]


def test_a_worker_whose_parameters_are_lost_asks_again_and_its_leg_begins_anew() -> None:
    worker = Worker("pull", 1, LEGS)
    first = Job(1, (5,))
    assert after(worker, Opened(0), Received(0, 5), Lost(first)) == [
        Send(0, Pull()),
        Compute(first),
    ]
    assert after(worker, Opened(0, 1), Received(0, 3)) == [Send(0, Pull()), Compute(Job(2, (3,)))]
    assert after(worker, Computed(first)) == []


def test_a_leg_that_does_not_ask_goes_on_at_the_same_bases() -> None:
    worker = Worker("pull", 1, LEGS)
    first, second = Job(1, (0,)), Job(2, (0,), 1)
    assert after(worker, Opened(0), Received(0, 0)) == [Send(0, Pull()), Compute(first)]
    assert after(worker, Computed(first)) == [Send(0, Push(first)), Compute(second)]
    assert after(worker, Computed(second)) == [Send(0, Pull())]
    assert after(worker, Received(0, 9)) == [Compute(Job(3, (9,)))]


def test_push_and_wait_computes_at_the_newest_and_only_reports_what_is_late() -> None:
    worker = Worker("push-and-wait", 1)
    first, second = Job(1, (0,)), Job(2, (2,))
    assert after(worker, Opened(0), Received(0, 0)) == [Compute(first)]
    assert after(worker, Received(0, 1), Received(0, 2)) == []
    assert after(worker, Computed(first)) == [Send(0, Report(0)), Compute(second)]
    assert after(worker, Computed(second)) == [Send(0, Push(second))]
    assert worker.state is State.LISTENING


def test_push_and_interrupt_drops_what_it_computes() -> None:
    worker = Worker("push-and-interrupt", 1)
    first, second = Job(1, (0,)), Job(2, (1,))
    assert after(worker, Opened(0), Received(0, 0)) == [Compute(first)]
    assert after(worker, Received(0, 1)) == [Compute(second)]
    assert after(worker, Computed(first)) == []
    assert after(worker, Computed(second)) == [Send(0, Push(second))]


@pytest.mark.parametrize("when", ["before", "while computing"])
def test_a_server_that_is_back_is_asked_and_gets_nothing_of_before(when: str) -> None:
    worker = Worker("pull", 2)
    after(worker, Opened(0), Opened(1), Received(0, 5))
    if when == "before":
        assert after(worker, Opened(0, 1)) == [Send(0, Pull())]
        assert after(worker, Received(1, 5)) == []
        assert after(worker, Received(0, 3)) == [Compute(Job(1, (3, 5)))]
        return
    (begun,) = after(worker, Received(1, 5))
    assert isinstance(begun, Compute)
    assert after(worker, Opened(0, 1), Received(0, 3)) == [Send(0, Pull())]
    assert after(worker, Computed(begun.job)) == to([1], Push(begun.job), Pull())
    assert after(worker, Received(1, 6)) == [Compute(Job(2, (3, 6)))]


def test_a_worker_that_asks_finishes_what_it_computes_before_it_begins_anew() -> None:
    worker = Worker("pull", 1)
    first = Job(1, (7,))
    assert after(worker, Opened(0), Received(0, 7)) == [Send(0, Pull()), Compute(first)]
    assert after(worker, Opened(0, 1), Received(0, 3)) == [Send(0, Pull())]
    # What came of the server before it was killed once more is nothing now.
    assert after(worker, Opened(0, 2), Received(0, 1)) == [Send(0, Pull())]
    assert after(worker, Computed(first)) == [Compute(Job(2, (1,)))]


def test_a_server_that_is_back_before_the_last_one_is_there_is_asked_once() -> None:
    worker = Worker("pull", 2)
    assert after(worker, Opened(0), Opened(0, 1)) == []
    assert after(worker, Opened(1)) == to([0, 1], Pull())


def test_a_server_whose_version_was_pushed_for_gets_a_report() -> None:
    worker = Worker("push-and-wait", 2)
    after(worker, Opened(0), Opened(1), Received(0, 0), Received(1, 0))
    assert worker.job is not None
    after(worker, Computed(worker.job), Received(0, 1))
    assert worker.state is State.LISTENING
    # Server 1 sends version 0 again, as it had suspected the worker, which then pushes for it again.
    (begun,) = after(worker, Received(1, 0))
    assert isinstance(begun, Compute)
    assert after(worker, Computed(begun.job))[1] == Send(1, Push(begun.job))


@pytest.mark.parametrize("servers", [1, 3])
def test_an_overlapping_worker_computes_before_it_is_answered(servers: int) -> None:
    worker, all_of = OverlappingWorker(servers), range(servers)

    def job(number: int, version: int) -> Job:
        return Job(number, (version,) * servers)

    def answered(version: int) -> list[Action]:
        return after(worker, *(Received(one, version) for one in all_of))

    assert after(worker, *map(Opened, all_of)) == to(all_of, Pull())
    assert answered(0) == [Compute(job(1, 0))]
    # Nothing newer is there, so that it computes at version 0 once more.
    pushed = to(all_of, Push(job(1, 0)), Pull())
    assert after(worker, Computed(job(1, 0))) == [*pushed, Compute(job(2, 0))]
    # The answer is late, and what was computed waits for it.
    assert after(worker, Computed(job(2, 0))) == []
    pushed = to(all_of, Push(job(2, 0)), Pull())
    assert answered(5) == [*pushed, Compute(job(3, 5))]
    # The answer is early, and waits for the end of the computation.
    assert answered(7) == []
    pushed = to(all_of, Push(job(3, 5)), Pull())
    assert after(worker, Computed(job(3, 5))) == [*pushed, Compute(job(4, 7))]


def test_an_overlapping_worker_waits_for_what_a_server_that_has_stopped_has_sent() -> None:
    worker = OverlappingWorker(2)
    after(worker, Opened(0), Opened(1), Received(0, 0), Received(1, 0), Computed(Job(1, (0, 0))))
    assert after(worker, Computed(Job(2, (0, 0))), Received(0, 1), Coming(1), Stopped(1)) == []
    pushed = to([0, 1], Push(Job(2, (0, 0))), Pull())
    assert after(worker, Received(1, 2)) == [*pushed, Compute(Job(3, (1, 2)))]
    # It is sent to, and not waited for.
    assert after(worker, Received(0, 3), Computed(Job(3, (1, 2))))[-1] == Compute(Job(4, (3, 2)))


def test_what_an_overlapping_worker_holds_is_not_pushed_to_a_server_that_is_back() -> None:
    worker = OverlappingWorker(2)
    after(worker, Opened(0), Opened(1), Received(0, 5), Received(1, 5), Computed(Job(1, (5, 5))))
    assert after(worker, Computed(Job(2, (5, 5))), Received(1, 6)) == []
    assert after(worker, Opened(0, 1)) == [Send(0, Pull())]
    pushed = [Send(0, Pull()), *to([1], Push(Job(2, (5, 5))), Pull())]
    assert after(worker, Received(0, 3)) == [*pushed, Compute(Job(3, (3, 6)))]


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("version", [3, 5])
def test_what_a_restored_server_sends_while_a_worker_finishes_its_computation_is_computed_at(
    servers: int, version: int
) -> None:
    """Its version is no later than the one before, and nothing else comes of it."""
    worker, all_of = Worker("push-and-wait", servers), range(servers)
    after(worker, *map(Opened, all_of))
    (begun,) = after(worker, *(Received(one, 5) for one in all_of))
    assert isinstance(begun, Compute)
    back = (Opened(one, 1) for one in all_of)
    assert after(worker, *back, *(Received(one, version) for one in all_of)) == []
    (again,) = after(worker, Computed(begun.job))
    assert isinstance(again, Compute)
    assert again.job.bases == (version,) * servers
    assert after(worker, Computed(again.job)) == to(all_of, Push(again.job))

"""The server's table: events in, actions out."""

import math
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.engine.events import (
    At,
    Closed,
    End,
    GivenUp,
    Heard,
    Opened,
    Over,
    Pull,
    Restored,
    Send,
    Stop,
    Token,
    What,
)
from testbed.engine.server import (
    BACK_TIMEOUT,
    GATHERING_TIMEOUT,
    RETURN_TIMEOUT,
    Phase,
    Server,
)
from testbed.messages.reports import Suspected, Welcomed
from testbed.training.service_entries import (
    Connected,
    EvaluationPoint,
    Remark,
    TrainingBegan,
    UpdateEntry,
)
from tests.engine.serving import Serving, answers, entries, is_over, opened, pushed
from tests.training.test_parameter_service import SIZE, dense, service, synchronous


def test_training_begins_with_the_last_greeting_and_all_begin_together() -> None:
    one = Serving()
    assert entries(one.tell(*opened(1))) == [Connected(1)]
    assert one.role.phase is Phase.GATHERING
    said = one.tell(Opened(0, size=20))
    connected, evaluation, began = entries(said)
    assert (connected, began) == (Connected(2), TrainingBegan())
    assert isinstance(evaluation, EvaluationPoint) and evaluation.version == 0
    assert answers(said) == [(1, 0)]
    assert answers(one.tell(Heard(0, Pull(), 10))) == [(0, 0)]
    assert one.service.message_bytes == 2 * (20 + 10)


def test_those_that_have_asked_before_training_are_answered_by_number() -> None:
    one = Serving(callers=4)
    assert not answers(one.tell(*opened(3, 1, 2)))
    assert answers(one.tell(Opened(0))) == [(1, 0), (2, 0), (3, 0)]


def test_a_push_is_recorded_applied_and_answered() -> None:
    one = Serving(updates=3, evaluate_every=2)
    one.tell(*opened(0, 1))
    one.wait(1.5)
    said = one.tell(*pushed(1, 0))
    (row,) = entries(said)
    assert isinstance(row, UpdateEntry)
    assert (row.row.worker, row.row.time, row.row.message_bytes) == (1, 1.5, 20 + 10 + 100)
    assert answers(said) == [(1, 1)]
    kinds = [type(entry) for entry in entries(one.pushes(0, 0))]
    assert kinds == [UpdateEntry, EvaluationPoint]


def test_a_caller_without_room_is_answered_when_there_is_some() -> None:
    one = Serving()
    one.crowded.add(1)
    assert answers(one.tell(*opened(0, 1))) == [(0, 0)]
    one.crowded.clear()
    assert answers(one.settle()) == [(1, 0)]
    assert answers(one.pushes(0, 0)) == [(0, 1)]


def test_the_last_update_is_the_end() -> None:
    one = Serving(updates=2)
    one.tell(*opened(0, 1))
    assert not is_over(one.pushes(0, 0))
    said = one.tell(*pushed(1, 0))
    assert is_over(said)
    assert not answers(said)
    assert one.role.phase is Phase.OVER
    before = one.service.ledger
    late = one.tell(*pushed(0, 1))
    assert late == []
    assert one.service.half.version == 2
    assert one.service.payload_bytes == before[0] + 4 * SIZE
    assert one.service.message_bytes == before[1] + 100 + 10
    assert one.tell(End(), Closed(0)) == []


def test_who_comes_when_all_is_over_is_told_so() -> None:
    one = Serving(updates=1)
    one.tell(*opened(0, 1))
    one.pushes(0, 0)
    one.tell(Closed(1))
    said = one.tell(*opened(1))
    assert Send(1, Stop()) in said
    assert not answers(said)


def test_it_ends_when_it_is_told_and_says_so_once() -> None:
    for events in ([], opened(0, 1)):
        one = Serving()
        one.tell(*events)
        assert one.tell(End()) == [Over()]
        assert one.tell(End()) == []
        assert not entries(one.tell(*pushed(0, 0))) if events else True


def test_those_that_do_not_come_are_not_waited_for() -> None:
    one = Serving(callers=3)
    one.tell(*opened(0))
    one.wait(GATHERING_TIMEOUT - 1)
    one.tell(*opened(1))
    assert not one.wait(GATHERING_TIMEOUT - 1)  # another came meanwhile
    said = one.wait(1)
    assert entries(said)[0] == Remark("training begins without 1 workers")
    assert TrainingBegan() in entries(said)
    assert answers(said) == [(0, 0), (1, 0)]


def test_without_anybody_there_is_no_training() -> None:
    one = Serving()
    one.tell(*opened(0), Closed(0))
    said = one.wait(GATHERING_TIMEOUT)
    assert entries(said) == [Remark("no worker is left", is_error=True)]
    assert is_over(said)


def test_what_must_not_come_is_refused() -> None:
    one = Serving()
    one.tell(*opened(0))
    with pytest.raises(ValueError, match="a pull before the parameters of the last one were read"):
        one.tell(Heard(0, Pull(), 10))
    with pytest.raises(ValueError, match="a push before training began"):
        one.tell(*pushed(0, 0))
    assert one.service.message_bytes == 20 + 10 + 10 + 100  # it came all the same
    one.tell(Closed(0), *opened(0, 1))
    with pytest.raises(ValueError, match="version 3"):
        one.tell(*pushed(1, 3))


# -- callers that are gone


def three(half: Any = None, absence: float = 0.0, **changes: Any) -> Serving:
    """Return a server of synchronous SGD that needs two workers, and has three."""
    half = half or synchronous(2)
    half.needed = 2
    one = Serving(Server(service(half, workers=3, **changes)[0], 3, absence=absence))
    one.tell(*opened(0, 1, 2))
    return one


def test_too_few_that_are_left_are_the_end() -> None:
    one = three()
    assert not one.tell(Closed(0))
    said = one.tell(Closed(2))
    assert entries(said) == [Remark("1 workers are left, and an update needs 2", is_error=True)]
    assert is_over(said)


def test_a_caller_that_goes_may_make_the_update_that_waited_for_it() -> None:
    one = three(SynchronousServer(np.zeros(SIZE, np.float32), 0.5, 3, "pull"), updates=1)
    assert not is_over(one.pushes(0, 0) + one.pushes(1, 0))
    said = one.tell(Closed(2))
    assert [type(entry) for entry in entries(said)] == [EvaluationPoint]
    assert is_over(said)


def test_a_caller_that_goes_makes_no_update_when_all_is_over() -> None:
    one = three(SynchronousServer(np.zeros(SIZE, np.float32), 0.5, 3, "pull"), updates=1)
    one.pushes(0, 0)
    one.pushes(1, 0)
    assert one.tell(End()) == [Over()]
    assert not one.tell(Closed(2))
    assert one.service.half.version == 0
    assert one.service.present == [0, 1]


def test_who_comes_back_is_waited_for_as_long_as_it_may_take() -> None:
    one = three(absence=5.0)
    assert not one.tell(Closed(0), Closed(1))
    one.wait(5 + RETURN_TIMEOUT - 1)
    assert not one.tell(Closed(2))  # from here on, anew
    assert not one.wait(5 + RETURN_TIMEOUT - 1)
    said = one.wait(1)
    assert entries(said) == [Remark("no worker is left", is_error=True)]
    assert is_over(said)


def test_those_that_never_come_back_are_not_waited_for() -> None:
    one = three(absence=5.0)
    assert not one.tell(GivenUp([0]), Closed(0), Closed(1))  # 1 may come back, and be enough with 2
    said = one.tell(GivenUp([1]))
    assert entries(said) == [Remark("1 workers are left, and an update needs 2", is_error=True)]
    assert is_over(said)
    assert not is_over(one.tell(GivenUp([2]), Closed(2)))
    without_limit = three(absence=math.inf)
    assert not without_limit.tell(GivenUp([0, 1]), Closed(0))
    assert is_over(without_limit.tell(Closed(1)))


def test_who_has_come_back_is_enough() -> None:
    one = three(absence=5.0)
    one.tell(Closed(0), Closed(1))
    assert not is_over(one.tell(*opened(0)))
    assert not is_over(one.wait(1000))
    assert one.role.phase is Phase.TRAINING


def test_without_a_limit_of_absence_nobody_is_given_up() -> None:
    one = three(absence=math.inf)
    one.tell(Closed(0), Closed(1), Closed(2))
    assert not one.wait(1e9)


# -- callers that are silent


def test_a_silent_caller_is_suspected_and_welcomed_and_has_more_patience_then() -> None:
    one = Serving(suspect_after=2.0)
    one.tell(*opened(0, 1))
    one.wait(1.0)
    one.pushes(0, 0)
    assert entries(one.wait(0.9)) == []
    assert entries(one.wait(0.1)) == [Suspected(1, 2.0, 2.0, 1)]
    assert entries(one.wait(1.0)) == [Suspected(0, 2.0, 3.0, 1)]
    one.wait(10.0)
    row, welcomed = entries(one.pushes(1, 0))
    assert isinstance(row, UpdateEntry) and not row.row.applied
    assert welcomed == Welcomed(1, 13.0, 1)
    assert entries(one.wait(3.9)) == []
    assert entries(one.wait(0.1)) == [Suspected(1, 4.0, 17.0, 1)]


def test_patience_is_as_before_once_something_came_in_time() -> None:
    """The longer patience of one turn must not be that of the next."""
    one = Serving(suspect_after=2.0)
    one.tell(*opened(0, 1))
    one.wait(5.0)
    one.pushes(0, 0)  # its patience is 4 s now
    one.wait(0.5)
    one.pushes(0, 0)  # in time: it is 2 s again
    assert entries(one.wait(1.9)) == []
    assert [type(entry) for entry in entries(one.wait(0.1))] == [Suspected]


def suspected(one: Serving, seconds: float) -> list[int]:
    """Let time pass; return who is suspected meanwhile."""
    return [entry.worker for entry in entries(one.wait(seconds)) if isinstance(entry, Suspected)]


def test_who_comes_and_does_not_ask_is_silent() -> None:
    one = Serving(suspect_after=2.0)
    one.tell(*opened(0, 1))
    one.tell(Closed(1))
    one.wait(1.0)
    one.pushes(0, 0)
    one.tell(Opened(1))
    assert suspected(one, 1.9) == []
    assert sorted(suspected(one, 0.1)) == [0, 1]


def test_who_has_pushed_and_does_not_ask_is_silent() -> None:
    one = Serving(suspect_after=2.0)
    one.tell(*opened(0, 1))
    one.wait(1.0)
    one.pushes(0, 0, asks=False)
    assert suspected(one, 1.0) == [1]
    assert suspected(one, 1.0) == [0]


@pytest.mark.parametrize("more", [False, True])
def test_whose_question_has_come_with_its_push_is_not_looked_at(more: bool) -> None:
    one = Serving(suspect_after=2.0)
    one.tell(*opened(0, 1))
    assert sorted(suspected(one, 2.0)) == [0, 1]
    said = list(one.handle(Heard(0, dense(0), 100, more=more)))
    looks = [action for action in said if isinstance(action, At)]
    assert [look.token for look in looks] == [Token(What.SILENT, 0)] * (not more)


def test_who_asks_before_it_pushes_waits_and_is_not_silent() -> None:
    one = Serving(Server(service(synchronous(2), suspect_after=2.0)[0], 2))
    one.tell(*opened(0, 1))
    one.tell(Heard(1, Pull(), 10), *pushed(1, 0, asks=False))
    assert suspected(one, 2.0) == [0]
    assert suspected(one, 1.9) == []


def test_who_is_back_after_a_restoration_and_does_not_ask_is_silent() -> None:
    one = restored(suspect_after=2.0)
    one.tell(*opened(0), Opened(1))
    assert suspected(one, 1.9) == []
    assert sorted(suspected(one, 0.1)) == [0, 1]


def test_a_caller_that_has_gone_is_not_suspected() -> None:
    one = Serving(suspect_after=2.0)
    one.tell(*opened(0, 1))
    one.tell(Closed(1))
    one.wait(1.0)
    one.tell(*opened(1))
    assert [entry for entry in entries(one.wait(1.0)) if isinstance(entry, Suspected)] == [
        Suspected(0, 2.0, 2.0, 0)
    ]


# -- time limits


class Limited(SynchronousServer):
    """Takes what has come within two seconds of the first answer of a version."""

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        sent = super().pull(worker, time=time)
        if sent is not None and self.deadline is None and not self._taken:
            self.deadline = time + 2.0
        return sent

    def expire(self) -> None:
        self.deadline = None
        if self._taken:
            self._step(math.nan)


def test_a_time_limit_may_make_an_update() -> None:
    one = Serving(Server(service(Limited(np.zeros(SIZE, np.float32), 0.5, 2, "pull"))[0], 2))
    one.tell(*opened(0, 1))
    one.wait(1.0)
    assert not answers(one.pushes(0, 0))
    assert one.service.half.version == 0
    said = one.wait(1.0)
    assert one.service.half.version == 1
    assert answers(said) == [(0, 1)]
    # A limit of the version before is none of this one.
    one.wait(1.0)
    assert one.service.half.deadline == 4.0
    assert not answers(one.pushes(1, 0, asks=False))


def test_who_waits_for_a_time_limit_does_not_wait_for_ever() -> None:
    half = synchronous(2)
    one = Serving(Server(service(half)[0], 2))
    half.deadline = 7.0
    half.pull = lambda worker, *, time=math.nan: None  # type: ignore[method-assign]
    half.expire = lambda: setattr(half, "deadline", None)  # type: ignore[method-assign]
    assert not is_over(one.tell(*opened(0, 1)))
    said = one.wait(7.0)  # the half does not set another
    assert entries(said) == [
        Remark("all workers wait for parameters, and none will push", is_error=True)
    ]
    assert is_over(said)


# -- servers that come back, that are several, and that a clock drives


def restored(updates: int = 5, there: tuple[int, ...] = (0, 1), **changes: Any) -> Serving:
    one = Serving(updates=updates, **changes)
    one.now = 100.0
    one.service.half.version = 3
    assert not one.tell(Restored(there))
    return one


def test_a_restored_server_goes_on_when_all_are_back() -> None:
    one = restored()
    assert not answers(one.tell(*opened(1)))
    one.wait(BACK_TIMEOUT / 2)
    said = one.tell(*opened(0))
    assert entries(said) == [Connected(2), TrainingBegan()]
    assert answers(said) == [(1, 3), (0, 3)]
    assert not one.wait(BACK_TIMEOUT)


def test_a_restored_server_does_not_wait_for_who_does_not_come() -> None:
    one = restored(there=(0, 1, 2))
    one.wait(BACK_TIMEOUT - 0.5)
    one.tell(*opened(1))
    one.wait(1.0)
    assert one.role.phase is Phase.GATHERING  # another has come, and is waited for anew
    one.tell(Closed(1), *opened(1))  # that is none
    said = one.wait(BACK_TIMEOUT - 1.0)
    assert TrainingBegan() in entries(said)
    assert answers(said) == [(1, 3)]
    assert answers(one.tell(*opened(0))) == [(0, 3)]


def test_a_restored_server_that_nobody_comes_back_to_ends() -> None:
    one = restored()
    assert entries(one.wait(BACK_TIMEOUT)) == [TrainingBegan()]
    said = one.wait(RETURN_TIMEOUT)
    assert entries(said) == [Remark("no worker is left", is_error=True)]


def test_a_server_restored_after_its_last_update_only_says_so() -> None:
    one = restored(updates=3)
    said = one.tell(*opened(1))
    assert Send(1, Stop()) in said
    assert not is_over(said)
    assert is_over(one.tell(*opened(0)))
    one = restored(updates=3)
    assert is_over(one.wait(BACK_TIMEOUT))
    one = restored(updates=3, there=())
    assert is_over(one.wait(BACK_TIMEOUT))


def test_who_trains_on_with_other_servers_is_only_counted() -> None:
    one = Serving(Server(service(updates=1)[0], 2, others=True))
    one.tell(*opened(0, 1))
    one.pushes(0, 0)
    for _ in range(2):
        assert one.tell(Heard(1, Pull(), 10), Heard(1, dense(0), 100)) == []

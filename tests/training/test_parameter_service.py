"""The decisions of a parameter server, with the algorithms' own halves and notes of what it returns."""

import math
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.adacomp import AdaptiveStaleness
from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.encoding_choice import EncodingChoice
from testbed.experiment.spec import Spec
from testbed.planning.plan import plan
from testbed.telemetry.update_rows import UPDATE
from testbed.training.parameter_service import ParameterService, Pushed, as_loss
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.updates import DenseUpdate, Layout, SparseUpdate, Update
from testbed.wire.encodings import DENSE, Codec
from tests.notes import Notes
from tests.settings import with_changes

SIZE = 100
LAYOUT = Layout(("weight", "bias"), (SIZE - 10, 10))


class Columns(Notes):
    """The notes of a service, and columns of the rows."""

    def column(self, name: str) -> list[Any]:
        """Return a column of the rows, with the values that the run's journal will hold."""
        column: list[Any] = np.array(self.rows, UPDATE)[name].tolist()
        return column


class Noted(ParameterService):
    """A service that keeps what it returns in ``notes``, too."""

    notes: Columns

    def begin(self) -> list[Entry]:
        return self._kept(super().begin())

    def leave(self, worker: int, *, over: bool = False) -> list[Entry]:
        return self._kept(super().leave(worker, over=over))

    def suspect(self, worker: int, time: float) -> list[Entry]:
        return self._kept(super().suspect(worker, time))

    def asked(self, worker: int, time: float = 0.0) -> list[Entry]:
        return self._kept(super().asked(worker, time))

    def pushed(self, worker: int, push: Pushed, time: float, host_time: float) -> list[Entry]:
        return self._kept(super().pushed(worker, push, time, host_time))

    def _kept(self, entries: list[Entry]) -> list[Entry]:
        self.notes.take(entries)
        return entries


def settings(**changes: Any) -> Settings:
    spec = {
        "name": "service",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 5},
        "algorithms": ["asgd"],
        "devices": {"workers": 2},
        "evaluation": {"every": 2},
        "clock": "virtual",
        "compute": {"distribution": "constant", "mean": "1s"},
    }
    return with_changes(plan(Spec.model_validate(spec))[0].settings, **changes)


def service(half: ServerHalf | None = None, **changes: Any) -> tuple[ParameterService, Columns]:
    half = half or StalenessDivided(np.zeros(SIZE, np.float32), 0.5)
    one = Noted(half, LAYOUT, settings(**changes))
    one.notes = Columns()
    return one, one.notes


def synchronous(wait_for: int, protocol: Protocol = "pull") -> SynchronousServer:
    return SynchronousServer(np.zeros(SIZE, np.float32), 0.5, wait_for, protocol)


def dense(base: int, value: float = 1.0, loss: float = 1.0) -> Pushed:
    return Pushed(base, DenseUpdate(np.full(SIZE, value, np.float32)), 4 * SIZE, loss)


def sparse(base: int, *indices: int) -> Pushed:
    at = np.array(indices, np.uint32)
    update = SparseUpdate(at, np.ones(len(at), np.float32))
    return Pushed(base, update, 8 * len(at), 0.0)


def always(worker: int) -> bool:
    return True


def due(one: ParameterService, time: float = 0.0) -> list[int]:
    """Answer the workers that are due, as a server would, and return them."""
    workers = []
    for worker in one.due(always, time):
        one.answer(worker)
        workers.append(worker)
    return workers


def started(half: ServerHalf | None = None, **changes: Any) -> tuple[ParameterService, Columns]:
    one, notes = service(half, **changes)
    for worker in (0, 1):
        one.join(worker)
        one.asked(worker)
    one.begin()
    assert due(one) == [0, 1]
    return one, notes


def test_no_worker_is_due_before_training_begins() -> None:
    one, notes = service()
    one.join(1)
    one.asked(1)
    assert one.is_asking(1)
    assert due(one) == []
    assert notes.evaluations == []
    one.join(0)
    one.begin()
    assert notes.evaluations == [0]
    assert due(one) == [1]
    assert not one.is_asking(1)
    assert due(one) == []
    one.asked(0)
    assert due(one) == [0]


def test_the_first_to_ask_before_training_begins_has_no_advantage() -> None:
    one, _ = service()
    for worker in (1, 0):
        one.join(worker)
        one.asked(worker)
    one.begin()
    assert due(one) == [0, 1]
    for worker in (1, 0):
        one.asked(worker)
    assert due(one) == [1, 0]


def test_the_half_is_told_when_parameters_are_pulled_and_pushed() -> None:
    class Timed(StalenessDivided):
        def pull(self, worker: int, *, time: float = math.nan) -> int | None:
            told.append(time)
            return super().pull(worker, time=time)

        def push(self, worker: int, update: Update, base_version: int, **of: Any) -> int | None:
            told.append(of["time"])
            return super().push(worker, update, base_version, **of)

    told: list[float] = []
    one, _ = started(Timed(np.zeros(SIZE, np.float32), 0.5))
    push(one, 1, 0, 2.5)
    assert send(one, 3.5) == [1]
    assert told == [0.0, 0.0, 2.5, 3.5]


def test_every_update_is_diagnosed_also_one_that_no_push_completes() -> None:
    one, notes = three(synchronous(3), algorithm={"name": "sync-sgd"})
    push(one, 0, 0, 1.0)
    push(one, 2, 0, 2.0)
    assert notes.diagnoses == []
    one.suspect(1, 10.0)
    send(one, 10.0)
    for worker in (0, 2):
        push(one, worker, 1, 11.0)
    assert notes.diagnoses == [(1, 2, 0), (2, 2, 0)]


def test_what_the_algorithm_does_not_declare_is_not_reported() -> None:
    one, notes = three(synchronous(3))
    for worker in range(3):
        push(one, worker, 0, 1.0)
    assert one.half.version == 1
    assert notes.diagnoses == []


def test_a_worker_without_room_waits_and_keeps_asking() -> None:
    one, _ = service()
    for worker in (0, 1):
        one.join(worker)
        one.asked(worker)
    one.begin()
    assert list(one.due(lambda worker: worker == 1, 0.0)) == [1]
    assert one.is_asking(0)
    assert due(one) == [0]


def test_rows_state_versions_staleness_and_bytes() -> None:
    one, notes = started()
    one.count(0, 100)
    one.count(1, 7)
    one.count(0, 32)
    one.pushed(0, dense(0, loss=2.5), 1.5, 10.0)
    one.asked(0)
    assert due(one) == [0]
    one.count(1, 400)
    one.pushed(1, dense(0), 2.5, 11.0)
    one.count(0, 5)
    one.pushed(0, dense(1), 2.5, 12.0)
    assert notes.column("iteration") == [1, 2, 3]
    assert notes.column("worker") == [0, 1, 0]
    assert notes.column("base_version") == [0, 0, 1]
    assert notes.column("staleness") == [0, 1, 1]
    assert notes.column("payload_bytes") == [400] * 3
    assert notes.column("message_bytes") == [132, 407, 5]
    assert notes.column("loss") == [2.5, 1.0, 1.0]
    assert notes.column("time") == [1.5, 2.5, 2.5]
    assert notes.column("host_time") == [10.0, 11.0, 12.0]
    assert notes.column("applied") == [True] * 3
    assert notes.versions == [1, 2, 3]
    assert one.payload_bytes == 1200
    assert one.message_bytes == 544


def test_the_last_update_is_always_evaluated() -> None:
    one, notes = started()
    for version in range(5):
        assert not one.finished
        one.pushed(0, dense(version), 0.0, 0.0)
        one.asked(0)
        due(one)
    assert one.finished
    assert notes.evaluations == [0, 2, 4, 5]


def test_a_push_after_the_last_update_is_counted_and_not_applied() -> None:
    one, notes = started(updates=1)
    one.pushed(0, dense(0), 0.0, 0.0)
    parameters = one.half.parameters.copy()
    one.count(1, 432)
    one.pushed(1, dense(0, 8.0), 1.0, 1.0)
    # Nothing else of it is checked, so that even an invalid push does no harm.
    one.pushed(1, Pushed(999, None, 10, 0.0), 1.0, 1.0)
    assert (one.payload_bytes, one.message_bytes) == (810, 432)
    assert len(notes.rows) == one.half.version == 1
    assert (one.half.parameters == parameters).all()
    one.asked(1)
    assert due(one) == []


def test_a_base_version_that_lies_ahead_is_refused() -> None:
    one, notes = started(synchronous(1, "push-and-wait"))
    with pytest.raises(ValueError, match="a push for version 1, for which worker 0 has nothing"):
        one.pushed(0, dense(1), 0.0, 0.0)
    with pytest.raises(ValueError, match="a report for version 1, for which worker 0 has nothing"):
        one.pushed(0, Pushed(1, None, 0, math.nan), 0.0, 0.0)
    assert notes.rows == []


def test_changed_pulls_bring_what_changed_since_the_worker_s_last_pull() -> None:
    one, _ = started(updates=100, pulls="changed")
    codec = Codec(EncodingChoice(), LAYOUT.sizes)
    one.pushed(0, sparse(0, 3, 50), 0.0, 0.0)
    one.asked(0)
    assert list(one.due(always, 0.0)) == [0]
    answer = one.answer(0)
    update = codec.decode(answer.encoding, memoryview(b"".join(answer.body)))
    assert isinstance(update, SparseUpdate)
    assert answer.version == 1
    assert answer.vector is one.half.parameters
    assert update.indices.tolist() == [3, 50]
    assert update.values.tolist() == [-0.5, -0.5]
    one.pushed(1, sparse(0, 4), 0.0, 0.0)
    for worker, changed in ((0, [4]), (1, [3, 4, 50])):
        one.asked(worker)
        assert list(one.due(always, 0.0)) == [worker]
        answer = one.answer(worker)
        update = codec.decode(answer.encoding, memoryview(b"".join(answer.body)))
        assert isinstance(update, SparseUpdate)
        assert (answer.version, update.indices.tolist()) == (2, changed)


def test_the_first_pull_and_every_full_pull_bring_everything() -> None:
    for pulls in ("full", "changed"):
        one, _ = service(pulls=pulls)
        one.join(0)
        one.asked(0)
        one.begin()
        assert list(one.due(always, 0.0)) == [0]
        answer = one.answer(0)
        assert answer.encoding == DENSE
        assert b"".join(answer.body) == bytes(4 * SIZE)


def test_every_version_is_sent_to_all_workers_in_order() -> None:
    one, _ = service(synchronous(2, "push-and-wait"))
    for worker in (1, 0):
        one.join(worker)
    assert one.workers == 2
    assert not one.is_asking(0)
    one.begin()
    assert due(one) == [0, 1]
    one.pushed(1, dense(0), 0.0, 0.0)
    assert due(one) == []  # one of two gradients makes no version
    one.pushed(0, dense(0), 0.0, 0.0)
    assert due(one) == [0, 1]


def test_a_worker_that_has_pushed_waits_for_the_next_version() -> None:
    one, _ = started(synchronous(2))
    one.pushed(0, dense(0), 0.0, 0.0)
    one.asked(0)
    assert due(one) == []
    assert one.is_asking(0)
    one.pushed(1, dense(0), 0.0, 0.0)
    assert due(one) == [0]


def test_late_gradients_have_rows_with_the_current_version() -> None:
    one, notes = started(synchronous(1, "push-and-wait"))
    one.pushed(0, dense(0), 1.0, 0.0)
    one.pushed(1, dense(0), 2.0, 0.0)
    one.pushed(1, Pushed(0, None, 0, math.nan), 3.0, 0.0)
    assert due(one) == [0, 1]
    one.pushed(0, dense(1), 4.0, 0.0)
    assert notes.column("iteration") == [1, 1, 1, 2]
    assert notes.column("applied") == [True, False, False, True]
    assert notes.column("staleness") == [0, 1, 1, 0]
    assert notes.column("payload_bytes") == [400, 400, 0, 400]
    assert notes.versions == [1, 1, 1, 2]
    assert math.isnan(notes.column("loss")[2])
    assert notes.evaluations == [0, 2]


def test_a_worker_that_left_is_due_nothing_and_the_half_forgets_it() -> None:
    half = AdaptiveStaleness(np.zeros(SIZE, np.float32), 0.5)
    one, _ = started(half)
    assert len(half._at_pull) == 1
    one.asked(1)
    one.leave(1)
    one.leave(1)
    assert one.workers == 1
    assert not one.is_asking(1)
    assert due(one) == []
    with pytest.raises(ValueError, match="PUSH does not follow GONE"):
        one.pushed(1, dense(0), 0.0, 0.0)
    one.pushed(0, dense(0), 0.0, 0.0)
    assert len(half._at_pull) == 0


def test_a_worker_that_left_is_not_sent_later_versions() -> None:
    one, _ = service(synchronous(1, "push-and-interrupt"))
    for worker in (0, 1):
        one.join(worker)
    one.begin()
    assert due(one) == [0, 1]
    one.leave(1)
    one.pushed(0, dense(0), 0.0, 0.0)
    assert due(one) == [0]


PROTOCOLS: tuple[Protocol, ...] = ("pull", "push-and-wait", "push-and-interrupt")


def three(half: ServerHalf, **changes: Any) -> tuple[ParameterService, Columns]:
    """Make a service with three workers, which were sent version 0 at 0 s."""
    one, notes = service(half, workers=3, suspect_after=10.0, **changes)
    for worker in range(3):
        one.join(worker)
        if half.protocol == "pull":
            one.asked(worker)
    one.begin()
    assert send(one, 0.0) == [0, 1, 2]
    return one, notes


def send(one: ParameterService, time: float) -> list[int]:
    workers = due(one, time)
    for worker in workers:
        one.sent(worker, time)
    return workers


def push(one: ParameterService, worker: int, base: int, time: float) -> None:
    one.pushed(worker, dense(base), time, 0.0)
    if one.half.protocol == "pull":
        one.asked(worker, time)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_update_that_waited_for_a_suspected_worker_is_made(protocol: Protocol) -> None:
    half = synchronous(3, protocol)
    one, notes = three(half)
    push(one, 0, 0, 1.0)
    push(one, 2, 0, 2.0)
    assert send(one, 2.0) == []
    assert (one.deadline(0), one.deadline(1)) == (None, 10.0)
    one.suspect(1, 10.5)
    assert notes.noticed == [("suspected", 1, 10.5, 10.5, 0)]
    assert one.is_suspected(1)
    assert (half.version, half.needed, half.wait_for) == (1, 1, 3)
    assert (half.parameters == -0.5).all()
    assert send(one, 10.5) == [0, 2]
    assert one.deadline(1) is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_suspected_worker_pushes_is_dropped_and_it_is_welcomed(protocol: Protocol) -> None:
    half = synchronous(3, protocol)
    one, notes = three(half)
    for worker in (0, 2):
        push(one, worker, 0, 1.0)
    one.suspect(1, 10.0)
    assert send(one, 10.0) == [0, 2]
    parameters, payload = half.parameters.copy(), one.payload_bytes
    push(one, 1, 0, 12.0)
    assert notes.noticed[1:] == [("welcomed", 1, 0.0, 12.0, 1)]
    assert notes.rows[-1][:5] == (1, 1, 0, 1, 400)
    assert not notes.column("applied")[-1]
    assert one.payload_bytes == payload + 400
    assert (half.parameters == parameters).all()
    # It is sent the newest version and waited for again: longer than before, until it is in time.
    assert not one.is_suspected(1)
    assert send(one, 12.0) == [1]
    assert one.deadline(1) == 12 + 2 * 10
    push(one, 1, 1, 31.0)
    for worker in (0, 2):
        push(one, worker, 1, 32.0)
    assert sorted(send(one, 32.0)) == [0, 1, 2]
    assert half.version == 2
    assert one.deadline(1) == 32 + 10


def test_a_version_that_a_worker_has_yet_to_answer_is_not_sent_again() -> None:
    # Worker 1's report of version 0 is under way when it is sent version 1 and then computes at it.
    one, _ = three(synchronous(1, "push-and-wait"))
    push(one, 0, 0, 1.0)
    assert send(one, 1.0) == [0, 1, 2]
    one.suspect(1, 10.0)
    one.pushed(1, Pushed(0, None, 0, math.nan), 11.0, 0.0)
    assert send(one, 11.0) == []
    assert one.deadline(1) == 11 + 20
    push(one, 1, 1, 12.0)
    assert one.half.version == 2


@pytest.mark.parametrize("protocol", ["push-and-wait", "push-and-interrupt"])
def test_a_version_that_was_sent_twice_at_once_is_pushed_for_twice_and_applied_once(
    protocol: Protocol,
) -> None:
    """A worker of several servers reports on what it computes for another: and is sent the same."""
    half = synchronous(3, protocol)
    one, notes = three(half)
    push(one, 0, 0, 1.0)
    for time in (10.0, 40.0):
        one.suspect(1, time)
        one.pushed(1, Pushed(0, None, 0, math.nan), time, 0.0)
        assert send(one, time) == [1]
    for time in (50.0, 51.0):
        push(one, 1, 0, time)
    assert notes.column("applied")[-2:] == [True, False]
    assert half.version == 0
    push(one, 2, 0, 52.0)
    assert half.version == 1
    assert sorted(send(one, 52.0)) == [0, 1, 2]


def test_a_suspected_worker_is_sent_no_versions() -> None:
    one, _ = three(synchronous(1, "push-and-wait"), updates=100)
    one.suspect(1, 10.0)
    for version in range(4):
        push(one, 0, version, 11.0)
        assert send(one, 11.0) == [0, 2]
    assert not one.is_asking(1)


def test_only_a_worker_that_is_expected_to_send_can_be_silent() -> None:
    one, _ = three(synchronous(2, "push-and-wait"), updates=100)
    for version in range(2):
        push(one, 0, version, 5.0 + version)
        push(one, 2, version, 5.0 + version)
        send(one, 5.0 + version)
    # Worker 1 has not answered any version; the others are silent since they were sent the last one.
    assert [one.deadline(worker) for worker in range(3)] == [16, 10, 16]
    one.pushed(1, Pushed(0, None, 0, math.nan), 8.0, 0.0)
    assert one.deadline(1) == 18  # it has version 2, and computes
    one.pushed(1, dense(2), 9.0, 0.0)
    assert one.deadline(1) is None


def test_an_interrupted_worker_s_silence_begins_anew() -> None:
    one, _ = three(synchronous(2, "push-and-interrupt"), updates=100)
    for worker in (0, 2):
        push(one, worker, 0, 9.0)
    send(one, 9.0)
    assert one.deadline(1) == 19


def test_a_connected_worker_that_does_not_ask_is_silent() -> None:
    one, _ = service(suspect_after=10.0)
    one.join(0)
    one.join(1)
    one.asked(0)
    one.begin()
    assert (one.deadline(0), one.deadline(1)) == (None, 10)
    one.join(1, 5.0)
    one.suspect(1, 10.0)
    one.asked(1, 11.0)
    assert due(one) == [0, 1]
    assert not one.is_suspected(1)


def test_without_suspect_after_no_worker_is_suspected() -> None:
    one, _ = started(synchronous(2))
    one.sent(0, 0.0)
    assert one.deadline(0) is None


def test_a_suspected_worker_s_copy_of_counters_is_released() -> None:
    half = AdaptiveStaleness(np.zeros(SIZE, np.float32), 0.5)
    one, notes = three(half)
    push(one, 0, 0, 1.0)
    push(one, 2, 0, 1.0)
    one.suspect(1, 10.0)
    assert len(half._at_pull) == 0
    push(one, 1, 0, 11.0)
    assert notes.column("applied") == [True, True, False]
    assert notes.column("staleness")[-1] == 2
    assert 1 in send(one, 11.0)
    push(one, 1, 2, 12.0)
    assert notes.column("applied")[-1]


def test_the_gradient_of_a_worker_that_left_still_counts() -> None:
    half = synchronous(3, "push-and-wait")
    one, _ = three(half)
    push(one, 0, 0, 1.0)
    one.leave(0)
    assert half.version == 0
    # Its next incarnation may not answer the same version again.
    one.join(0, 2.0)
    assert send(one, 2.0) == []
    one.leave(1)
    assert half.version == 0
    push(one, 2, 0, 3.0)
    assert half.version == 1
    assert send(one, 3.0) == [0, 2]


def test_workers_that_leave_after_training_make_no_update() -> None:
    half = synchronous(2)
    one, _ = three(half, updates=1)
    push(one, 0, 0, 1.0)
    push(one, 1, 0, 1.0)
    assert one.finished
    push(one, 2, 0, 1.0)
    for worker in range(3):
        one.leave(worker)
    assert half.version == 1


def test_a_loss_is_rounded_as_on_the_wire() -> None:
    assert as_loss(0.1) == float(np.float32(0.1)) != 0.1
    assert as_loss(math.inf) == math.inf
    assert math.isnan(as_loss(math.nan))

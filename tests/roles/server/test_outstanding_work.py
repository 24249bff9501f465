"""Outstanding versions and orders: they restore a worker that forgets everything again and again.

Two copies of a naive worker receive the same messages and orders. After it forgets, one copy receives
only what ``SentVectors.again`` and ``OutstandingWork.orders`` return: both must send the same.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothetical
from hypothesis import strategies as st

from testbed.algorithms.server_half import Protocol
from testbed.checkpoints.state_encoding import decode, encode
from testbed.clock.conversations import Conversations
from testbed.roles.orders import OrderKind
from testbed.roles.server.outstanding_work import (
    STORED,
    OutstandingWork,
    orders_to_begin,
    orders_to_finish,
)
from testbed.roles.server.sent_vectors import SentVectors
from testbed.training.gathering import Gathering
from testbed.updates import FloatVector

Message: TypeAlias = tuple[int, int, bool, int]
"""The vector's first value, the number of the mini-batch, True if late, and what it remembers then."""


def vector(version: int) -> FloatVector:
    return np.full(3, version, np.float32)


class Worker:
    """A naive worker: keeps the vectors that it was sent, and obeys its orders one after the other."""

    def __init__(self, protocol: Protocol) -> None:
        self.asks = protocol == "pull"
        self.has: dict[int, FloatVector] = {}
        self.unused: deque[int] = deque()
        self.drawn = 0
        self.sends: deque[Message] = deque()
        self.last: FloatVector | None = None
        self._arrived = -1
        # The version that it computes at, and the number of the mini-batch.
        self._computing: tuple[int, int] | None = None
        self._late = False
        # What it remembers of all that it has pushed, and its file of that.
        self.memory = self.ended = 0
        self.file = {0: 0}

    def sent(self, version: int, parameters: FloatVector) -> None:
        self.has[version] = self.last = parameters
        self.unused.append(version)
        self._begin_if_it_asks()

    def _begin_if_it_asks(self) -> None:
        # A worker that asks computes at each answer as it arrives.
        if self.asks and self._computing is None and self.unused:
            self._begin(self.unused.popleft())

    def _begin(self, version: int) -> None:
        self._computing = version, self.drawn
        self.drawn += 1

    def told(self, what: OrderKind, number: int) -> None:
        match what:
            case OrderKind.RESUME:
                assert not self.sends or not self.asks
                self.drawn = number
            case OrderKind.ARRIVED:
                assert number in self.has
                self._arrived = number
            case OrderKind.BEGIN if not self.asks:
                self._begin(self._arrived)
            case OrderKind.REPORT:
                self._late = True
            case OrderKind.FINISHED:
                assert self._computing is not None
                version, mini_batch = self._computing
                self.memory = self.memory if self._late else 31 * self.memory + mini_batch + 1
                self.ended += 1
                self.file = {one: kept for one, kept in self.file.items() if one >= number}
                self.file[self.ended] = self.memory
                value = int(self.has[version][0])
                self.sends.append((value, mini_batch, self._late, self.memory))
                self._computing, self._late = None, False
                self._begin_if_it_asks()

    @classmethod
    def again(
        cls,
        protocol: Protocol,
        vectors: SentVectors,
        outstanding: OutstandingWork,
        file: dict[int, int],
    ) -> "Worker":
        """Make a worker that has received only what it is sent and told again, and has its file."""
        worker = cls(protocol)
        worker.ended = outstanding.remembered(0)
        worker.file, worker.memory = dict(file), file[worker.ended]
        worker.last, frames = vectors.again(0)
        # The other orders wait until the frames are there, as they do for a worker that asks.
        (what, number), *orders = outstanding.orders(0)
        assert what is OrderKind.RESUME
        worker.told(what, number)
        for version, parameters, _ in frames:
            worker.sent(version, parameters)
        for order in orders:
            worker.told(*order)
        return worker


class Scene:
    """One worker's clock and server, with a worker that never forgets and one that does."""

    def __init__(self, protocol: Protocol, *, changed: bool) -> None:
        self.kind = protocol
        self.changed = changed
        self.outstanding = OutstandingWork(Conversations.with_all(1), 1)
        self.vectors = SentVectors(changed=changed)
        self.clocks = Gathering(protocol, 1)  # what the clock knows of the worker
        self.version = -1
        self.under_way: deque[int] = deque()
        self.busy = False
        self.told = False
        self.unread = 0
        self.steady, self.forgetful = Worker(protocol), Worker(protocol)

    def each(self, orders: Sequence[tuple[OrderKind, int]]) -> None:
        for order in orders:
            self.steady.told(*order)
            self.forgetful.told(*order)

    def send(self) -> None:
        if self.steady.asks and (self.busy or self.unread or self.under_way):
            return  # it has not asked
        self.version += 1
        self.vectors.keep(0, self.outstanding.needed(0))
        self.vectors.sent(0, self.version, vector(self.version), is_own=False)
        self.outstanding.sent(0, self.version)
        self.under_way.append(self.version)
        self.steady.sent(self.version, vector(self.version))
        self.forgetful.sent(self.version, vector(self.version))

    def arrive(self) -> None:
        if not self.under_way:
            return
        version = self.under_way.popleft()
        self.outstanding.arrived(0, version)
        if not self.steady.asks:
            self.each([(OrderKind.ARRIVED, version)])
        self._begin(self.clocks.arrived(0, version))

    def _begin(self, versions: Sequence[int] | None) -> None:
        if versions is not None:
            (version,) = versions
            self.outstanding.begun(0, [version])
            self.busy, self.told = True, False
            if not self.steady.asks:
                self.each(orders_to_begin([version]))

    def tell(self) -> None:
        """Tell the workers ahead that their computation is over, if it is certain to be finished."""
        if self.busy and not self.told and self.steady.asks:
            self._over(late=False)

    def finish(self) -> None:
        if not self.busy:
            return
        late, following = self.clocks.finished()
        if not self.told:
            self._over(late=late)
        self.busy = False
        self.unread += 1
        self._begin(following)

    def _over(self, *, late: bool) -> None:
        """Tell the workers that their computation is over."""
        reports = [0] * late
        self.outstanding.told(0, reports)
        self.each(orders_to_finish(reports, self.outstanding.remembered(0)))
        self.told = True

    def read(self) -> None:
        if self.unread:
            self.unread -= 1
            self.outstanding.received(0)
            assert self.steady.sends.popleft() == self.forgetful.sends.popleft()

    def come_back(self) -> None:
        """Restore the server from a checkpoint of this moment; the worker connects again."""
        self.vectors.keep(0, self.outstanding.needed(0))
        state = {"vectors": self.vectors.state(), "outstanding": self.outstanding.state()}
        tree, arrays = encode(state, STORED)
        again = decode(tree, [one.copy() for one in arrays], STORED)
        self.vectors = SentVectors(changed=self.changed)
        self.vectors.restore(again["vectors"])
        self.outstanding = OutstandingWork(Conversations.with_all(1), 1)
        self.outstanding.restore(again["outstanding"])
        self.forgetful = Worker.again(
            self.kind, self.vectors, self.outstanding, self.forgetful.file
        )
        assert self.forgetful.sends == self.steady.sends
        if self.changed and self.steady.last is not None:
            # The next answer states the changes since this vector.
            assert self.forgetful.last is not None
            np.testing.assert_array_equal(self.forgetful.last, self.steady.last)
        if not self.changed:
            assert self.vectors.again(0)[0] is None


Step: TypeAlias = Callable[[Scene], None]
STEPS: list[Step] = [
    Scene.send,
    Scene.arrive,
    Scene.tell,
    Scene.finish,
    Scene.read,
    Scene.come_back,
]


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("protocol", get_args(Protocol))
@hypothetical(deadline=None)  # the host may be busy
@given(st.lists(st.sampled_from(STEPS), min_size=30, max_size=80))
@example([Scene.send, Scene.arrive, Scene.send, Scene.arrive, Scene.come_back, Scene.finish])
def test_a_restored_worker_sends_the_same_as_one_that_never_left(
    protocol: Protocol, changed: bool, steps: list[Step]
) -> None:
    scene = Scene(protocol, changed=changed)
    for step in steps:
        step(scene)
    scene.come_back()
    while scene.under_way or scene.busy or scene.unread:
        scene.arrive()
        scene.finish()
        scene.read()
    scene.come_back()
    assert scene.forgetful.drawn == scene.steady.drawn
    # Only the vector sent last is kept, and only if the next answer states its changes.
    assert len(scene.vectors) == (changed and scene.version >= 0)


def test_an_example_of_the_orders_that_restore_a_late_worker() -> None:
    outstanding = OutstandingWork(Conversations.with_all(2), 2)
    for version in (0, 1):
        outstanding.sent(1, version)
        outstanding.arrived(1, version)
        if version == 0:
            outstanding.begun(1, [0])
    outstanding.told(1, [0])
    outstanding.begun(1, [1])
    assert outstanding.needed(1) == [0, 1]
    assert outstanding.orders(1) == [
        (OrderKind.RESUME, 0),
        (OrderKind.ARRIVED, 0),
        (OrderKind.BEGIN, 0),
        (OrderKind.REPORT, 0),
        (OrderKind.FINISHED, 0),
        (OrderKind.RESUME, 1),
        (OrderKind.ARRIVED, 1),
        (OrderKind.BEGIN, 0),
    ]
    assert outstanding.orders(0) == [(OrderKind.RESUME, 0), (OrderKind.WAIT, 0)]


def test_a_worker_goes_on_from_its_state_before_the_first_message_that_is_not_read() -> None:
    outstanding = OutstandingWork(Conversations.with_all(1), 1, again=True)
    sent(outstanding, 0, 0)
    for _ in range(3):  # at its own copy
        outstanding.begun(0, [0])
        outstanding.told(0, [])
    outstanding.begun(0, [0])
    assert outstanding.remembered(0) == 0
    outstanding.received(0)
    assert outstanding.remembered(0) == 1
    orders = outstanding.orders(0)
    assert [number for what, number in orders if what is OrderKind.RESUME] == [1, 2, 3]
    assert [number for what, number in orders if what is OrderKind.FINISHED] == [1, 1]
    outstanding.received(0)
    outstanding.received(0)
    assert outstanding.remembered(0) == 3
    outstanding.returned(0)  # as a new incarnation
    assert outstanding.remembered(0) == 0


def sent(outstanding: OutstandingWork, conversation: int, version: int) -> None:
    outstanding.sent(conversation, version)
    outstanding.arrived(conversation, version)


def test_a_worker_of_two_servers_sends_only_to_the_one_that_has_not_read_it() -> None:
    outstanding = OutstandingWork(Conversations.with_all(2, 2), 2)
    for conversation in (2, 3):
        sent(outstanding, conversation, 4)
    outstanding.begun(1, [4, 4])
    outstanding.told(1, [])
    outstanding.received(3)
    sent(outstanding, 3, 5)
    assert (outstanding.needed(2), outstanding.needed(3)) == ([4], [4, 5])
    assert outstanding.orders(1) == [
        (OrderKind.RESUME, 0),
        (OrderKind.ARRIVED, 8),
        (OrderKind.ARRIVED, 9),
        (OrderKind.BEGIN, 0),
        (OrderKind.READ, 1),
        (OrderKind.FINISHED, 0),
    ]
    outstanding.received(2)
    # It waits for the first server; what it has of both is not new.
    assert outstanding.orders(1) == [
        (OrderKind.RESUME, 1),
        (OrderKind.ARRIVED, 8),
        (OrderKind.ARRIVED, 9),
        (OrderKind.WAIT, 0),
    ]
    assert outstanding.orders(0) == [(OrderKind.RESUME, 0), (OrderKind.WAIT, 0)]


def test_who_gets_only_a_report_is_told_again() -> None:
    outstanding = OutstandingWork(Conversations.with_all(1, 2), 1)
    for conversation in (0, 1):
        sent(outstanding, conversation, 0)
    outstanding.begun(0, [0, 0])
    outstanding.told(0, [])
    sent(outstanding, 1, 1)
    outstanding.begun(0, [0, 1])
    outstanding.told(0, [0])
    assert outstanding.needed(0) == [0]
    assert outstanding.orders(0)[-3:] == [
        (OrderKind.BEGIN, 0),
        (OrderKind.REPORT, 0),
        (OrderKind.FINISHED, 0),
    ]


def test_nothing_is_needed_by_a_lost_worker_and_it_returns_with_nothing() -> None:
    outstanding = OutstandingWork(Conversations.with_all(1), 1)
    sent(outstanding, 0, 4)
    outstanding.begun(0, [4])
    outstanding.sent(0, 5)
    outstanding.lose(0)
    assert outstanding.is_lost(0)
    outstanding.sent(0, 6)  # the sender does not know that it is lost
    assert outstanding.needed(0) is None
    outstanding.returned(0)
    assert not outstanding.is_lost(0)
    assert outstanding.needed(0) == []
    assert outstanding.orders(0) == [(OrderKind.RESUME, 0), (OrderKind.WAIT, 0)]


def test_a_vector_is_kept_once_and_as_it_was_sent() -> None:
    vectors, memory = SentVectors(changed=True), vector(7)
    for worker in (0, 1):
        vectors.sent(worker, 7, memory, is_own=False, dealt=30 + worker)
    memory[:] = 0
    assert len(vectors) == 1
    for worker in (0, 1):
        _, ((version, found, dealt),) = vectors.again(worker)
        assert (version, dealt) == (7, 30 + worker)
        np.testing.assert_array_equal(found, vector(7))
    vectors.keep(0, [])
    base, frames = vectors.again(0)
    assert frames == []
    assert base is not None
    np.testing.assert_array_equal(base, vector(7))
    for worker in (0, 1):
        vectors.keep(worker, None)
    assert len(vectors) == 0


def test_what_an_aggregator_has_sent_is_unread_at_each_server_by_itself() -> None:
    numbers = Conversations([[2], [0, 1]], workers=1, servers=2)
    outstanding = OutstandingWork(numbers, 2)
    for conversation in numbers.of_worker(1):
        outstanding.sent(conversation, 3)
        outstanding.arrived(conversation, 3)
    outstanding.begun(1, [3, 3])
    assert outstanding.unread(1) == [0, 0]  # it still combines
    outstanding.told(1, ())
    assert outstanding.unread(1) == [1, 1]
    outstanding.received(1)
    assert outstanding.unread(1) == [0, 1]
    # A stopped server's part may be used once more, so that it stays.
    assert [outstanding.needed(conversation) for conversation in numbers.of_worker(1)] == [[3], [3]]
    outstanding.received(2)
    assert outstanding.unread(1) == [0, 0]

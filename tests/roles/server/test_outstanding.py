"""Outstanding messages and orders: they restore a worker that forgets everything again and again.

Two copies of a naive worker receive the same messages and orders. After it forgets, one copy receives
only what ``Outstanding.again`` returns: both must send the same.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothetical
from hypothesis import strategies as st

from testbed.checkpoints.values import decode, encode
from testbed.roles.orders import OrderKind
from testbed.roles.server.outstanding import STORED, Again, Outstanding
from testbed.training.worker_protocols import WORKER_PROTOCOLS, Pull, WorkerProtocol
from testbed.updates import FloatVector

Message: TypeAlias = tuple[int, int, bool]
"""The first value of the vector computed at, the number of the mini-batch, and True if late."""


def vector(version: int) -> FloatVector:
    return np.full(3, version, np.float32)


class Worker:
    """A naive worker: keeps the vectors that it was sent, and obeys its orders one after the other."""

    def __init__(self, protocol: type[WorkerProtocol]) -> None:
        self.protocol = protocol()
        self.has: dict[int, FloatVector] = {}
        self.unused: deque[int] = deque()
        self.drawn = 0
        self.sends: deque[Message] = deque()
        self.last: FloatVector | None = None
        self._mini_batch: int | None = None

    def sent(self, version: int, parameters: FloatVector) -> None:
        self.has[version] = self.last = parameters
        self.unused.append(version)
        self._begin_if_it_asks()

    def _begin_if_it_asks(self) -> None:
        # A worker that asks computes at each answer as it arrives.
        if self.protocol.asks and self.protocol.computing is None and self.unused:
            self._begin(self.protocol.arrived(self.unused.popleft()))

    def _begin(self, version: int | None) -> None:
        if version is not None:
            self._mini_batch = self.drawn
            self.drawn += 1

    def told(self, what: OrderKind, number: int) -> None:
        match what:
            case OrderKind.RESUME:
                assert not self.sends or not self.protocol.asks
                self.drawn = number
            case OrderKind.ARRIVED:
                assert number in self.has
                self._begin(self.protocol.arrived(number))
            case OrderKind.FINISHED:
                version = self.protocol.computing
                assert version is not None
                assert self._mini_batch is not None
                finish = self.protocol.finished()
                self.sends.append((int(self.has[version][0]), self._mini_batch, finish.late))
                if self.protocol.asks:
                    self.protocol.computing = None
                self._begin(finish.next)
                self._begin_if_it_asks()

    @classmethod
    def again(cls, protocol: type[WorkerProtocol], again: Again) -> "Worker":
        """Make a worker that has received only the messages and orders in ``again``."""
        worker = cls(protocol)
        worker.last = again.base
        # The other orders wait until the frames are there, as they do for a worker that asks.
        (what, number), *orders = again.orders
        assert what is OrderKind.RESUME
        worker.told(what, number)
        for version, parameters in again.frames:
            worker.sent(version, parameters)
        for order in orders:
            worker.told(*order)
        return worker


class Scene:
    """One worker's clock and server, with a worker that never forgets and one that does."""

    def __init__(self, protocol: type[WorkerProtocol], *, changed: bool) -> None:
        self.kind = protocol
        self.changed = changed
        self.outstanding = Outstanding(1, asks=protocol.asks, changed=changed)
        self.clocks = protocol()  # the worker's protocol, as the clock follows it
        self.version = -1
        self.under_way: deque[int] = deque()
        self.busy = False
        self.told = False
        self.unread = 0
        self.steady, self.forgetful = Worker(protocol), Worker(protocol)

    def each(self, what: OrderKind, number: int = 0) -> None:
        self.steady.told(what, number)
        self.forgetful.told(what, number)

    def send(self) -> None:
        if self.kind.asks and (self.busy or self.unread or self.under_way):
            return  # it has not asked
        self.version += 1
        self.outstanding.sent(0, self.version, self.version, vector(self.version))
        self.under_way.append(self.version)
        self.steady.sent(self.version, vector(self.version))
        self.forgetful.sent(self.version, vector(self.version))

    def arrive(self) -> None:
        if not self.under_way:
            return
        version = self.under_way.popleft()
        self.outstanding.arrived(0, version)
        if not self.kind.asks:
            self.each(OrderKind.ARRIVED, version)
        self._begin(self.clocks.arrived(version))

    def _begin(self, version: int | None) -> None:
        if version is not None:
            self.outstanding.begun(0, version)
            self.busy, self.told = True, False

    def tell(self) -> None:
        """Tell the workers ahead that their computation is over, if it is certain to be finished."""
        if self.busy and not self.told and self.kind.certain:
            self.outstanding.told(0, late=False)
            self.each(OrderKind.FINISHED)
            self.told = True

    def finish(self) -> None:
        if not self.busy:
            return
        finish = self.clocks.finished()
        if not self.told:
            self.outstanding.told(0, late=finish.late)
            self.each(OrderKind.FINISHED)
        self.busy = False
        self.unread += 1
        self._begin(finish.next)

    def read(self) -> None:
        if self.unread:
            self.unread -= 1
            self.outstanding.received(0)
            assert self.steady.sends.popleft() == self.forgetful.sends.popleft()

    def come_back(self) -> None:
        """Restore the server from a checkpoint of this moment; the worker connects again."""
        tree, arrays = encode(self.outstanding.state(), STORED)
        self.outstanding = Outstanding(1, asks=self.kind.asks, changed=self.changed)
        self.outstanding.restore(decode(tree, [one.copy() for one in arrays], STORED))
        again = self.outstanding.again(0)
        self.forgetful = Worker.again(self.kind, again)
        assert self.forgetful.sends == self.steady.sends
        if self.changed and self.steady.last is not None:
            # The next answer states the changes since this vector.
            assert self.forgetful.last is not None
            np.testing.assert_array_equal(self.forgetful.last, self.steady.last)
        if not self.changed:
            assert again.base is None


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
@pytest.mark.parametrize("protocol", WORKER_PROTOCOLS.values())
@hypothetical(deadline=None)  # the host may be busy
@given(st.lists(st.sampled_from(STEPS), min_size=30, max_size=80))
@example([Scene.send, Scene.arrive, Scene.send, Scene.arrive, Scene.come_back, Scene.finish])
def test_a_restored_worker_sends_the_same_as_one_that_never_left(
    protocol: type[WorkerProtocol], changed: bool, steps: list[Step]
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
    assert len(scene.outstanding._sent) == (changed and scene.version >= 0)


def test_an_example_of_the_orders_that_restore_a_late_worker() -> None:
    outstanding = Outstanding(2, asks=False, changed=False)
    for version in (0, 1):
        outstanding.sent(1, version, version, vector(version))
        outstanding.arrived(1, version)
        if version == 0:
            outstanding.begun(1, 0)
    outstanding.told(1, late=True)
    outstanding.begun(1, 1)
    again = outstanding.again(1)
    assert [version for version, _ in again.frames] == [0, 1]
    assert again.orders == [
        (OrderKind.RESUME, 0),
        (OrderKind.ARRIVED, 0),
        (OrderKind.ARRIVED, 1),
        (OrderKind.FINISHED, 0),
    ]
    assert outstanding.again(0).orders == [(OrderKind.RESUME, 0)]


@pytest.mark.parametrize("changed", [False, True])
def test_nothing_is_kept_for_a_lost_worker_and_it_returns_with_nothing(changed: bool) -> None:
    outstanding = Outstanding(1, asks=True, changed=changed)
    outstanding.sent(0, 4, 4, vector(4))
    outstanding.arrived(0, 4)
    outstanding.begun(0, 4)
    outstanding.sent(0, 5, 5, vector(5))
    outstanding.lose(0)
    assert outstanding.is_lost(0)
    outstanding.sent(0, 6, 6, vector(6))  # the sender does not know that it is lost
    assert not len(outstanding._sent)
    outstanding.returned(0)
    assert not outstanding.is_lost(0)
    assert outstanding.again(0) == Again(None, [], [(OrderKind.RESUME, 0)])


def test_a_vector_is_kept_once_and_as_it_was_sent() -> None:
    outstanding = Outstanding(2, asks=Pull.asks, changed=True)
    memory = vector(7)
    for worker in (0, 1):
        outstanding.sent(worker, 7, 7, memory)
    memory[:] = 0
    assert len(outstanding._sent) == 1
    for worker in (0, 1):
        ((_, sent),) = outstanding.again(worker).frames
        np.testing.assert_array_equal(sent, vector(7))

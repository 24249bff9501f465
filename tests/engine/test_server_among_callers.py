"""A server among callers that greet, ask, push, are silent, go and come back, in any order."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothetical
from hypothesis import strategies as st

from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.server_half import ServerHalf
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.engine.events import (
    Action,
    Closed,
    End,
    Event,
    Heard,
    Opened,
    Over,
    Pull,
    Record,
    Send,
    Stop,
)
from testbed.engine.server import Phase, Server
from testbed.messages.reports import Suspected, Welcomed
from testbed.training.parameter_service import Pushed
from testbed.training.service_entries import Connected, EvaluationPoint, UpdateEntry
from tests.engine.serving import Answered, Serving
from tests.training.test_parameter_service import SIZE, dense, service

CALLERS = 3
PATIENCE = 2.0


class Scene(Serving):
    """A server, and what its callers know of it."""

    def __init__(self, half: ServerHalf, updates: int) -> None:
        made = service(half, workers=CALLERS, updates=updates, suspect_after=PATIENCE)[0]
        super().__init__(Server(made, CALLERS, absence=1e6))
        self.asks = half.protocol == "pull"
        self.there: set[int] = set()
        # By caller: whether it waits for an answer, the version that it was sent last in this session
        # and has not pushed for, and since when it has had to send something.
        self.asked = [False] * CALLERS
        self.has: list[int | None] = [None] * CALLERS
        self.newest = [-1] * CALLERS
        self.turn = [0.0] * CALLERS
        self.suspected: set[int] = set()
        self.bytes = self.taken = self.rows = 0
        self.over = False

    def _tell(self, event: Event) -> list[Action]:
        said = super()._tell(event)
        self._check(said)
        return said

    def _check(self, said: list[Action]) -> None:
        for action in said:
            match action:
                case Send(caller, Answered(version)):
                    assert not self.over
                    assert caller in self.there and self.has_room(caller)
                    assert caller not in self.suspected
                    assert self.asked[caller] or not self.asks
                    assert version == self.service.half.version >= self.newest[caller]
                    if self.asks or self.has[caller] is None:
                        self.turn[caller] = self.now
                    self.asked[caller] = False
                    self.has[caller] = self.newest[caller] = version
                case Send(caller, Stop()):
                    assert self.over and caller in self.there
                case Over():
                    assert not self.over
                    self.over = True
                case Record(UpdateEntry()):
                    self.rows += 1
                case Record(Suspected(caller, silent)):
                    assert caller in self.there - self.suspected
                    assert silent >= PATIENCE
                    assert self.now - self.turn[caller] >= silent
                    self.suspected.add(caller)
                case Record(Welcomed(caller)):
                    self.suspected.remove(caller)
                case Record(Connected(there)):
                    assert there == len(self.there)
                case Record(EvaluationPoint()):
                    assert not self.over

    def do(self, caller: int, *events: Event) -> None:
        """Let something come of a caller; it loses its connection if it must not send that."""
        try:
            for event in events:
                self.tell(event)
        except ValueError:
            self.close(caller)

    # -- what may happen

    def open(self, caller: int) -> None:
        if caller not in self.there:
            self.there.add(caller)
            self.asked[caller], self.has[caller], self.newest[caller] = False, None, -1
            self.turn[caller] = self.now
            self.bytes += 20
            self.do(caller, Opened(caller, size=20))

    def ask(self, caller: int) -> None:
        if caller in self.there and self.asks:
            waits, self.asked[caller] = self.asked[caller], True
            self.bytes += 10
            self.do(caller, Heard(caller, Pull(), 10))
            assert (waits and not self.over) <= (caller not in self.there), "it asked twice"

    def push(self, caller: int) -> None:
        base = self.has[caller]
        if caller in self.there and base is not None:
            self.has[caller] = None
            self._push(caller, dense(base), base)

    def report(self, caller: int) -> None:
        base = self.has[caller]
        if caller in self.there and base is not None and not self.asks:
            self.has[caller] = None
            self._push(caller, Pushed(base, None, 0, 0.0), base)

    def _push(self, caller: int, push: Pushed, base: int) -> None:
        expected = self.role.phase is Phase.TRAINING
        self.taken += expected
        self.bytes += 100
        self.turn[caller] = self.now
        self.do(caller, Heard(caller, push, 100))
        assert caller in self.there, "what it was sent it may push for"

    def close(self, caller: int) -> None:
        if caller in self.there:
            self.there.remove(caller)
            self.suspected.discard(caller)
            self.asked[caller], self.has[caller] = False, None
            self.tell(Closed(caller))

    def crowd(self, caller: int) -> None:
        self.crowded ^= {caller}
        self.settle()

    def pass_time(self, caller: int) -> None:
        self.wait(0.7 * (1 + caller))

    def end(self, caller: int) -> None:
        if caller == 0:
            self.tell(End())


STEPS: list[Callable[[Scene, int], None]] = [
    *[Scene.open] * 2,
    *[Scene.ask] * 4,
    *[Scene.push] * 4,
    Scene.report,
    Scene.close,
    Scene.crowd,
    Scene.pass_time,
    Scene.end,
]


def asynchronous() -> ServerHalf:
    return StalenessDivided(np.zeros(SIZE, np.float32), 0.5)


def waits() -> ServerHalf:
    return SynchronousServer(np.zeros(SIZE, np.float32), 0.5, 2, "pull")


def broadcasts() -> ServerHalf:
    return SynchronousServer(np.zeros(SIZE, np.float32), 0.5, 2, "push-and-wait")


@pytest.mark.parametrize("half", [asynchronous, waits, broadcasts])
@hypothetical(deadline=None)
@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, CALLERS - 1)), max_size=80),
)
def test_a_server_answers_who_may_be_answered_and_ends_once(
    half: Callable[[], ServerHalf],
    updates: int,
    steps: list[tuple[Callable[[Scene, int], None], int]],
) -> None:
    scene = Scene(half(), updates)
    for caller in range(CALLERS):
        scene.open(caller)
    for step, caller in steps:
        step(scene, caller)
        assert scene.service.message_bytes == scene.bytes
        assert scene.rows == scene.taken
        assert scene.service.half.version <= updates
        assert scene.over == (scene.role.phase is Phase.OVER)
        assert set(scene.service.present) == scene.there
    # Nobody waits who may be answered.
    if scene.role.phase is Phase.TRAINING and half is asynchronous:
        for caller in scene.there - scene.crowded - scene.suspected:
            assert not scene.asked[caller]
    if scene.service.finished:
        assert scene.over

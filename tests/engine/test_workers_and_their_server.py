"""Workers and their server, which faults kill and which come back, with messages in any order."""

import copy
from collections import deque
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.engine.events import (
    Action,
    Closed,
    Compute,
    Computed,
    Event,
    Heard,
    Job,
    Opened,
    Over,
    Pull,
    Push,
    Received,
    Report,
    Restored,
    Send,
    Stop,
    Stopped,
)
from testbed.engine.server import Server
from testbed.engine.worker import Worker
from testbed.training.parameter_service import Pushed
from tests.engine.serving import Answered, Serving
from tests.many_examples import many
from tests.training.test_parameter_service import SIZE, dense, service

WORKERS = 3
UPDATES = 12
Half = Callable[[], ServerHalf]


class Caller:
    """One worker, its connection, and what is on its way over that."""

    def __init__(self, role: Worker) -> None:
        self.role = role
        self.session = -1
        self.open = False
        self.job: Job | None = None
        self.up: deque[Event] = deque()
        self.down: deque[Event] = deque()


class Scene(Serving):
    """A server that may be killed, under the wall clock, and its workers."""

    def __init__(self, half: Half, patience: float | None) -> None:
        self._half, self._patience = half, patience
        self.protocol = half().protocol
        super().__init__(self._made(half()))
        self.callers = [self._caller() for _ in range(WORKERS)]
        self.kept = self._checkpoint()
        for worker in range(WORKERS):
            self.open(worker)

    def _made(self, half: ServerHalf) -> Server:
        made, _ = service(half, workers=WORKERS, updates=UPDATES, suspect_after=self._patience)
        return Server(made, WORKERS, absence=1e6)

    def _caller(self) -> Caller:
        return Caller(Worker(self.protocol, 1))

    def _checkpoint(self) -> tuple[dict[str, Any], list[int]]:
        """Return a copy of what the server would be restored from: its half, and who was there."""
        return copy.deepcopy((self.service.half.state(), self.service.present))

    # -- what passes between them

    def _tell(self, event: Event) -> list[Action]:
        said = super()._tell(event)
        for action in said:
            match action:
                case Send(worker, Answered(version)):
                    self.callers[worker].down.append(Received(0, version))
                case Send(worker, Stop()):
                    self.callers[worker].down.append(Stopped(0))
                case Over():
                    for worker in self.service.present:
                        self.callers[worker].down.append(Stopped(0))
        return said

    def tell_worker(self, worker: int, event: Event) -> None:
        caller = self.callers[worker]
        for action in caller.role.handle(event):
            match action:
                case Compute(job):
                    caller.job = job
                case Send(_, message) if caller.open:
                    caller.up.append(Heard(worker, self._sent(message), 10))

    @staticmethod
    def _sent(message: object) -> Pull | Pushed:
        match message:
            case Push(job):
                return dense(job.bases[0])
            case Report(version):
                return Pushed(version, None, 0, 0.0)
        return Pull()

    # -- what may happen

    def open(self, worker: int) -> None:
        caller = self.callers[worker]
        if not caller.open:
            caller.open = True
            caller.session += 1
            self.tell(Opened(worker, size=20))
            self.tell_worker(worker, Opened(0, caller.session))

    def up(self, worker: int) -> None:
        caller = self.callers[worker]
        if caller.up:
            before = self.service.half.version
            self.tell(caller.up.popleft())
            if self.service.half.version != before and self.service.half.version % 3 == 0:
                self.kept = self._checkpoint()

    def down(self, worker: int) -> None:
        caller = self.callers[worker]
        if caller.down:
            self.tell_worker(worker, caller.down.popleft())

    def compute(self, worker: int) -> None:
        caller = self.callers[worker]
        if caller.job is not None:
            job, caller.job = caller.job, None
            self.tell_worker(worker, Computed(job))

    def kill(self, worker: int) -> None:
        """A worker is killed; another incarnation greets later."""
        was_open = self.callers[worker].open
        self.callers[worker] = self._caller()
        if was_open:
            self.tell(Closed(worker))

    def kill_server(self, _: int) -> None:
        """The server is killed and restored; all connections are lost."""
        if self.service.finished:
            return
        for caller in self.callers:
            caller.open = False
            caller.up.clear()
            caller.down.clear()
        state, there = copy.deepcopy(self.kept)
        half = self._half()
        half.restore(state)
        for worker in there:
            half.forget(worker)
        self.role, self.tokens, self._at_once = self._made(half), [], []
        self.tell(Restored(there))

    def pass_time(self, worker: int) -> None:
        self.wait(0.7 * (1 + worker))


STEPS: list[Callable[[Scene, int], None]] = [
    *[Scene.up] * 6,
    *[Scene.down] * 6,
    *[Scene.compute] * 6,
    *[Scene.open] * 2,
    Scene.kill,
    Scene.kill_server,
    Scene.pass_time,
]


def asynchronous() -> ServerHalf:
    return StalenessDivided(np.zeros(SIZE, np.float32), 0.5)


def synchronous(wait_for: int, protocol: Protocol) -> Half:
    return lambda: SynchronousServer(np.zeros(SIZE, np.float32), 0.5, wait_for, protocol)


@pytest.mark.parametrize("patience", [None, 2.0])
@pytest.mark.parametrize(
    "half",
    [
        asynchronous,
        *(
            synchronous(wait_for, protocol)
            for wait_for in (2, WORKERS)
            for protocol in get_args(Protocol)
        ),
    ],
)
@many(60)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, WORKERS - 1)), max_size=120))
def test_whatever_has_happened_the_run_makes_its_updates(
    half: Half, patience: float | None, steps: list[tuple[Callable[[Scene, int], None], int]]
) -> None:
    scene = Scene(half, patience)
    for do, worker in steps:
        do(scene, worker)
    for _ in range(40 * UPDATES):
        if scene.service.finished:
            break
        for worker in range(WORKERS):
            for step in (Scene.open, Scene.down, Scene.compute, Scene.up, Scene.up):
                step(scene, worker)
        scene.wait(0.1)
    assert scene.service.finished

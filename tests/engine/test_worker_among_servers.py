"""A worker among servers that answer, send, are killed, come back and stop, in any order."""

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import settings as hypothetical
from hypothesis import strategies as st

from testbed.algorithms.server_half import Protocol
from testbed.algorithms.worker_half import ONE_GRADIENT, Leg
from testbed.engine.events import (
    Compute,
    Computed,
    Event,
    Job,
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
from testbed.engine.worker import Worker

SEVERAL = (Leg(2, pushes=True, asks=False), Leg(1, pushes=True, asks=True))


class Scene:
    """One worker, and what its servers know of it."""

    def __init__(self, protocol: Protocol | None, servers: int, legs: tuple[Leg, ...]) -> None:
        """Start a worker; with no protocol, one that computes while its pushes leave."""
        self.asks, self.legs = protocol in ("pull", None), legs
        self.overlaps = protocol is None
        self.worker = (
            OverlappingWorker(servers, legs)
            if protocol is None
            else Worker(protocol, servers, legs)
        )
        self.every = range(servers)
        self.session = [0] * servers
        self.version = [5000] * servers
        self.asked = [False] * servers
        self.stopped = [False] * servers
        # By server: the pushes for each version that it has sent in this session and may still get.
        self.open: list[dict[int, int]] = [{} for _ in self.every]
        self.newest: list[int | None] = [None] * servers
        self.job: Job | None = None
        self.numbers: list[int] = []
        self.over = False
        for server in self.every:
            self.tell(Opened(server))

    def tell(self, event: Event) -> None:
        for action in self.worker.handle(event):
            assert not self.over
            match action:
                case Send(server) if self.stopped[server]:
                    pass  # it counts what comes, and its last parameters are computed at again
                case Send(server, Pull()):
                    assert self.asks
                    assert not self.asked[server]
                    self.asked[server] = True
                case Send(server, Push(job)):
                    left = self.open[server]
                    assert left.get(job.bases[server], 0) > 0
                    left[job.bases[server]] -= 1
                case Send(server, Report(version)):
                    assert not self.asks
                    assert version in self.open[server]
                case Compute(job):
                    assert not self.numbers or job.number > self.numbers[-1]
                    self.numbers.append(job.number)
                    self.job = job
                case Over():
                    assert all(self.stopped)
                    self.over = True

    # -- what may happen

    def send(self, server: int) -> None:
        """A server answers, or sends its next version unasked."""
        if self.stopped[server] or (self.asks and not self.asked[server]):
            return
        self.asked[server] = False
        self.version[server] += 1
        pushes = sum(leg.pushes for leg in self.legs)
        if self.overlaps:
            before = self.newest[server]
            pushes += before is None
            self.open[server] = {v: n for v, n in self.open[server].items() if v == before}
        elif self.asks:
            self.open[server].clear()
        self.open[server][self.version[server]] = pushes
        self.newest[server] = self.version[server]
        self.tell(Received(server, self.version[server]))

    def compute(self, _: int) -> None:
        """The computation under way is over."""
        if self.job is not None:
            job, self.job = self.job, None
            self.tell(Computed(job))

    def kill(self, server: int) -> None:
        """A server was killed, and is back with an earlier version."""
        if self.stopped[server]:
            return
        self.session[server] += 1
        self.version[server] = 100 * (50 - self.session[server])
        self.open[server].clear()
        self.asked[server] = False
        self.newest[server] = None
        self.tell(Opened(server, self.session[server]))

    def stop(self, server: int) -> None:
        """A server's updates are complete; it has sent parameters in this session."""
        if not self.stopped[server] and self.newest[server] is not None:
            self.stopped[server] = True
            self.asked[server] = False
            self.tell(Stopped(server))


Step = Callable[[Scene, int], None]
STEPS: list[Step] = [Scene.send, Scene.send, Scene.send, Scene.compute, Scene.compute, Scene.kill]


@pytest.mark.parametrize("protocol", [*get_args(Protocol), None])
@pytest.mark.parametrize("several", [False, True])
@hypothetical(deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from([*STEPS, Scene.stop]), st.integers(0, 2)), max_size=60),
)
def test_nothing_is_pushed_twice_or_out_of_nothing_and_the_worker_goes_on(
    protocol: Protocol | None, several: bool, servers: int, steps: list[tuple[Step, int]]
) -> None:
    legs = SEVERAL if several and protocol == "pull" else tuple(ONE_GRADIENT)
    scene = Scene(protocol, servers, legs)
    for step, server in steps:
        if server < servers:
            step(scene, server)
    # Whatever has happened: while a server goes on, the worker computes again.
    for _ in range(3):
        if all(scene.stopped):
            assert scene.over
            return
        computed = len(scene.numbers)
        for _ in range(2 + len(legs)):
            for server in scene.every:
                scene.send(server)
            scene.compute(0)
        assert len(scene.numbers) > computed

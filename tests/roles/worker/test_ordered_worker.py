"""A worker that obeys the orders of the virtual clock, with servers that are sockets of the test."""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.server_half import Protocol
from testbed.checkpoints.state_file import StateFile
from testbed.learning.data.datasets import load
from testbed.roles.orders import OrderChannel, OrderKind, state_number
from testbed.roles.transport.greeting import Greeted, Identity
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker import worker_process as module
from testbed.telemetry.state_board import DeviceLine
from testbed.training import computation
from testbed.training.pushed_parts import PushedParts
from testbed.training.times import Times
from testbed.wire.encodings import DENSE
from testbed.wire.frames import HEADER, Head, Kind, header, parse
from tests.roles.worker.test_faults_after_pushes import no_faults
from tests.settings import SIMPLE, with_changes

ANY = dict.fromkeys(Kind, 1 << 30)


class Scene:
    """A worker in a thread, its clock, and the servers' ends of its connections."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        servers: int,
        algorithm: dict[str, Any],
        *,
        goes_on: bool,
        states: StateFile | None = None,
    ) -> None:
        addresses = [f"127.0.0.{1 + index}" for index in range(servers)]
        chosen = with_changes(SIMPLE, algorithm=algorithm, server_addresses=addresses)
        pairs = [socket.socketpair() for _ in range(servers)]
        self.servers = [theirs for _, theirs in pairs]
        for one in self.servers:
            one.settimeout(10)

        greeted = threading.Event()

        def connect(*_: object, server: int, before: Callable[[], None]) -> Greeted:
            before()
            if server == servers - 1:
                greeted.set()
            return Greeted(pairs[server][0], goes_on=goes_on)

        monkeypatch.setattr(module, "connect", connect)
        dataset = load("digits")
        learner = computation.learner(chosen, dataset.inputs)
        self.parts = PushedParts.of_run(chosen, learner.layout)
        self.clock, orders = (
            OrderChannel(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        )
        images = computation.parts(chosen, dataset.train_labels)[0]
        turns = TurnTaking(learner, (), None)
        of_run = self.parts, Times.of(chosen)
        self.working = threading.Thread(
            target=module.work,
            args=(
                *(chosen, Identity(0), dataset, images, turns, *of_run, orders),
                *(DeviceLine.unread(), no_faults(0)),
            ),
            kwargs={"states": states},
            daemon=True,
        )
        self.working.start()
        assert greeted.wait(10)  # orders from before do not count

    def order(self, *orders: tuple[OrderKind, int]) -> None:
        self.clock.give_all(orders)

    def parameters(self, server: int, version: int) -> None:
        body = np.zeros(self.parts.cut[server].size, np.float32).tobytes()
        head = header(Kind.PARAMETERS, version, encoding=DENSE, length=len(body))
        self.servers[server].sendall(head + body)

    def heard(self, server: int) -> Head:
        """Return the head of the next message to a server."""
        head = parse(self._read(server, HEADER.size), ANY)
        self._read(server, head.length)
        return head

    def pushed(self, server: int = 0) -> bytes:
        """Return the body of the next message to a server, which is a push."""
        head = parse(self._read(server, HEADER.size), ANY)
        assert head.kind is Kind.PUSH
        return self._read(server, head.length)

    def _read(self, server: int, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self.servers[server].recv(count - len(data))
        return data

    def sent(self, server: int, count: int) -> list[tuple[Kind, int]]:
        """Return the kinds and versions of the next messages to a server."""
        found = [self.heard(server) for _ in range(count)]
        return [(one.kind, one.number) for one in found]

    def stop(self) -> None:
        """End training, and check that the worker has sent nothing more."""
        self.order((OrderKind.STOP, 0))
        for one in self.servers:
            one.sendall(header(Kind.STOP))
            one.shutdown(socket.SHUT_WR)
        self.working.join(10)
        assert not self.working.is_alive()
        assert [one.recv(1) for one in self.servers] == [b""] * len(self.servers)


Make = Callable[..., Scene]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Scene] = []

    def scene(
        servers: int,
        protocol: Protocol = "pull",
        *,
        goes_on: bool = False,
        states: StateFile | None = None,
        algorithm: dict[str, Any] | None = None,
    ) -> Scene:
        chosen = algorithm or {"name": "sync-sgd", "protocol": protocol}
        made.append(Scene(monkeypatch, servers, chosen, goes_on=goes_on, states=states))
        return made[-1]

    yield scene
    for one in made:
        for end in one.servers:
            end.close()


def begin(versions: Sequence[int]) -> list[tuple[OrderKind, int]]:
    several = len(versions)
    arrived = [(OrderKind.ARRIVED, one * several + place) for place, one in enumerate(versions)]
    return [*arrived, (OrderKind.BEGIN, 0)]


@pytest.mark.parametrize("servers", [1, 2])
def test_a_worker_that_asks_sends_when_the_clock_says_so(make: Make, servers: int) -> None:
    scene = make(servers, "pull")
    for server in range(servers):
        assert scene.sent(server, 1) == [(Kind.PULL, 0)]
        scene.parameters(server, 4)
    for server in range(servers):
        scene.servers[server].settimeout(0.2)
        with pytest.raises(TimeoutError):
            scene.servers[server].recv(1)
        scene.servers[server].settimeout(10)
    scene.order((OrderKind.FINISHED, 0))
    for server in range(servers):
        assert scene.sent(server, 2) == [(Kind.PUSH, 4), (Kind.PULL, 0)]
    scene.stop()


def test_what_a_server_has_read_before_it_was_restored_is_not_sent_to_it_again(make: Make) -> None:
    scene = make(2, "pull", goes_on=True)
    scene.order((OrderKind.RESUME, 3), *begin([4, 4]), (OrderKind.READ, 1), (OrderKind.FINISHED, 0))
    for version in (4, 5):  # with its answer, which was under way at the checkpoint
        scene.parameters(1, version)
    scene.parameters(0, 4)
    assert scene.sent(0, 2) == [(Kind.PUSH, 4), (Kind.PULL, 0)]
    scene.parameters(0, 6)
    scene.order((OrderKind.FINISHED, 0))
    assert scene.sent(0, 2) == [(Kind.PUSH, 6), (Kind.PULL, 0)]
    assert scene.sent(1, 2) == [(Kind.PUSH, 5), (Kind.PULL, 0)]
    scene.stop()


@pytest.mark.parametrize("servers", [1, 2])
def test_a_worker_that_waits_for_answers_is_brought_back_to_that(make: Make, servers: int) -> None:
    scene = make(servers, "pull", goes_on=True)
    # Of several, what it had computed at comes first, and is not new.
    known = [] if servers == 1 else begin([4, 4])[:-1]
    scene.order((OrderKind.RESUME, 3), *known, (OrderKind.WAIT, 0), (OrderKind.FINISHED, 0))
    for server in range(servers):
        for version in [4] * (servers > 1) + [5]:
            scene.parameters(server, version)
    for server in range(servers):
        assert scene.sent(server, 2) == [(Kind.PUSH, 5), (Kind.PULL, 0)]
    scene.stop()


@pytest.mark.parametrize("servers", [1, 2])
def test_a_worker_that_is_sent_every_version_computes_at_those_of_its_order(
    make: Make, servers: int
) -> None:
    scene, every = make(servers, "push-and-wait"), range(servers)
    for version in (0, 1, 2):
        for server in every:
            scene.parameters(server, version)
    scene.order(*begin([0] * servers))
    # A newer version that arrives meanwhile changes nothing of what is computed.
    scene.order(*[(OrderKind.ARRIVED, servers + server) for server in every])
    scene.order((OrderKind.FINISHED, 0), *begin([2] * servers))
    for server in every:
        assert scene.sent(server, 1) == [(Kind.PUSH, 0)]
    scene.order(*[(OrderKind.REPORT, server) for server in every], (OrderKind.FINISHED, 1))
    for server in every:
        assert scene.sent(server, 1) == [(Kind.FINISHED, 2)]
    scene.order(*begin([2] * servers), (OrderKind.FINISHED, 0))
    for server in every:
        assert scene.sent(server, 1) == [(Kind.PUSH, 2)]
    scene.stop()


def test_only_some_servers_may_get_a_report(make: Make) -> None:
    scene = make(2, "push-and-wait")
    scene.parameters(0, 3)
    scene.parameters(1, 4)
    scene.order(*begin([3, 4]), (OrderKind.REPORT, 0), (OrderKind.FINISHED, 0))
    assert scene.sent(0, 1) == [(Kind.FINISHED, 3)]
    assert scene.sent(1, 1) == [(Kind.PUSH, 4)]
    scene.stop()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    found = os.open(tmp_path / "worker-0", os.O_RDWR | os.O_CREAT)
    yield found
    os.close(found)


FEEDBACK = {"ratio": 0.05, "error_feedback": True}


@pytest.mark.parametrize("protocol", ["pull", "push-and-interrupt"])
def test_a_worker_goes_on_with_the_residual_that_it_had(
    make: Make, descriptor: int, protocol: Protocol
) -> None:
    """It has gone on by two computations since the checkpoint, and another process goes back."""
    own = {"name": "sync-sgd", "protocol": protocol, **FEEDBACK}

    def computed(scene: Scene, version: int, needed: int) -> bytes:
        scene.parameters(0, version)
        if protocol != "pull":
            scene.order(*begin([version]))
        scene.order((OrderKind.FINISHED, needed))
        body = scene.pushed()
        assert protocol != "pull" or scene.sent(0, 1) == [(Kind.PULL, 0)]
        return body

    scene = make(1, states=StateFile(descriptor), algorithm=own)
    if protocol == "pull":
        assert scene.sent(0, 1) == [(Kind.PULL, 0)]
    for version in range(2):
        computed(scene, version, version)
    scene.order((OrderKind.KEEP, state_number(0, 2)))
    bodies = [computed(scene, version, version) for version in range(2, 6)]
    scene.stop()
    file = StateFile(descriptor)
    assert set(file.numbers) >= {2, 5, 6}
    again = make(1, goes_on=True, states=file, algorithm=own)
    again.order((OrderKind.GO_ON, state_number(0, 2)), (OrderKind.RESUME, 2), (OrderKind.WAIT, 0))
    assert [computed(again, version, version) for version in range(2, 6)] == bodies
    again.stop()


def test_a_worker_goes_on_at_its_own_copy_and_with_the_sum_of_its_gradients(
    make: Make, descriptor: int
) -> None:
    """One of its pushes was on its way at the checkpoint, and what it computed next was not over."""
    own = {"name": "downpour", "push_every": 2, "fetch_every": 6}
    scene = make(1, states=StateFile(descriptor), algorithm=own)
    assert scene.sent(0, 1) == [(Kind.PULL, 0)]
    scene.parameters(0, 7)
    scene.order((OrderKind.FINISHED, 0))
    first = scene.pushed()
    scene.order((OrderKind.FINISHED, 1), (OrderKind.KEEP, state_number(0, 1)))
    second = scene.pushed()
    scene.order((OrderKind.FINISHED, 2))
    third = scene.pushed()
    assert scene.sent(0, 1) == [(Kind.PULL, 0)]
    scene.stop()
    assert len({first, second, third}) == 3
    again = make(1, goes_on=True, states=StateFile(descriptor), algorithm=own)
    again.order((OrderKind.GO_ON, state_number(0, 1)), (OrderKind.RESUME, 1), *begin([7]))
    again.order((OrderKind.FINISHED, 1), (OrderKind.RESUME, 2), *begin([7]))
    again.parameters(0, 7)
    assert again.pushed() == second
    again.order((OrderKind.FINISHED, 2))
    assert again.pushed() == third
    assert again.sent(0, 1) == [(Kind.PULL, 0)]
    again.parameters(0, 9)
    again.order((OrderKind.FINISHED, 3))
    assert again.sent(0, 1) == [(Kind.PUSH, 9)]
    again.stop()


def test_a_new_incarnation_leaves_what_checkpoints_need_of_the_one_before(
    make: Make, descriptor: int
) -> None:
    file = StateFile(descriptor)
    for ended in range(1, 5):
        file.write(state_number(0, ended), {}, lambda _: True)
    scene = make(1, "push-and-wait", states=file)
    scene.order((OrderKind.KEEP, state_number(0, 2)), (OrderKind.KEEP, state_number(0, 3)))
    scene.parameters(0, 4)
    scene.order(*begin([4]), (OrderKind.FINISHED, 0))
    assert scene.sent(0, 1) == [(Kind.PUSH, 4)]
    assert set(file.numbers) == {2, 3, 1}
    scene.stop()

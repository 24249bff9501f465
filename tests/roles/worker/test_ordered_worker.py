"""A worker that obeys the orders of the virtual clock, with servers that are sockets of the test."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from testbed.algorithms.server_half import Protocol
from testbed.learning.data.datasets import load
from testbed.roles.orders import OrderChannel, OrderKind
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
        self, monkeypatch: pytest.MonkeyPatch, servers: int, protocol: Protocol, *, goes_on: bool
    ) -> None:
        algorithm = {"name": "sync-sgd", "protocol": protocol}
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

    def scene(servers: int, protocol: Protocol, *, goes_on: bool = False) -> Scene:
        made.append(Scene(monkeypatch, servers, protocol, goes_on=goes_on))
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

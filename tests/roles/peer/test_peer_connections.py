"""Peers' connections over real sockets: each peer has its own loopback address.

Strangers send raw frames, so that no peer code decides what they send.
"""

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.channel import Channel
from testbed.experiment.spec import Spec
from testbed.messages.reports import (
    REPORTS,
    ConnectionClosed,
    EvaluationLeftOut,
    EventReported,
    RoleReport,
)
from testbed.planning.plan import plan
from testbed.roles import connections as served
from testbed.roles.evaluation import evaluator_link
from testbed.roles.orders import Order, OrderChannel, OrderKind
from testbed.roles.peer import peer_connections
from testbed.roles.peer.peer_connections import PeerConnections
from testbed.roles.reporting import RoleReporter
from testbed.roles.transport import greeting
from testbed.training.settings import Settings
from testbed.wire.frames import HEADER, Frame, Kind, header, parse
from tests.settings import with_changes

SIZE = 1000
LONGEST = 8 * SIZE
SECRET = bytes(range(32))
EVERYTHING = dict.fromkeys(Kind, 1 << 25)


def settings(peers: int, **changes: Any) -> Settings:
    spec = {
        "name": "connections",
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 4},
        "algorithms": ["all-to-all"],
        "devices": {"workers": peers},
        "clock": "virtual",
        "compute": {"distribution": "constant", "mean": "1s"},
    }
    fields: dict[str, Any] = {
        "peer_addresses": tuple(map(address, range(peers))),
        "own_processors": False,
        "secret": SECRET.hex(),
    }
    return with_changes(plan(Spec.model_validate(spec))[0].settings, **fields | changes)


def address(peer: int) -> str:
    return f"127.0.0.{peer + 1}"


class Place:
    """Peers that find each other on loopback, and raw connections to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("", 0)) as free:
            self.port = free.getsockname()[1]
        monkeypatch.setattr(served, "PORT", self.port)
        monkeypatch.setattr(greeting, "PORT", self.port)
        self.made: list[PeerConnections] = []
        self.threads: list[threading.Thread] = []
        self.connections: list[socket.socket] = []
        self.reports: dict[int, Channel] = {}
        self.errors: list[BaseException] = []
        self.spill: int | None = None

    def peer(
        self, number: int, peers: int, size: int = SIZE, *, incarnation: int = 0, **changes: Any
    ) -> PeerConnections:
        """Make a peer that listens at its own address; in a run, it listens at all of its node's."""
        listen = socket.create_server

        def at_its_address(where: tuple[str, int], **how: Any) -> socket.socket:
            return listen((address(number), where[1]), **how)

        ours, theirs = Channel.pair()
        self.reports[number] = ours
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "create_server", at_its_address)
            plan = settings(peers, **changes)
            neighbours = [other for other in range(peers) if other != number]
            peer = PeerConnections(
                *(plan, number, neighbours, size, LONGEST),
                RoleReporter(theirs),
                spill=self.spill,
                incarnation=incarnation,
            )
        self.made.append(peer)
        return peer

    def do(self, what: Callable[[], None]) -> threading.Thread:
        """Call ``what`` in a thread; an exception that it raises fails the test."""

        def run() -> None:
            try:
                what()
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    def together(self, *tasks: Callable[[], None]) -> None:
        for thread in [self.do(task) for task in tasks]:
            thread.join(20)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors.pop(0)

    def connected_peers(
        self, peers: int, evaluator: bool = True, **changes: Any
    ) -> list[PeerConnections]:
        """Make ``peers`` peers that are connected to each other."""
        all_of_them = [self.peer(number, peers, **changes) for number in range(peers)]
        if evaluator:
            self.greeted(0, peers)
        self.together(*(peer.connect for peer in all_of_them))
        return all_of_them

    def connect(self, peer: int, data: bytes) -> socket.socket:
        connection = socket.create_connection((address(peer), self.port), timeout=10)
        self.connections.append(connection)
        connection.sendall(data)
        return connection

    def greeted(self, peer: int, number: int) -> socket.socket:
        """Connect and greet, without waiting for the answer."""
        return self.connect(peer, hello(number))

    def reported(self, peer: int) -> list[RoleReport]:
        """Return what a peer has reported since the last call."""
        found = []
        ours = self.reports[peer]
        ours._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while report := REPORTS.receive(ours):
                found.append(report)
        return found

    def events(self, peer: int) -> list[str]:
        return [one.text for one in self.reported(peer) if isinstance(one, EventReported)]

    def close(self) -> None:
        for stranger in self.connections:
            stranger.close()
        for peer in self.made:
            for connection in peer.open:
                connection.socket.close()
            peer._listener.close()
            peer._selector.close()


def hello(number: int, secret: bytes = SECRET) -> bytes:
    return header(Kind.HELLO, number, length=len(secret)) + secret


def frames(peer: PeerConnections) -> list[tuple[int, Frame]]:
    """Take what has come, in order."""
    found = []
    for sender in peer.senders():
        frame = peer.next_from(sender)
        assert frame is not None
        found.append((sender, frame))
    return found


def push(number: int, value: float) -> list[bytes]:
    body = np.full(SIZE, value, np.float32).tobytes()
    return [header(Kind.PUSH, number, encoding=1, length=len(body)), body]


def receive(connection: socket.socket) -> tuple[Kind, int, bytes]:
    head = parse(exactly(connection, HEADER.size), EVERYTHING)
    return head.kind, head.number, exactly(connection, head.length)


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the peer closed the connection"
        data += more
    return data


def turned(peer: PeerConnections, until: Callable[[], Any]) -> Any:
    """Handle events of one peer until ``until`` returns a true value, and return that value."""
    deadline = time.monotonic() + 10
    while True:
        if value := until():
            return value
        assert time.monotonic() < deadline
        peer.turn(0.05)


def test_three_peers_connect_exchange_updates_and_disconnect(place: Place) -> None:
    peers = place.connected_peers(3)
    got: list[list[tuple[int, int, float]]] = [[], [], []]
    # Bytes received: a greeting is a header and the secret, a welcome only a header.
    assert [peer.message_bytes for peer in peers] == [2 * 64, 64 + 32, 2 * 32]

    def exchange(number: int) -> None:
        peer = peers[number]
        for step in range(20):
            for other in range(3):
                if other != number:
                    peer.send(other, push(step, number + step / 32))
        while len(got[number]) < 40:
            peer.turn(1.0)
            for sender, frame in frames(peer):
                values = np.frombuffer(frame.body, np.float32)
                assert (values == values[0]).all()
                got[number].append((sender, frame.number, float(values[0])))

    place.together(*(lambda number=number: exchange(number) for number in range(3)))
    for number in range(3):
        for other in {0, 1, 2} - {number}:
            # The messages of each sender arrive in its order.
            mine = [update[1:] for update in got[number] if update[0] == other]
            assert mine == [(step, other + step / 32) for step in range(20)]
    evaluator = place.connections[0]
    assert receive(evaluator)[:2] == (Kind.WELCOME, SIZE)
    evaluator.settimeout(10)

    def watch() -> None:
        assert receive(evaluator)[0] is Kind.STOP
        evaluator.close()

    place.together(*(peer.disconnect for peer in peers), watch)
    for number, peer in enumerate(peers):
        assert list(peer.lost()) == []
        assert peer.payload_bytes == 40 * 4 * SIZE
        greeting_bytes = [128, 96, 64][number]
        assert peer.message_bytes == greeting_bytes + 40 * (4 * SIZE + 32) + 2 * 32
        assert place.events(number) == []


def test_only_the_evaluated_peer_reports_its_connections(place: Place) -> None:
    peers = place.connected_peers(2)
    peers[1].send(0, push(0, 1.0))
    turned(peers[0], lambda: frames(peers[0]))
    place.connections[0].close()
    place.together(*(peer.disconnect for peer in peers))
    (closed,) = [one for one in place.reported(0) if isinstance(one, ConnectionClosed)]
    assert closed.worker == 1
    assert closed.payload_bytes == 4 * SIZE
    assert closed.message_bytes == peers[0].message_bytes
    assert closed.sent_bytes == peers[1].message_bytes
    assert closed.local_port == place.port
    assert closed.reason is None
    assert not [one for one in place.reported(1) if isinstance(one, ConnectionClosed)]


def until_there(peer: PeerConnections, sender: int) -> None:
    """Wait until bytes from ``sender`` can be read."""
    assert select.select([peer.workers[sender].socket], [], [], 30)[0]


def test_next_from_reads_from_no_other_peer(place: Place) -> None:
    peers = place.connected_peers(3)
    peers[1].send(0, push(1, 1.0))
    peers[2].send(0, push(2, 2.0))
    for sender in (1, 2):
        until_there(peers[0], sender)
    before = peers[0].message_bytes
    frame = peers[0].next_from(2)
    assert frame is not None
    assert frame.number == 2
    assert peers[0].message_bytes == before + 4 * SIZE + 32
    frame = peers[0].next_from(1)
    assert frame is not None
    assert frame.number == 1
    assert np.frombuffer(frame.body, np.float32)[0] == 1.0


def test_a_peer_knows_what_is_under_way(place: Place) -> None:
    peers = place.connected_peers(3)
    assert peers[1].under_way() == {}
    messages = 50
    for number, other in ((0, 1), (1, 0)):
        for queue in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            peers[number].workers[other].socket.setsockopt(socket.SOL_SOCKET, queue, 20_000)
    for number in range(messages):
        peers[1].send(0, push(number, 1.0))
    assert peers[1].workers[0].pending
    assert list(peers[1].under_way()) == [0]
    taken = 0
    while peers[1].workers[0].pending or taken < messages:
        peers[1].turn(0.0)
        peers[0].turn(0.01)
        taken += len(frames(peers[0]))
    turned(peers[1], lambda: peers[1].under_way() == {})


def test_orders_are_received_while_no_peer_is_read(place: Place) -> None:
    peers = place.connected_peers(2)
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    clock, mine = (OrderChannel(end) for end in pair)
    peers[0].also(mine.fileno())
    peers[1].send(0, push(1, 1.0))
    assert not peers[0].turn(0.1, reading=None)
    assert frames(peers[0]) == []
    clock.give(OrderKind.STOP)
    turned(peers[0], lambda: peers[0].turn(0.1, reading=None))
    assert mine.take() == Order(OrderKind.STOP)
    assert peers[0].next_from(1) is not None
    clock.close()
    mine.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "not the testbed's protocol"),
        (hello(2, bytes(32)), "without this run's secret"),
        (hello(2, b"short"), "without this run's secret"),
        (hello(0), "must not connect here"),
        (hello(1), "must not connect here"),
        (hello(3), "the evaluator is connected already"),
        (hello(4), "must not connect here"),
        (hello(2**64 - 1), "must not connect here"),
        (header(Kind.HELLO, 0, length=2**40), "over the limit of 32"),
        (push(0, 1.0)[0], "allowed now: HELLO"),
        (header(Kind.WELCOME, SIZE), "allowed now: HELLO"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_connections_without_a_valid_greeting_are_closed(
    place: Place, data: bytes, reason: str
) -> None:
    peer = place.peer(1, 3, evaluated_peer=1)
    place.greeted(1, 3)  # the evaluator
    turned(peer, lambda: peer.evaluator.connection)
    stranger = place.connect(1, data)
    (text,) = turned(peer, lambda: place.events(1))
    assert reason in text
    with contextlib.suppress(ConnectionResetError):
        assert stranger.recv(1) == b""
    assert list(peer.lost()) == []
    # Peer 2 itself can still connect.
    place.greeted(1, 2)
    turned(peer, lambda: 2 in peer.workers)
    assert peer.message_bytes == 64


def test_an_update_over_the_limit_closes_its_connection(place: Place) -> None:
    peer = place.peer(0, 2)
    other = place.greeted(0, 1)
    turned(peer, lambda: 1 in peer.workers)
    other.sendall(header(Kind.PUSH, 0, encoding=1, length=LONGEST + 1))
    (text,) = turned(peer, lambda: place.events(0))
    assert f"over the limit of {LONGEST}" in text
    assert list(peer.lost()) == [(1, 0)]


def test_a_peer_that_vanishes_is_lost_and_the_others_go_on(place: Place) -> None:
    peers = place.connected_peers(3)
    gone = peers[2]
    peers[2].send(0, push(7, 1.0))
    until_there(peers[0], 2)
    for connection in gone.workers.values():
        connection.socket.close()
    gone.workers.clear()
    frame = peers[0].next_from(2)  # the update that it had sent still arrives
    assert frame is not None
    assert frame.number == 7
    assert peers[0].next_from(2) is None
    assert list(peers[0].lost()) == [(2, 0)]
    assert list(peers[0].lost()) == []
    assert any("it closed the connection" in text for text in place.events(0))
    turned(peers[1], lambda: list(peers[1].lost()) == [(2, 0)])
    peers[0].send(2, push(0, 1.0))  # dropped: peer 2 is gone
    assert not peers[0].unsent(peers[0].handed_over())
    peers[0].send(1, push(8, 1.0))
    frame = peers[1].next_from(0)
    assert frame is not None
    assert frame.number == 8
    place.connections[0].close()
    place.together(*(peer.disconnect for peer in peers[:2]))


def test_a_peer_whose_connection_is_reset_in_mid_message_is_lost(place: Place) -> None:
    peer = place.peer(0, 2)
    other = place.greeted(0, 1)
    turned(peer, lambda: 1 in peer.workers)
    other.sendall(push(0, 1.0)[0] + bytes(100))
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()
    assert turned(peer, lambda: list(peer.lost())) == [(1, 0)]
    assert peer.payload_bytes == 0


def test_what_a_peer_sent_before_its_connection_broke_is_taken(place: Place) -> None:
    """Bytes are pending for it, so that the peer could as well find first that it cannot send."""
    peer = place.peer(0, 2)
    other = place.greeted(0, 1)
    turned(peer, lambda: 1 in peer.workers)
    while not peer.workers[1].pending:
        peer.send(1, push(0, 1.0))
    other.sendall(b"".join(push(7, 1.0)))
    other.close()  # with bytes unread: the connection is reset
    connection = peer.workers[1].socket
    assert turned(peer, lambda: list(peer.lost())) == [(1, 0)]
    assert connection.fileno() < 0
    assert [(sender, frame.number) for sender, frame in frames(peer)] == [(1, 7)]


def test_an_evaluator_whose_connection_breaks_at_the_end_ends_no_peer(place: Place) -> None:
    peer, evaluator = _peer_and_evaluator(place)
    evaluator.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    evaluator.close()
    peer.disconnect()
    assert peer.evaluator.connection is None


def test_a_peer_that_sends_stop_is_not_lost_and_is_still_sent_to(place: Place) -> None:
    peer = place.peer(0, 2)
    other = place.greeted(0, 1)
    turned(peer, lambda: 1 in peer.workers)
    other.sendall(b"".join(push(3, 1.0)) + header(Kind.STOP))
    other.shutdown(socket.SHUT_WR)
    turned(peer, lambda: peer.workers[1].ended)
    frame = peer.next_from(1)
    assert frame is not None
    assert frame.number == 3
    assert peer.next_from(1) is None
    peer.send(1, push(4, 2.0))
    assert list(peer.lost()) == []
    disconnecting = place.do(peer.disconnect)
    assert receive(other)[0] is Kind.WELCOME
    assert receive(other)[:2] == (Kind.PUSH, 4)
    assert receive(other)[0] is Kind.STOP
    assert other.recv(1) == b""
    disconnecting.join(10)
    assert not disconnecting.is_alive()
    assert place.events(0) == []


def test_bytes_for_which_the_kernel_has_no_room_are_sent_later(place: Place) -> None:
    peers = place.connected_peers(2)
    count = 300  # 1.2 MB, more than these buffers hold
    for number, other in ((0, 1), (1, 0)):
        connection = peers[number].workers[other].socket
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    for step in range(count):
        peers[0].send(1, push(step, 1.0))
    assert peers[0].unsent(peers[0].handed_over())
    numbers: list[int] = []

    def drain() -> None:
        while len(numbers) < count:
            peers[1].turn(1.0)
            numbers.extend(frame.number for _, frame in frames(peers[1]))

    def send() -> None:
        while peers[0].unsent(peers[0].handed_over()):
            peers[0].turn(1.0)

    place.together(drain, send)
    assert numbers == list(range(count))
    # ``part`` first sends the pending bytes.
    for step in range(count):
        peers[1].send(0, push(step, 1.0))
    assert peers[1].unsent(peers[1].handed_over())
    place.connections[0].close()
    place.together(*(peer.disconnect for peer in peers))
    assert peers[0].payload_bytes == count * 4 * SIZE


def test_evaluations_wait_for_a_slow_evaluator(place: Place, tmp_path: Path) -> None:
    with (tmp_path / "spill").open("w+b") as file:
        place.spill = file.fileno()
        _evaluate_2000_times(place)


def _evaluate_2000_times(place: Place) -> None:
    peer = place.peer(0, 1)
    evaluator = place.greeted(0, 1)
    peer.connect()
    parameters = np.zeros(SIZE, np.float32)
    for iteration in range(2000):
        peer.evaluate(iteration, parameters)
        parameters += 1  # the evaluator is sent a copy
    disconnecting = place.do(peer.disconnect)
    assert receive(evaluator)[0] is Kind.WELCOME
    for iteration in range(2000):
        kind, number, body = receive(evaluator)
        assert (kind, number) == (Kind.PARAMETERS, iteration)
        assert set(np.frombuffer(body, np.float32).tolist()) == {float(iteration)}
    assert receive(evaluator)[0] is Kind.STOP
    evaluator.close()
    disconnecting.join(10)
    assert not disconnecting.is_alive()
    assert peer.message_bytes == peer.payload_bytes == 0


def _peer_and_evaluator(place: Place, **changes: Any) -> tuple[PeerConnections, socket.socket]:
    """Return a peer without a file for snapshots, and the connection of its evaluator."""
    peer = place.peer(0, 1, **changes)
    evaluator = place.greeted(0, 1)
    peer.connect()
    assert receive(evaluator)[0] is Kind.WELCOME
    return peer, evaluator


def test_under_the_virtual_clock_a_peer_waits_for_a_slow_evaluator(place: Place) -> None:
    peer, evaluator = _peer_and_evaluator(place)
    parameters = np.zeros(SIZE, np.float32)
    evaluated: list[int] = []

    def evaluate() -> None:
        for iteration in range(5000):
            peer.evaluate(iteration, parameters)
            evaluated.append(iteration)
        peer.disconnect()  # which sends the models that still wait

    evaluating = place.do(evaluate)
    while not peer.evaluator.crowded:
        assert evaluating.is_alive()
        time.sleep(0.01)
    assert len(evaluated) < 5000
    for iteration in range(5000):
        assert receive(evaluator)[:2] == (Kind.PARAMETERS, iteration)
        if iteration % 100 == 99:
            evaluator.sendall(header(Kind.FINISHED, iteration))
    assert receive(evaluator)[0] is Kind.STOP
    evaluator.close()
    evaluating.join(20)
    assert not evaluating.is_alive()


@pytest.mark.parametrize("evaluations", [5000, 1], ids=["in training", "when it is over"])
def test_a_silent_evaluator_is_given_up_after_a_while(
    place: Place, monkeypatch: pytest.MonkeyPatch, evaluations: int
) -> None:
    monkeypatch.setattr(evaluator_link, "EVALUATOR_TIMEOUT", 0.5)
    peer, evaluator = _peer_and_evaluator(place)
    parameters = np.zeros(SIZE, np.float32)

    def evaluate() -> None:
        for iteration in range(evaluations):
            peer.evaluate(iteration, parameters)
        peer.disconnect()

    evaluating = place.do(evaluate)
    evaluating.join(20)
    given_up = not evaluating.is_alive()
    missing = f"{len(peer.evaluator._asked):,}"
    evaluator.close()  # which ends the wait in any case
    evaluating.join(20)
    assert given_up
    text = f"nothing was heard of it for 0.5 s: {missing} evaluations are missing"
    (told,) = [one for one in place.reported(0) if isinstance(one, EventReported)]
    assert (told.level, told.text, told.device) == ("error", text, 1)


def test_under_the_wall_clock_evaluations_without_room_are_left_out(place: Place) -> None:
    peer, evaluator = _peer_and_evaluator(place, clock="wall", updates=5000)
    parameters = np.zeros(SIZE, np.float32)

    def evaluate() -> None:
        for iteration in range(5001):
            peer.evaluate(iteration, parameters)
        peer.disconnect()

    evaluating = place.do(evaluate)
    left_out: list[int] = []
    while not left_out or left_out[-1] < 4999:  # the queue is full, and nothing is read
        report = REPORTS.receive(place.reports[0])
        assert report is not None
        if isinstance(report, EvaluationLeftOut):
            left_out.append(report.version)
    told: list[int] = []
    while (received := receive(evaluator))[0] is Kind.PARAMETERS:
        told.append(received[1])
    evaluator.close()
    evaluating.join(20)
    assert told[-1] == 5000  # the final version is always evaluated
    assert sorted(told + left_out) == list(range(5001))
    assert told == sorted(told)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"size": SIZE + 1}, f"its model has {SIZE} parameters, not {SIZE + 1}"),
        ({"secret": bytes(32).hex()}, "it closed the connection"),
    ],
)
def test_connect_raises_if_a_peer_refuses_the_greeting(
    place: Place, changes: dict[str, Any], reason: str
) -> None:
    called = place.peer(0, 2)
    caller = place.peer(1, 2, **changes)
    stop = threading.Event()

    def listen() -> None:
        while not stop.is_set():
            called.turn(0.05)

    listening = place.do(listen)
    try:
        with pytest.raises(ConnectionError, match="peer 0 refused peer 1's greeting"):
            caller.connect()
    finally:
        stop.set()
        listening.join(5)
    assert any(reason in text for text in place.events(1))


def test_connect_raises_if_other_peers_are_missing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_connections, "CONNECTING_TIMEOUT", 0.3)
    with pytest.raises(ConnectionRefusedError):
        place.peer(1, 3).connect()
    with pytest.raises(TimeoutError, match=r"only 0 of 2 other peers had connected after 0\.3 s"):
        place.peer(0, 3).connect()  # it answers no greeting from now on
    with pytest.raises(TimeoutError, match="peer 0 does not answer"):
        place.peer(2, 3).connect()

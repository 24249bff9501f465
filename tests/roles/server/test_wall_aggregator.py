"""An aggregator under the wall clock, with real sockets, in a thread on loopback.

The tests are its devices and the server above it, and send it raw frames.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.algorithms.hierarchical import Hierarchical, HierarchicalOptions
from testbed.algorithms.interface import Conditions
from testbed.device_names import SERVER_NUMBER
from testbed.encoding_choice import EncodingChoice
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Moment
from testbed.messages.reports import (
    ConnectionClosed,
    EventReported,
    ServerFinished,
    Suspected,
    TrainingEnded,
    Welcomed,
)
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.wall_aggregator import WallAggregator
from testbed.roles.transport import greeting
from testbed.roles.transport.greeting import Identity
from testbed.updates import DenseUpdate, Layout, SparseUpdate
from testbed.wire.encodings import Codec
from testbed.wire.frames import HEADER, Frame, Kind, header, parse
from tests.roles.server.test_server import (
    EVERYTHING,
    SECRET,
    SIZE,
    Running,
    dense,
    exactly,
    pull,
    receive,
)

LAYOUT = Layout(("weight", "bias"), (SIZE - 10, 10))
TREE = {
    "workers": 2,
    "updates": 100,
    "algorithm": {"name": "hierarchical"},
    "aggregator_of": [0, 0, -1],
    "aggregator_addresses": ["127.0.0.1"],
}

KILLED = FaultRule("faults 0", Fault(0, "kill", 1.0), [0, 1], Moment(1000.0))
SERVER_KILLED = replace(KILLED, devices=[SERVER_NUMBER])


def half(options: dict[str, Any], devices: int = 2) -> AggregatorHalf:
    given = HierarchicalOptions(**options)
    zeros = np.zeros(SIZE, np.float32)
    conditions = Conditions(0.5, devices, 10, 100)
    return Hierarchical.aggregator(given, LAYOUT, zeros, devices, conditions)


class Server:
    """The server above: a listener, and its connection to the aggregator."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connection: socket.socket

    def accept(self, *, resume: bool = False) -> int:
        """Answer the aggregator's greeting and read its pull; return its number as a worker.

        Args:
            resume: True if the aggregator is to go on from where it was; it does not ask then.
        """
        self._listener.settimeout(10)
        self.connection, _ = self._listener.accept()
        self.connection.settimeout(10)
        kind, number, secret = receive(self.connection)
        assert (kind, secret) == (Kind.HELLO, SECRET)
        self.connection.sendall(header(Kind.RESUME if resume else Kind.WELCOME, SIZE))
        assert resume or receive(self.connection)[0] is Kind.PULL
        return Identity.of(number).number

    def send(self, version: int, value: float) -> None:
        """Send whole parameters that are all the same."""
        body = np.full(SIZE, value, np.float32).tobytes()
        head = header(Kind.PARAMETERS, version, encoding=1, length=len(body))
        self.connection.sendall(head + body)

    def push(self) -> Frame:
        """Read the aggregator's next push, and the pull after it."""
        head = parse(exactly(self.connection, HEADER.size), EVERYTHING)
        assert head.kind is Kind.PUSH
        body = memoryview(exactly(self.connection, head.length))
        assert receive(self.connection)[0] is Kind.PULL
        return Frame(head.kind, head.encoding, head.number, head.loss, body, head.count)

    def hears_nothing(self, seconds: float = 0.3) -> None:
        """Assert that the aggregator sends nothing for some seconds."""
        self.connection.settimeout(seconds)
        with pytest.raises(TimeoutError):
            self.connection.recv(1)
        self.connection.settimeout(10)

    def close(self) -> None:
        self._listener.close()
        if hasattr(self, "connection"):
            self.connection.close()


@pytest.fixture
def above(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    monkeypatch.setattr(greeting, "PORT", server.port)
    yield server
    server.close()


Run = Callable[..., Running]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, above: Server) -> Iterator[Run]:
    made: list[Running] = []

    def start(options: dict[str, Any] | None = None, **changes: Any) -> Running:
        def make(serving: ServerInputs) -> WallAggregator:
            return WallAggregator(replace(serving, half=half(options or {}), index=1))

        made.append(Running(monkeypatch, make, None, **TREE | changes))
        return made[-1]

    yield start
    for one in made:
        one.close()


def begun(running: Running, above: Server) -> tuple[socket.socket, socket.socket]:
    """Connect both devices and send version 0, which both pull; return their connections."""
    devices = running.connect(0), running.connect(1)
    assert above.accept() == 2
    above.send(0, 1.5)
    for device in devices:
        assert pull(device) == (0, 1.5)
    return devices


def values(frame: Frame) -> Any:
    return np.frombuffer(frame.body, np.float32)


def test_a_run_from_greeting_to_stop(run: Run, above: Server) -> None:
    running = run({"wait_for": 1})
    a, b = begun(running, above)
    a.sendall(dense(0, 2.0, loss=4.0) + header(Kind.PULL))
    pushed = above.push()
    assert (pushed.number, pushed.count, pushed.loss) == (0, 1, 4.0)
    assert set(values(pushed)) == {2.0}
    b.sendall(dense(0, 8.0) + header(Kind.PULL))  # too late: the combination has closed
    a.settimeout(0.3)
    with pytest.raises(TimeoutError):
        a.recv(1)  # the next version is not there yet
    a.settimeout(10)
    above.send(1, 0.5)
    assert [receive(device)[:2] for device in (a, b)] == [(Kind.PARAMETERS, 1)] * 2
    above.connection.sendall(header(Kind.STOP))
    for device in (a, b):
        assert receive(device)[0] is Kind.STOP
        device.close()
    assert above.connection.recv(1) == b""
    finished = running.until(ServerFinished)
    assert finished.late == 1
    assert finished.payload_bytes == 2 * 4 * SIZE
    assert finished.message_bytes == 2 * (64 + 32) + 2 * (32 + 4 * SIZE + 32)
    assert finished.server == 1
    # The connection to the server is in the server's ledger, and in no other.
    assert {one.worker for one in running.of(ConnectionClosed)} == {0, 1}


def test_a_combination_is_the_sum_of_all_devices(run: Run, above: Server) -> None:
    a, b = begun(run(), above)
    a.sendall(dense(0, 2.0, loss=1.0))
    above.hears_nothing()
    b.sendall(dense(0, 8.0, loss=2.0))
    pushed = above.push()
    assert (pushed.number, pushed.count, pushed.loss) == (0, 2, 1.5)
    assert set(values(pushed)) == {10.0}


def test_a_device_that_is_gone_is_not_waited_for(run: Run, above: Server) -> None:
    running = run()
    a, b = begun(running, above)
    a.sendall(dense(0, 2.0))
    above.hears_nothing()
    b.close()
    pushed = above.push()
    assert (pushed.count, set(values(pushed))) == (1, {2.0})
    assert pull_after(above, a, 1) == 1


def pull_after(above: Server, device: socket.socket, version: int) -> int:
    """Send the next version, and return the one that a device pulls."""
    above.send(version, 0.25)
    return pull(device)[0]


def test_without_any_device_nothing_is_pushed_and_the_aggregator_ends(
    run: Run, above: Server
) -> None:
    running = run()
    for device in begun(running, above):
        device.close()
    running.until(EventReported, "no device of its cluster is left")
    running.until(TrainingEnded)
    assert receive(above.connection) == (Kind.FINISHED, 0, b"")  # in place of a push of nothing
    assert above.connection.recv(1) == b""


def test_a_server_that_is_gone_ends_the_aggregator(
    run: Run, above: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: raised.append(told.exc_value))
    running = run()
    begun(running, above)
    # A reset, as a killed server's kernel sends.
    linger = struct.pack("ii", 1, 0)
    above.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    above.connection.close()
    running.thread.join(10)
    assert not running.thread.is_alive()
    (error,) = raised
    assert isinstance(error, ConnectionResetError)
    assert "the server is gone" in str(error)


def test_a_time_limit_closes_a_combination_of_what_is_there(run: Run, above: Server) -> None:
    began = time.monotonic()
    a, b = begun(run({"within": "500ms"}), above)
    a.sendall(dense(0, 2.0) + header(Kind.PULL))
    pushed = above.push()
    assert time.monotonic() - began >= 0.5
    assert (pushed.count, set(values(pushed))) == (1, {2.0})
    b.sendall(dense(0, 8.0) + header(Kind.PULL))
    above.send(1, 0.5)
    assert [receive(device)[1] for device in (a, b)] == [1, 1]
    # Nobody pushes in time: the first update after the limit is a combination by itself.
    above.hears_nothing(0.8)
    b.sendall(dense(1, 8.0))
    pushed = above.push()
    assert (pushed.number, pushed.count, set(values(pushed))) == (1, 1, {8.0})


def test_an_aggregator_without_devices_rests_until_one_comes_back(run: Run, above: Server) -> None:
    running = run(rules=(KILLED,))
    for device in begun(running, above):
        device.close()
    assert receive(above.connection) == (Kind.FINISHED, 0, b"")
    above.hears_nothing()
    back = running.connect(1)
    assert receive(above.connection) == (Kind.PULL, 0, b"")
    assert pull_after(above, back, 3) == 3
    back.sendall(dense(3, 2.0))
    pushed = above.push()
    assert (pushed.number, pushed.count, set(values(pushed))) == (3, 1, {2.0})


def test_a_silent_device_is_suspected_and_welcomed(run: Run, above: Server) -> None:
    running = run(suspect_after=0.5)
    a, b = begun(running, above)
    a.sendall(dense(0, 2.0) + header(Kind.PULL))
    assert running.until(Suspected).worker == 1
    assert above.push().count == 1
    b.sendall(dense(0, 8.0) + header(Kind.PULL))
    assert running.until(Welcomed).worker == 1
    above.send(1, 0.5)
    assert [receive(device)[1] for device in (a, b)] == [1, 1]
    for device in (a, b):
        device.sendall(dense(1, 4.0))
    assert above.push().count == 2


def test_a_server_that_was_killed_is_greeted_again_and_devices_stay(
    run: Run, above: Server
) -> None:
    running = run({"error_feedback": True, "ratio": 0.5}, rules=(SERVER_KILLED,), pulls="changed")
    a, b = begun(running, above)
    for version in range(1, 4):
        for device in (a, b):
            device.sendall(dense(version - 1, 2.0))
        above.push()
        above.send(version, version / 4)
        for device in (a, b):
            device.sendall(header(Kind.PULL))
            assert receive(device)[:2] == (Kind.PARAMETERS, version)
    a.sendall(dense(3, 2.0) + header(Kind.PULL))  # half of a combination, which is dropped
    above.hears_nothing()
    linger = struct.pack("ii", 1, 0)
    above.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    above.connection.close()
    assert above.accept() == 2
    above.send(1, 7.0)
    # The device that has pushed waits for the next version; the other one computes at a lost version.
    kind, version, body = receive(a)
    assert (kind, version, set(np.frombuffer(body, np.float32))) == (Kind.PARAMETERS, 1, {7.0})
    a.sendall(dense(1, 2.0))
    b.sendall(dense(3, 2.0) + header(Kind.PULL))
    above.hears_nothing()
    kind, version, body = receive(b)  # whole: it has nothing of which there are changes
    assert (kind, version, set(np.frombuffer(body, np.float32))) == (Kind.PARAMETERS, 1, {7.0})
    b.sendall(dense(1, 2.0))
    pushed = above.push()
    assert (pushed.number, pushed.count) == (1, 2)
    assert not running.of(ConnectionClosed)


def test_a_suspected_device_may_push_for_a_version_that_a_killed_server_has_lost(
    run: Run, above: Server
) -> None:
    running = run(rules=(SERVER_KILLED,), suspect_after=0.5)
    a, b = begun(running, above)
    for device in (a, b):
        device.sendall(dense(0, 2.0) + header(Kind.PULL))
    above.push()
    above.send(1, 1.0)
    assert [receive(device)[1] for device in (a, b)] == [1, 1]
    a.sendall(dense(1, 2.0) + header(Kind.PULL))
    assert running.until(Suspected).worker == 1
    above.push()
    linger = struct.pack("ii", 1, 0)
    above.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    above.connection.close()
    above.accept()
    above.send(0, 7.0)
    assert receive(a)[1] == 0
    b.sendall(dense(1, 8.0) + header(Kind.PULL))
    assert running.until(Welcomed).worker == 1
    assert receive(b)[1] == 0
    assert not running.of(ConnectionClosed)


@pytest.mark.parametrize("base", [1, 7])
def test_a_push_of_a_version_that_is_not_there_costs_the_device_its_connection(
    run: Run, above: Server, base: int
) -> None:
    running = run()
    a, b = begun(running, above)
    a.sendall(dense(base, 2.0))
    closed = running.until(ConnectionClosed)
    assert closed.worker == 0 and f"a push for version {base}, for which" in (closed.reason or "")
    b.sendall(dense(0, 8.0))
    pushed = above.push()
    assert (pushed.count, set(values(pushed))) == (1, {8.0})


def test_changed_pulls_are_taken_over_and_passed_on(run: Run, above: Server) -> None:
    codec = Codec(EncodingChoice(), LAYOUT.sizes)
    a, b = begun(run(pulls="changed"), above)
    for device in (a, b):
        device.sendall(dense(0, 2.0) + header(Kind.PULL))
    above.push()
    indices = np.array([3, 500, 999], np.uint32)
    changes = SparseUpdate(indices, np.array([7.0, 8.0, 9.0], np.float32))
    encoding, body = codec.encode(changes)
    length = sum(map(len, body))
    head = header(Kind.PARAMETERS, 1, encoding=encoding, length=length)
    above.connection.sendall(b"".join([head, *body]))
    for device in (a, b):
        head_below = parse(exactly(device, HEADER.size), EVERYTHING)
        passed_on = codec.decode(head_below.encoding, memoryview(exactly(device, length)))
        assert (head_below.number, head_below.length) == (1, length)
        assert isinstance(passed_on, SparseUpdate)
        assert np.array_equal(passed_on.indices, indices)
        assert np.array_equal(passed_on.values, changes.values)


def test_error_feedback_keeps_what_selection_and_rounding_left_out(run: Run, above: Server) -> None:
    choice = EncodingChoice.model_validate("compact-8")
    codec = Codec(choice, LAYOUT.sizes)
    options = {"ratio": 0.1, "error_feedback": True}
    a, b = begun(run(options, encoding=choice.model_dump(mode="json")), above)
    naive = half(options)
    for number in (0, 1):
        naive.joined(number)
    generator = np.random.default_rng(1)
    for version in range(4):
        naive.adopt(np.zeros(SIZE, np.float32), [version])
        for number, device in enumerate((a, b)):
            update = DenseUpdate(generator.normal(size=SIZE).astype(np.float32))
            encoding, body = codec.encode(update)
            length = sum(map(len, body))
            head = header(Kind.PUSH, version, encoding=encoding, loss=1.0, length=length)
            device.sendall(b"".join([head, *body]))
            naive.push(number, codec.rounded(update), version, loss=1.0)
            if device is a:
                above.hears_nothing(0.1)  # so that the sum has the order of the numbers
        combined = naive.take()
        assert combined is not None
        rounded = codec.rounded(combined.update)
        naive.lost(combined.update, rounded)
        pushed = above.push()
        received = codec.decode(pushed.encoding, pushed.body)
        assert isinstance(received, SparseUpdate) and isinstance(rounded, SparseUpdate)
        assert len(received.indices) == 100
        assert np.array_equal(received.indices, rounded.indices)
        assert np.array_equal(received.values, rounded.values)
        above.send(version + 1, 0.0)
        for device in (a, b):
            assert pull(device)[0] == version + 1

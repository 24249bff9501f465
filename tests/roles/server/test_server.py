"""The server with real sockets: its answers, refusals and reports.

The server runs in a thread, on loopback. The tests send it raw frames, so that no worker code decides
what is sent.
"""

import errno
import os
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pytest

from testbed.algorithms.asgd import StalenessDivided
from testbed.channel import Channel
from testbed.encoding_choice import EncodingChoice
from testbed.engine import server as server_role
from testbed.messages.reports import (
    REPORTS,
    ConnectionClosed,
    EvaluationDue,
    EvaluationLeftOut,
    EventReported,
    FinalParameters,
    RoleReport,
    ServerFinished,
    ServerListening,
    UpdatesApplied,
)
from testbed.roles import connections
from testbed.roles.evaluation import evaluator_link
from testbed.roles.evaluation.snapshots import IN_MEMORY
from testbed.roles.server import role_host
from testbed.roles.server.role_host import RoleHost
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.wall_server import WallServer
from testbed.roles.transport import accepting
from testbed.roles.transport.connection import Connection
from testbed.roles.transport.endpoint import BrokenConnectionError, Pieces
from testbed.telemetry.update_rows import UPDATE
from testbed.training.settings import Settings
from testbed.updates import DenseUpdate, Layout, SparseUpdate, Update
from testbed.wire.encodings import Codec
from testbed.wire.frames import HEADER, Kind, header, parse
from tests.settings import SIMPLE, with_changes

SIZE = 1000
SECRET = bytes(range(32))
EVERYTHING = dict.fromkeys(Kind, 1 << 25)


def settings(**changes: Any) -> Settings:
    fields: dict[str, Any] = {
        "workers": 2,
        "scaling": "unit",
        "model": "cnn",
        "learning_rate": 0.5,
        "encoding": {"indices": "auto", "values": "float32"},
        "waiting": {"distribution": "exponential", "mean": 0.0},
        "secret": SECRET.hex(),
    }
    return with_changes(SIMPLE, **fields | changes)


R = TypeVar("R", bound=RoleReport)


class Serves(Protocol):
    """A server or an aggregator, under either clock."""

    host: RoleHost

    def serve(self) -> object:
        """Listen, train and drain."""


class Running:
    """A server that runs in a thread, and its reports."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        make: Callable[..., Serves] = WallServer,
        spill: int | None = None,
        **changes: Any,
    ) -> None:
        with socket.create_server(("", 0)) as free:
            self.port = free.getsockname()[1]
        monkeypatch.setattr(connections, "PORT", self.port)
        self.report, theirs = Channel.pair()
        half = StalenessDivided(np.zeros(SIZE, np.float32), 0.5)
        self.layout = Layout(("weight", "bias"), (SIZE - 10, 10))
        self.server = make(
            ServerInputs(settings(**changes), half, self.layout, theirs, spill=spill)
        )
        self.reports: list[RoleReport] = []
        self._read = 0
        self.thread = threading.Thread(target=self._serve, args=(theirs,), daemon=True)
        self.reader = threading.Thread(target=self._collect, daemon=True)
        self.thread.start()
        self.reader.start()
        self.connections: list[socket.socket] = []
        self.until(ServerListening)

    def _serve(self, theirs: Channel) -> None:
        try:
            self.server.serve()
        finally:
            theirs.close()

    def _collect(self) -> None:
        while report := REPORTS.receive(self.report):
            self.reports.append(report)

    def until(self, kind: type[R], text: str = "") -> R:
        """Wait for the next report of a kind that contains ``text``, and return it."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for report in self.reports[self._read :]:
                self._read += 1
                if isinstance(report, kind) and (not text or text in str(report)):
                    return report
            time.sleep(0.01)
        raise AssertionError(f"no {kind} {text!r}; got {self.reports}")

    def of(self, kind: type[R]) -> list[R]:
        """Return the reports of a kind so far."""
        return [report for report in self.reports if isinstance(report, kind)]

    def events(self, level: str) -> list[str]:
        """Return the texts of the events of a level so far."""
        return [report.text for report in self.of(EventReported) if report.level == level]

    def connect(self, number: int | None = None) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self.connections.append(connection)
        if number is not None:
            connection.sendall(hello(number))
            assert receive(connection) == (Kind.WELCOME, SIZE, b"")
        return connection

    def finished(self) -> ServerFinished:
        """Wait until the server has drained; return its last report."""
        self._attend()
        return self.until(ServerFinished)

    def _attend(self) -> None:
        """Be the evaluator, for which the server waits at its end, if the test was none."""
        if not (self.thread.is_alive() and self.server.host.connections.evaluator.is_missing):
            return
        with self.connect(self.server.host.connections.evaluator.number) as connection:
            while (found := receive(connection))[0] is not Kind.STOP:
                connection.sendall(header(Kind.FINISHED, found[1]))

    def close(self) -> None:
        """Close the connections, end the server's loop and wait until it has drained."""
        for connection in self.connections:
            connection.close()
        self.server.host.phase.over = True
        self._attend()
        self.thread.join(20)
        self.reader.join(20)
        assert not self.thread.is_alive()
        self.report.close()


@pytest.fixture
def run_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def make(**changes: Any) -> Running:
        made.append(Running(monkeypatch, **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def running(run_server: Callable[..., Running]) -> Running:
    return run_server()


def hello(number: int, secret: bytes = SECRET) -> bytes:
    return header(Kind.HELLO, number, length=len(secret)) + secret


def dense(base: int, value: float, loss: float = 1.0) -> bytes:
    body = np.full(SIZE, value, np.float32).tobytes()
    return header(Kind.PUSH, base, encoding=1, loss=loss, length=len(body)) + body


def receive(connection: socket.socket) -> tuple[Kind, int, bytes]:
    head = parse(exactly(connection, HEADER.size), EVERYTHING)
    return head.kind, head.number, exactly(connection, head.length)


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the server closed the connection"
        data += more
    return data


def pull(connection: socket.socket) -> tuple[int, float]:
    connection.sendall(header(Kind.PULL))
    kind, version, body = receive(connection)
    assert kind is Kind.PARAMETERS
    values = np.frombuffer(body, np.float32)
    assert len(set(values.tolist())) == 1, "parameters of two versions in one answer"
    return version, float(values[0])


def test_a_run_from_greeting_to_stop(running: Running) -> None:
    a = running.connect(0)
    a.sendall(header(Kind.PULL))
    a.settimeout(0.3)
    with pytest.raises(TimeoutError):
        a.recv(1)  # training waits for the second worker
    a.settimeout(10)
    b = running.connect(1)
    evaluator = running.connect(2)
    assert receive(a)[:2] == (Kind.PARAMETERS, 0)
    assert pull(b) == (0, 0.0)
    a.sendall(dense(0, 1.0, loss=2.5))
    assert pull(a) == (1, -0.5)  # delay 0: the whole step
    b.sendall(dense(0, 1.0))
    assert pull(b) == (2, -1.0)  # delay 1
    a.sendall(dense(1, 1.0) + header(Kind.PULL))
    assert receive(a)[1] == 3
    a.sendall(dense(3, 2.0))
    b.sendall(dense(2, 8.0))  # one of these two is the fourth and last
    assert receive(a)[0] is Kind.STOP
    assert receive(b)[0] is Kind.STOP
    assert [receive(evaluator)[:2] for _ in range(4)] == [
        (Kind.PARAMETERS, 0),
        (Kind.PARAMETERS, 2),
        (Kind.PARAMETERS, 4),
        (Kind.STOP, 0),
    ]
    for connection in (a, b, evaluator):
        connection.close()
    finished = running.until(ServerFinished)
    running.thread.join(5)
    rows = np.concatenate(
        [np.frombuffer(report.raw, UPDATE) for report in running.of(UpdatesApplied)]
    )
    assert rows["iteration"].tolist() == [1, 2, 3, 4]
    assert rows["worker"].tolist()[:3] == [0, 1, 0]
    assert rows["base_version"].tolist()[:3] == [0, 0, 1]
    assert rows["staleness"].tolist()[:3] == [0, 1, 1]
    assert rows["loss"].tolist()[0] == 2.5
    assert set(rows["payload_bytes"].tolist()) == {4 * SIZE}
    # Greeting and pull, then the push; later a pull and a push.
    assert rows["message_bytes"].tolist()[:3] == [64 + 32 + 32 + 4 * SIZE] * 2 + [
        32 + 32 + 4 * SIZE
    ]
    # Five pushes arrived, the fifth too late to count as an update.
    assert finished.version == 4
    assert finished.payload_bytes == 5 * 4 * SIZE
    assert finished.message_bytes == 5 * (4 * SIZE + 32) + 5 * 32 + 2 * 64
    evaluations = running.of(EvaluationDue)
    assert [one.version for one in evaluations] == [0, 2, 4]
    assert evaluations[-1].payload_bytes == 4 * 4 * SIZE
    parameters = b"".join(part.raw for part in running.of(FinalParameters))
    assert np.frombuffer(parameters, np.float32).shape == (SIZE,)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "not the testbed's protocol"),
        (hello(0, bytes(32)), "without this run's secret"),
        (hello(0, b"short"), "without this run's secret"),
        (hello(3), "device 3 is not of this run"),
        (hello(2**64 - 1), "is not of this run"),
        (header(Kind.HELLO, 0, length=2**40), "over the limit of 32"),
        (dense(0, 1.0), "allowed now: HELLO"),
        (hello(0) + header(Kind.PUSH, length=2**50), "over the limit of 8018"),
        (hello(0) + header(Kind.PUSH, 0, encoding=9, length=0), "encoded as dense float16"),
        (
            hello(0) + header(Kind.PUSH, 7, encoding=1, length=4 * SIZE) + bytes(4 * SIZE),
            "a push before training began",
        ),
        (hello(0) + header(Kind.PULL) + header(Kind.PULL), "a pull before"),
        (hello(0) + header(Kind.STOP), "allowed now: PUSH, PULL"),
        (hello(2) + header(Kind.PULL), "allowed now: FINISHED"),
    ],
)
def test_malformed_or_foreign_input_closes_only_its_own_connection(
    running: Running, data: bytes, reason: str
) -> None:
    stranger = running.connect()
    stranger.sendall(data)
    event = running.until(EventReported, reason)
    assert event.level == "warning"
    with stranger:
        while stranger.recv(1 << 16):  # what the server sent before it closed, then the end
            pass
    a, b = running.connect(0), running.connect(1)
    assert pull(a) == (0, 0.0)
    assert pull(b) == (0, 0.0)


def test_a_second_worker_of_the_same_number_is_refused(running: Running) -> None:
    running.connect(0)
    running.connect().sendall(hello(0))
    running.until(EventReported, "is connected already")


def test_a_connection_that_does_not_greet_is_closed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_host, "GREETING_TIMEOUT", 0.3)
    with running.connect() as stranger:
        running.until(EventReported, "no greeting within 0.3 s")
        assert stranger.recv(1) == b""


def test_a_reset_in_mid_message_is_reported_and_training_goes_on(running: Running) -> None:
    a, b = running.connect(0), running.connect(1)
    pull(a)
    pull(b)
    b.sendall(dense(0, 1.0)[:500])
    b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    b.close()
    running.until(EventReported, "closed")
    for version in range(3):
        a.sendall(dense(version, 1.0))
        assert pull(a)[0] == version + 1


def test_without_workers_the_run_ends(running: Running) -> None:
    for connection in [running.connect(0), running.connect(1)]:
        connection.close()
    running.until(EventReported, "no worker is left")
    assert running.finished().version == 0


def test_a_worker_that_connects_after_training_is_counted_and_sent_stop(running: Running) -> None:
    a, b = running.connect(0), running.connect(1)
    pull(a)
    pull(b)
    b.close()
    for version in range(3):
        a.sendall(dense(version, 1.0))
        assert pull(a)[0] == version + 1
    a.sendall(dense(3, 1.0))
    assert receive(a)[0] is Kind.STOP
    back = running.connect(1)
    back.sendall(header(Kind.PULL))
    assert receive(back)[0] is Kind.STOP
    back.close()
    silent = running.connect()
    silent.sendall(hello(1)[:20])
    assert silent.recv(1) == b""  # it has not greeted in time
    a.close()
    running.finished()
    closed = running.of(ConnectionClosed)
    of_late = [(one.message_bytes, one.incomplete_bytes) for one in closed[1:3]]
    assert of_late == [(len(hello(1)) + HEADER.size, 0), (0, 20)]


def test_training_begins_without_workers_that_never_connect(
    run_server: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_role, "GATHERING_TIMEOUT", 0.5)
    running = run_server()
    a = running.connect(0)
    assert pull(a) == (0, 0.0)
    running.until(EventReported, "training begins without 1 workers")


def test_an_answer_that_waits_stays_the_version_that_was_pulled(
    run_server: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that reads slowly must not see parameters change under way."""
    monkeypatch.setattr(f"{__name__}.SIZE", 4_000_000)
    running = Running(monkeypatch, updates=100)
    a, b = running.connect(0), running.connect(1)
    a.sendall(header(Kind.PULL))
    assert select.select([a], [], [], 30)[0]  # its answer has begun
    base, _ = pull(b)
    for _ in range(3):
        b.sendall(dense(base, 1.0))
        base, _ = pull(b)
    kind, version, body = receive(a)
    assert (kind, version) == (Kind.PARAMETERS, 0)
    assert set(np.frombuffer(body, np.float32).tolist()) == {0.0}


def test_the_evaluator_misses_no_version_however_slow_it_is(
    run_server: Callable[..., Running], tmp_path: Path
) -> None:
    file = os.open(tmp_path / "spill", os.O_RDWR | os.O_CREAT)
    running = run_server(updates=300, evaluate_every=1, workers=1, spill=file)
    evaluator, a = running.connect(1), running.connect(0)
    # Room for a few versions at the server's end and for one here: the others wait in its queue.
    evaluator.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    own = running.server.host.connections.evaluator.connection
    assert own is not None
    own.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 60_000)
    a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    base, _ = pull(a)
    for _ in range(300):
        a.sendall(dense(base, 1.0))
        a.sendall(header(Kind.PULL))
        kind, base, _ = receive(a)
    assert kind is Kind.STOP
    a.close()
    time.sleep(0.3)  # what the kernel has no room for is in the server's queue by now
    versions = []
    while (message := receive(evaluator))[0] is Kind.PARAMETERS:
        versions.append((message[1], float(np.frombuffer(message[2], np.float32)[0])))
    assert versions == [(v, -0.5 * v) for v in range(301)]
    evaluator.close()
    assert running.until(ServerFinished).version == 300
    os.close(file)


def test_only_the_run_s_encoding_is_read(run_server: Callable[..., Running]) -> None:
    running = run_server(encoding={"values": "float16"})
    a, b = running.connect(0), running.connect(1)
    pull(a)
    pull(b)
    update = SparseUpdate(np.array([3, 700], np.uint32), np.array([1, 2.5], np.float32))
    codec = Codec(EncodingChoice(values="float16"), running.layout.sizes)
    a.sendall(push(0, codec, update))
    a.sendall(header(Kind.PULL))
    kind, version, body = receive(a)
    assert (kind, version) == (Kind.PARAMETERS, 1)
    changed = {i: v for i, v in enumerate(np.frombuffer(body, np.float32).tolist()) if v}
    assert changed == {3: -0.5, 700: -1.25}
    b.sendall(dense(0, 1.0))
    running.until(EventReported, "encoded as dense float32; this run's encoding is compact-16")


def test_pulls_bring_what_changed_since_the_worker_s_last_pull(
    run_server: Callable[..., Running],
) -> None:
    running = run_server(updates=100, pulls="changed")
    a, b = running.connect(0), running.connect(1)
    codec = Codec(EncodingChoice(), running.layout.sizes)
    rng = np.random.default_rng(1)
    own: dict[socket.socket, np.ndarray[Any, np.dtype[np.float32]]] = {}
    based = dict.fromkeys((a, b), 0)
    touched: list[set[int]] = []
    expected = np.zeros(SIZE, np.float32)

    def pull_changes(connection: socket.socket) -> int:
        connection.sendall(header(Kind.PULL))
        head = parse(exactly(connection, HEADER.size), EVERYTHING)
        assert head.kind is Kind.PARAMETERS
        update = codec.decode(head.encoding, memoryview(exactly(connection, head.length)))
        if connection in own and not isinstance(update, DenseUpdate):
            since = set().union(*touched[based[connection] :])
            assert set(update.indices.tolist()) == since
            own[connection][update.indices] = update.values
        else:
            assert isinstance(update, DenseUpdate)
            own[connection] = update.values.copy()
        based[connection] = head.number
        assert own[connection].tobytes() == expected.tobytes()
        return head.length

    assert pull_changes(a) == 4 * SIZE
    assert pull_changes(b) == 4 * SIZE
    assert pull_changes(b) < 10  # nothing has changed
    for n in range(30):
        count = SIZE if n == 20 else int(rng.integers(1, 60))
        indices = np.sort(rng.choice(SIZE, count, replace=False)).astype(np.uint32)
        update = SparseUpdate(indices, rng.normal(size=count).astype(np.float32))
        expected[indices] -= np.float32(0.5 / max(1, n - based[a])) * update.values
        touched.append(set(indices.tolist()))
        a.sendall(push(based[a], codec, update))
        length = pull_changes(a)
        assert length == 4 * SIZE if n == 20 else length < 4 * count + 100
        if n % 7 == 6:
            pull_changes(b)
    pull_changes(b)


def push(base: int, codec: Codec, update: Update) -> bytes:
    encoding, pieces = codec.encode(update)
    body = b"".join(pieces)
    return header(Kind.PUSH, base, encoding=encoding, loss=1.0, length=len(body)) + body


def test_evaluations_without_room_are_left_out_and_workers_stay_connected(
    run_server: Callable[..., Running],
) -> None:
    running = run_server(workers=1, updates=60, evaluate_every=1)
    worker = running.connect(0)
    for version in range(60):  # no evaluator is connected yet
        assert pull(worker)[0] == version
        worker.sendall(dense(version, 1.0))
    assert receive(worker)[0] is Kind.STOP
    evaluator = running.connect(1)
    evaluated = []
    while (received := receive(evaluator))[0] is Kind.PARAMETERS:
        evaluated.append(received[1])
    assert evaluated == [*range(IN_MEMORY), 60]  # the last version is always kept
    worker.close()
    evaluator.close()
    assert running.until(ServerFinished).version == 60
    left_out = running.of(EvaluationLeftOut)
    assert [one.version for one in left_out] == list(range(IN_MEMORY, 60))
    assert "32 wait for the evaluator" in left_out[0].reason
    assert not running.events("warning")


@contextmanager
def no_descriptors(*, but_freed_ones: bool = False) -> Iterator[None]:
    """Let this process open no further descriptor while the context lasts.

    Args:
        but_freed_ones: True if it may use those again that are freed meanwhile, by any thread.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 3
    if but_freed_ones:
        most = os.dup(0)  # the lowest descriptor not in use
        os.close(most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_server_out_of_descriptors_warns_once_and_goes_on(running: Running) -> None:
    a = running.connect(0)
    late = socket.socket()
    running.connections.append(late)
    late.settimeout(20)
    with no_descriptors():
        late.connect(("127.0.0.1", running.port))
        late.sendall(hello(1))
        running.until(EventReported, "no connection can be accepted for now (Too many open files)")
        began = time.process_time()
        time.sleep(1.5)
        assert time.process_time() - began < 1.0, "it asks again and again"
    assert receive(late)[0] is Kind.WELCOME
    assert pull(a) == (0, 0.0)
    assert len(running.events("warning")) == 1


def test_a_descriptor_that_is_free_again_is_used_at_once(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "REST", 3600.0)
    a = running.connect(0)
    late = socket.socket()
    running.connections.append(late)
    late.settimeout(20)
    with no_descriptors(but_freed_ones=True):
        late.connect(("127.0.0.1", running.port))
        late.sendall(hello(1))
        running.until(EventReported, "no connection can be accepted for now")
        a.shutdown(socket.SHUT_RDWR)  # the server closes its end, whose descriptor is free then
        assert receive(late)[0] is Kind.WELCOME


def test_the_server_s_own_error_ends_it_and_closes_no_connection(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: raised.append(told.exc_value))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(running.server.host.service.half, "push", full)
    a, b = running.connect(0), running.connect(1)
    pull(a)
    pull(b)
    a.sendall(dense(0, 1.0))
    running.thread.join(10)
    assert not running.thread.is_alive()
    running.reader.join(10)
    assert not running.of(ConnectionClosed)
    (error,) = raised
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC


def test_a_broken_connection_to_the_evaluator_closes_no_worker_s(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server notices it while it takes in a worker's push that leads to an evaluation."""
    evaluator, a, b = running.connect(2), running.connect(0), running.connect(1)
    pull(a)
    pull(b)
    assert receive(evaluator)[:2] == (Kind.PARAMETERS, 0)
    own, send = running.server.host.connections.evaluator.connection, Connection.send

    def broken(connection: Connection, pieces: Pieces, flags: int = 0) -> None:
        if connection is own:
            raise BrokenConnectionError(errno.EPIPE, "Broken pipe")
        send(connection, pieces, flags)

    monkeypatch.setattr(Connection, "send", broken)
    for version in range(3):
        a.sendall(dense(version, 1.0))
        assert pull(a)[0] == version + 1


def test_a_silent_evaluator_is_given_up_after_a_while(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator_link, "EVALUATOR_TIMEOUT", 0.5)
    evaluator = running.connect(2)  # which reads nothing more
    a, b = running.connect(0), running.connect(1)
    pull(a)
    pull(b)
    b.close()
    for version in range(3):
        a.sendall(dense(version, 1.0))
        assert pull(a)[0] == version + 1
    evaluator.sendall(header(Kind.FINISHED, 0))
    time.sleep(1.0)  # during training, the evaluator is not waited for
    a.sendall(dense(3, 1.0))
    assert receive(a)[0] is Kind.STOP
    a.close()
    event = running.until(
        EventReported, "nothing was heard of it for 0.5 s: 2 evaluations are missing"
    )
    assert (event.level, event.device) == ("error", 2)
    assert running.until(ServerFinished).version == 4


def test_an_evaluator_that_has_finished_is_disconnected_without_an_error(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator_link, "LEAVING_TIMEOUT", 0.5)
    evaluator = running.connect(2)
    a, b = running.connect(0), running.connect(1)
    pull(a)
    pull(b)
    b.close()
    for version in range(3):
        a.sendall(dense(version, 1.0))
        assert pull(a)[0] == version + 1
    a.sendall(dense(3, 1.0))
    a.close()
    for version in (0, 2, 4):
        assert receive(evaluator)[:2] == (Kind.PARAMETERS, version)
        evaluator.sendall(header(Kind.FINISHED, version))
    assert receive(evaluator)[0] is Kind.STOP  # it does not close its end
    assert running.until(ServerFinished).version == 4
    assert not running.events("error")

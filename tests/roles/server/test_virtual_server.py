"""The server under the virtual clock, with real sockets, in a thread on loopback."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Moment
from testbed.messages.reports import (
    ConnectionClosed,
    EventReported,
    FaultReported,
    FinalParameters,
    UpdatesApplied,
)
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.server.server_with_clock import ServerWithClock
from testbed.roles.transport.greeting import Identity
from testbed.telemetry.update_rows import UPDATE
from testbed.training.times import Times
from testbed.wire.frames import HEADER, Kind, header
from tests.roles.server import test_server
from tests.roles.server.test_server import SIZE, Running, dense, hello, receive, settings

TIMES = {"distribution": "constant", "mean": "100ms"}
CUT_OFF = (Fault(0, "stop-network", 0.5), 0.15)
KILLED = (Fault(1, "kill", 0.1), 0.35)
CUT_OFF_TO_THE_END = (Fault(0, "stop-network", 1000.0), 0.05)


class Worker:
    """A worker that asks, in a thread; ``stopped`` is True once it has received STOP."""

    def __init__(self, connection: socket.socket, leave: OrderChannel) -> None:
        self.stopped = False
        self._connection = connection
        self._leave = leave
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        self._connection.sendall(header(Kind.PULL))
        while self._connection.recv(1, socket.MSG_PEEK):
            kind, version, _ = receive(self._connection)
            if kind is Kind.STOP:
                self.stopped = True
                break
            order = self._leave.take()
            assert order is not None
            if order.what is OrderKind.FINISHED:
                self._connection.sendall(dense(version, 0.01) + header(Kind.PULL))
        self._connection.close()

    def end(self) -> None:
        """Wait until the worker has closed its connection."""
        self._thread.join(20)
        assert not self._thread.is_alive()


@contextmanager
def virtual(
    monkeypatch: pytest.MonkeyPatch, *faults: tuple[Fault, float], **changes: Any
) -> Iterator[tuple[Running, list[OrderChannel]]]:
    """Run a server under the virtual clock; yield it and the workers' ends of the clock's channels.

    Args:
        faults: the faults of worker 0, each with its time in seconds of the run's clock.
        changes: to the settings.
    """
    told = tuple(
        FaultRule(f"faults {fault.rule}", fault, [0], Moment(time)) for fault, time in faults
    )
    run = {"clock": "virtual", "compute": TIMES, "waiting": TIMES | {"mean": 0.0}} | changes
    chosen = settings(**run)
    ends = (socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(chosen.workers))
    ours, theirs = ([OrderChannel(end) for end in side] for side in zip(*ends, strict=True))
    make = partial(ServerWithClock, times=Times.of(chosen), channels=ours)
    running = Running(monkeypatch, make, None, rules=told, **run)
    try:
        yield running, theirs
    finally:
        running.close()
        for leave in (*ours, *theirs):
            leave.close()


def finished(leave: OrderChannel) -> None:
    """Take a worker's orders up to the next FINISHED."""
    while (order := leave.take()) is not None and order.what is not OrderKind.FINISHED:
        pass
    assert order is not None


def test_a_worker_killed_while_it_was_cut_off_receives_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with virtual(monkeypatch, CUT_OFF, KILLED, updates=30) as (running, theirs):
        connections = [running.connect(number) for number in (0, 1)]
        first, other = map(Worker, connections, theirs)
        assert running.until(FaultReported, "kill").record["phase"] == "begin"
        connections[0].shutdown(socket.SHUT_RDWR)
        first.end()
        assert running.until(FaultReported, "kill").record["phase"] == "end"
        second = Worker(running.connect(int(Identity(0, 1))), theirs[0])
        for worker in (second, other):
            worker.end()
            assert worker.stopped


def synchronous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this test's servers make each version of one gradient, and send it to all workers."""
    half = partial(SynchronousServer, learning_rate=0.5, wait_for=1, protocol="push-and-wait")
    monkeypatch.setattr(test_server, "StalenessDivided", lambda zeros, _rate: half(zeros))


def test_two_messages_in_one_read_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was cut off may send its next message before the clock comes to the last one."""
    synchronous(monkeypatch)
    with virtual(monkeypatch, workers=1, updates=3) as (running, theirs):
        worker = running.connect(0)
        assert receive(worker)[:2] == (Kind.PARAMETERS, 0)
        finished(theirs[0])
        worker.sendall(dense(0, 1.0, loss=1.0) + dense(1, 1.0, loss=2.0))
        for version in (1, 2):
            assert receive(worker)[:2] == (Kind.PARAMETERS, version)
        finished(theirs[0])
        finished(theirs[0])
        worker.sendall(dense(2, 1.0, loss=3.0))
        assert receive(worker)[0] is Kind.STOP
        worker.close()
        last = running.finished()
        rows = b"".join(report.raw for report in running.of(UpdatesApplied))
    assert np.frombuffer(rows, UPDATE)["base_version"].tolist() == [0, 1, 2]
    assert np.frombuffer(rows, UPDATE)["loss"].tolist() == [1.0, 2.0, 3.0]
    assert last.payload_bytes == 3 * 4 * SIZE


def test_reading_another_connection_does_not_change_a_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections are read into the same buffer, which may hold a whole push."""
    synchronous(monkeypatch)
    between, go_on = threading.Event(), threading.Event()
    with virtual(monkeypatch, workers=1, updates=1) as (running, theirs):
        worker, other = running.connect(0), running.connect()
        finished(theirs[0])
        assert isinstance(running.server, ServerWithClock)
        look_after = running.server.host.look_after

        def held() -> None:
            between.set()
            go_on.wait(20)
            look_after()

        monkeypatch.setattr(running.server.host, "look_after", held)
        assert between.wait(20)
        worker.sendall(dense(0, 1.0))
        other.sendall(hello(0))
        go_on.set()
        assert receive(worker)[0] is Kind.PARAMETERS
        assert receive(worker)[0] is Kind.STOP
        worker.close()
        running.finished()
        parameters = b"".join(part.raw for part in running.of(FinalParameters))
    assert np.unique(np.frombuffer(parameters, np.float32)).tolist() == [-0.5]


def test_a_push_that_arrives_from_a_cut_off_worker_is_in_its_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock does not wait for it, but the link is not really down yet, so the capture counts it."""
    synchronous(monkeypatch)
    with virtual(monkeypatch, CUT_OFF_TO_THE_END, updates=3) as (running, theirs):
        cut_off, other = running.connect(0), running.connect(1)
        finished(theirs[0])
        cut_off.sendall(dense(0, 1.0))
        for version in range(3):
            assert receive(other)[:2] == (Kind.PARAMETERS, version)
            finished(theirs[1])
            other.sendall(dense(version, 1.0))
        assert receive(other)[0] is Kind.STOP
        other.close()
        running.finished()
        ledgers = {closed.worker: closed for closed in running.of(ConnectionClosed)}
    assert ledgers[0].payload_bytes == 4 * SIZE
    assert ledgers[0].message_bytes == len(hello(0)) + HEADER.size + 4 * SIZE


def test_a_message_that_was_read_ahead_and_never_taken_is_in_its_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    synchronous(monkeypatch)
    with virtual(monkeypatch, workers=1, updates=1) as (running, theirs):
        worker = running.connect(0)
        assert receive(worker)[:2] == (Kind.PARAMETERS, 0)
        finished(theirs[0])
        worker.sendall(dense(0, 1.0) + dense(1, 1.0))
        assert receive(worker)[0] is Kind.STOP
        worker.close()
        assert running.until(ConnectionClosed).payload_bytes == 2 * 4 * SIZE
        assert running.finished().payload_bytes == 4 * SIZE


def test_a_worker_killed_only_by_the_clock_is_ignored_if_it_reconnects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a server may come back, a worker whose connection ends connects again, until it is killed."""
    killed = (Fault(0, "kill", None), 0.15)
    with virtual(monkeypatch, killed, workers=1, updates=30) as (running, theirs):
        evaluator, first = running.connect(1), running.connect(0)
        worker = Worker(first, theirs[0])
        assert "no worker is left" in running.until(EventReported).text
        worker.end()
        again = running.connect()
        again.sendall(hello(0) + header(Kind.PULL))
        assert again.recv(1) == b""
        evaluator.close()
        running.finished()


def test_a_killed_worker_comes_back_as_its_next_incarnation_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier process may connect again before it is killed, and is not the one that returns."""
    killed = (Fault(0, "kill", 0.5), 0.15)
    with virtual(monkeypatch, killed, updates=30) as (running, theirs):
        connections = [running.connect(number) for number in (0, 1)]
        first, other = map(Worker, connections, theirs)
        assert running.until(FaultReported, "kill").record["phase"] == "begin"
        connections[0].shutdown(socket.SHUT_RDWR)
        first.end()
        earlier = running.connect()
        earlier.sendall(hello(int(Identity(0, 0))) + header(Kind.PULL))
        assert earlier.recv(1) == b""
        assert running.until(FaultReported, "kill").record["phase"] == "end"
        second = Worker(running.connect(int(Identity(0, 1))), theirs[0])
        for worker in (second, other):
            worker.end()
            assert worker.stopped

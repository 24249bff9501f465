"""The server's sockets while workers are killed and come back."""

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Moment, Version
from testbed.messages.reports import (
    ConnectionClosed,
    FaultVersionReached,
    TrainingEnded,
    UpdatesApplied,
)
from testbed.roles.pace import Paces
from testbed.roles.server.server_connections import REPORT_PERIOD
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.wall_server import WallServer
from testbed.wire.frames import Kind, header
from tests.roles.server.test_server import SIZE, Running, dense, pull, receive, run_server

__all__ = ["run_server"]
KILLED = FaultRule("faults 0", Fault(0, "kill", 1.0), [0], Moment(1000.0))
AT_TWO = FaultRule("faults 1", Fault(1, "freeze"), [1], Version(2))


def test_a_worker_that_comes_back_replaces_its_old_connection(
    run_server: Callable[..., Running],
) -> None:
    running = run_server(rules=(KILLED,), updates=100)
    old, _ = running.connect(0), running.connect(1)
    assert pull(old) == (0, 0.0)
    old.sendall(dense(0, 1.0))
    new = running.connect(0)
    closed = running.until(ConnectionClosed)
    assert closed.worker == 0 and "another connection" in (closed.reason or "")
    # The push that had arrived over the old connection is an update.
    assert pull(new) == (1, -0.5)
    new.sendall(dense(1, 1.0))
    assert pull(new) == (2, -1.0)


def test_a_push_that_arrived_before_its_connection_broke_is_applied(
    run_server: Callable[..., Running],
) -> None:
    running = run_server(updates=100)
    second = running.connect(1)
    for times in range(1, 4):
        first = running.connect(0)
        first.sendall(header(Kind.PULL))
        receive(first)
        # It sends all at once and closes: the server notices when it answers, with a push unread.
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.sendall(header(Kind.PULL) + dense(times - 1, 1.0))
        first.close()
        closed = running.until(ConnectionClosed)
        assert closed.worker == 0
        assert closed.incomplete_bytes == 0 and closed.payload_bytes == len(dense(0, 1.0)) - 32
        assert pull(second)[0] == times


def test_fault_versions_and_the_end_of_training_are_reported_at_once(
    run_server: Callable[..., Running],
) -> None:
    running = run_server(rules=(AT_TWO,), updates=3)
    first, _ = running.connect(0), running.connect(1)
    for version in range(3):
        assert pull(first)[0] == version
        first.sendall(dense(version, 1.0))
    assert running.until(FaultVersionReached).version == 2
    assert running.until(TrainingEnded).version == 3
    first.close()
    running.until(ConnectionClosed)
    # The rows of the updates were reported before.
    kinds: list[type] = [type(report) for report in running.reports]
    assert kinds.index(UpdatesApplied) < kinds.index(FaultVersionReached)
    assert kinds.index(TrainingEnded) < kinds.index(ConnectionClosed)


def test_the_last_worker_may_come_back(run_server: Callable[..., Running]) -> None:
    running = run_server(rules=(KILLED,), updates=100, workers=1)
    first = running.connect(0)
    assert pull(first) == (0, 0.0)
    first.close()
    running.until(ConnectionClosed)
    again = running.connect(0)
    again.sendall(header(Kind.PULL))
    assert receive(again)[:2] == (Kind.PARAMETERS, 0)


def test_a_version_made_because_a_worker_left_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(serving: ServerInputs) -> WallServer:
        half = SynchronousServer(np.zeros(SIZE, np.float32), 0.5, 2, "pull")
        return WallServer(replace(serving, half=half))

    later = replace(AT_TWO, stream="faults 2", when=Version(3))
    running = Running(monkeypatch, make, rules=(AT_TWO, later), updates=4, evaluate_every=100)
    first, second = running.connect(0), running.connect(1)
    for version in (0, 1):
        for worker in (first, second):
            assert pull(worker)[0] == version
        if version == 0:
            second.sendall(dense(0, 1.0))
        first.sendall(dense(version, 1.0))
    running.until(UpdatesApplied)
    second.close()  # the first worker's gradient was waiting for the second's
    assert running.until(FaultVersionReached).version == 2
    assert pull(first)[0] == 2
    first.sendall(dense(2, 1.0))
    assert running.until(FaultVersionReached).version == 3
    running.close()


def test_a_server_ends_at_once_if_all_its_workers_are_dead_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paces = Paces(None, 2)

    def make(serving: ServerInputs) -> WallServer:
        return WallServer(replace(serving, paces=paces))

    running = Running(monkeypatch, make, rules=(KILLED,), updates=100)
    for worker in [running.connect(number) for number in (0, 1)]:
        worker.close()
        running.until(ConnectionClosed)
    time.sleep(2 * REPORT_PERIOD)
    assert not running.of(TrainingEnded)  # worker-0's kill ends, and so might worker-1's
    for number in (0, 1):
        paces.end(number)
    running.until(TrainingEnded)
    assert "no worker is left" in running.events("error")
    running.close()

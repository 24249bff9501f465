"""Pushes that no worker can have computed are refused, and the run goes on without their sender.

The tests are an honest worker and one that greets properly and then sends raw frames as it likes.
"""

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Moment
from testbed.messages.reports import (
    ConnectionClosed,
    EvaluationDue,
    FinalParameters,
    UpdatesApplied,
)
from testbed.roles.transport.greeting import Identity
from testbed.telemetry.update_rows import UPDATE
from testbed.wire.frames import Kind, header
from tests.roles.server import test_server
from tests.roles.server.test_server import Running, dense, pull, receive

KILL = Fault(0, "kill", 1.0)


def without_a_pull(connection: socket.socket) -> None:
    connection.sendall(dense(0, 8.0))


def twice(connection: socket.socket) -> None:
    pull(connection)
    connection.sendall(dense(0, 0.0) + dense(0, 8.0))


def of_an_old_base(connection: socket.socket) -> None:
    pull(connection)
    connection.sendall(dense(0, 0.0))
    pull(connection)
    connection.sendall(dense(0, 8.0))


def again_after_asking(connection: socket.socket) -> None:
    pull(connection)
    connection.sendall(dense(0, 0.0) + header(Kind.PULL) + dense(0, 8.0))


def of_a_future_base(connection: socket.socket) -> None:
    pull(connection)
    connection.sendall(dense(2, 8.0))


WRONG = [
    (without_a_pull, "a push for version 0, for which worker 0 has nothing to push"),
    (twice, "one push more of worker 0 for version 0 than it may make"),
    (of_an_old_base, "a push for version 0, for which worker 0 has nothing to push"),
    (again_after_asking, "worker 0"),
    (of_a_future_base, "a push for version 2, for which worker 0 has nothing to push"),
]


def end_honestly(running: Running, honest: socket.socket) -> npt.NDArray[Any]:
    """Make all updates that are left, with steps of nothing; return the rows of the applied ones."""
    while True:
        honest.sendall(header(Kind.PULL))
        kind, version, _ = receive(honest)
        if kind is Kind.STOP:
            break
        honest.sendall(dense(version, 0.0))
    honest.close()
    running.finished()
    raw = b"".join(one.raw for one in running.of(UpdatesApplied))
    rows: npt.NDArray[Any] = np.frombuffer(raw, UPDATE)
    applied: npt.NDArray[Any] = rows[rows["applied"]]
    return applied


@pytest.mark.parametrize(("misbehave", "told"), WRONG)
def test_an_asynchronous_server_refuses(
    monkeypatch: pytest.MonkeyPatch, misbehave: Callable[[socket.socket], None], told: str
) -> None:
    running = Running(monkeypatch, updates=6)
    try:
        wrong, honest = running.connect(0), running.connect(1)
        running.until(EvaluationDue)  # training has begun
        misbehave(wrong)
        closed = running.until(ConnectionClosed, told)
        assert closed.worker == 0
        rows = end_honestly(running, honest)
        parts = b"".join(part.raw for part in running.of(FinalParameters))
    finally:
        running.close()
    assert not np.frombuffer(parts, np.float32).any(), "a refused push was applied"
    assert rows["iteration"].tolist() == list(range(1, 7))
    keys = list(zip(rows["worker"].tolist(), rows["base_version"].tolist(), strict=True))
    assert len(set(keys)) == len(keys)


def test_a_server_that_sends_every_version_refuses_a_second_push_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = partial(SynchronousServer, learning_rate=0.5, wait_for=1, protocol="push-and-wait")
    monkeypatch.setattr(test_server, "StalenessDivided", lambda zeros, _rate: half(zeros))
    running = Running(monkeypatch, updates=3)
    try:
        wrong, honest = running.connect(0), running.connect(1)
        assert receive(wrong)[:2] == (Kind.PARAMETERS, 0)
        wrong.sendall(dense(0, 0.0))
        assert receive(wrong)[:2] == (Kind.PARAMETERS, 1)
        wrong.sendall(dense(1, 0.0) + dense(0, 8.0))
        assert running.until(ConnectionClosed, "a push for version 0").worker == 0
        for version in (0, 1, 2):
            assert receive(honest)[:2] == (Kind.PARAMETERS, version)
        honest.sendall(header(Kind.FINISHED, 0) + header(Kind.FINISHED, 1) + dense(2, 0.0))
        assert receive(honest)[0] in (Kind.STOP, Kind.PARAMETERS)
        honest.close()
        running.finished()
        parts = b"".join(part.raw for part in running.of(FinalParameters))
    finally:
        running.close()
    assert not np.frombuffer(parts, np.float32).any(), "a refused push was applied"


def test_a_greeting_of_an_earlier_incarnation_does_not_replace_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = FaultRule("faults 0", KILL, [0], Moment(1000.0))
    running = Running(monkeypatch, updates=6, rules=[ends])
    try:
        later, honest = running.connect(int(Identity(0, 1))), running.connect(1)
        assert pull(later) == (0, 0.0)
        earlier = running.connect()
        earlier.sendall(test_server.hello(int(Identity(0, 0))))
        assert earlier.recv(1) == b""
        later.sendall(dense(0, 0.0))
        assert pull(later)[0] == 1
        later.close()
        end_honestly(running, honest)
    finally:
        running.close()

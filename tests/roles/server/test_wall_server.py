"""A server that is restored under the wall clock, with real sockets, in a thread on loopback."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.periodic_checkpoints import Checkpoints
from testbed.engine import server as server_role
from testbed.errors import RunError
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Version
from testbed.messages.reports import (
    CheckpointBegun,
    ConnectionClosed,
    EvaluationDue,
    EventReported,
    ServerFinished,
    ServerRestored,
    TrainingBegun,
    TrainingEnded,
    UpdatesApplied,
)
from testbed.roles.evaluation import evaluator_link
from testbed.roles.server.restart import STORED, Restart
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.wall_server import WallServer
from testbed.wire.frames import Kind, header
from tests.roles.server.test_server import Running, dense, pull, receive

ALL = {"workers": 2, "updates": 100, "evaluate_every": 2}


_KILL = FaultRule("faults 0", Fault(0, "kill", 0.0), [-1], Version(99))
MORTAL: dict[str, Any] = {"updates": 5, "rules": (_KILL,)}
"""Settings of five updates, and of a server that may be killed."""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[CheckpointFiles]:
    with CheckpointFiles.open(tmp_path, STORED) as opened:
        yield opened


@contextmanager
def running(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles, back: Restart | None, **changes: Any
) -> Iterator[Running]:
    def make(serving: ServerInputs) -> WallServer:
        return WallServer(replace(serving, checkpoints=Checkpoints(3, files), restart=back))

    one = Running(monkeypatch, make, **ALL | changes)
    yield one
    one.close()


@contextmanager
def killed(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles, **changes: Any
) -> Iterator[Running]:
    """Run a server that is killed when training has ended: what it writes after the body is lost."""
    with running(monkeypatch, files, None, **changes) as server:
        yield server
        server.until(TrainingEnded)
        kept = [os.pread(one, 1 << 20, 0) for one in files.descriptors]
    for descriptor, content in zip(files.descriptors, kept, strict=True):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)


def evaluate(connection: socket.socket, count: int) -> list[int]:
    """Be the evaluator of some versions; return them."""
    versions = []
    for _ in range(count):
        kind, version, _ = receive(connection)
        assert kind is Kind.PARAMETERS
        connection.sendall(header(Kind.FINISHED, version))
        versions.append(version)
    return versions


def five_updates(server: Running) -> None:
    """Make five updates, with two workers in turn; a checkpoint is written after the third."""
    workers = [server.connect(number) for number in (0, 1)]
    for worker in workers:
        assert pull(worker) == (0, 0.0)
    for i in range(5):
        worker = workers[i % 2]
        version, _ = (0, 0) if i < 2 else pull(worker)
        worker.sendall(dense(version, 1.0))
        server.until(UpdatesApplied)


def test_a_restored_server_goes_on_from_its_checkpoint_with_its_workers(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    with running(monkeypatch, files, None) as first:
        five_updates(first)
        assert [one.version for one in first.of(CheckpointBegun)] == [0, 3]
        training = first.server.host.phase.began
        before = first.server.host.service.payload_bytes
        kept = files.newest()
    assert training is not None
    back = Restart(kills=1, training=training)
    with running(monkeypatch, files, back) as second:
        assert second.until(ServerRestored) == ServerRestored(3, [0, 1])
        again: list[int] = []
        deadline = time.monotonic() + 60
        while len(again) < 2 and time.monotonic() < deadline:
            due = second.of(EvaluationDue)
            again = [one.version for one in due if one.after_restoration]
        assert again == [0, 2]  # neither evaluation has a result yet
        a = second.connect(0)
        a.sendall(header(Kind.PULL))
        a.settimeout(0.3)
        with pytest.raises(TimeoutError):
            a.recv(1)  # the server still waits for the other worker
        a.settimeout(10)
        b = second.connect(1)
        kind, version, body = receive(a)
        assert (kind, version) == (Kind.PARAMETERS, 3)
        assert np.array_equal(np.frombuffer(body, np.float32), kept["half"]["parameters"])
        assert pull(b)[0] == 3
        # Bytes that the killed server received after its checkpoint do not count.
        assert second.server.host.service.payload_bytes == kept["ledger"][0] < before
        a.sendall(dense(3, 1.0))
        assert second.until(UpdatesApplied).version == 4
        started_before = time.monotonic() - training
        assert isinstance(second.server, WallServer)
        assert started_before <= second.server.now() <= time.monotonic() - training


def test_a_checkpoint_is_written_before_training_is_reported(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    with running(monkeypatch, files, None) as server:
        for number in (0, 1):
            server.connect(number)
        server.until(TrainingBegun)
        kinds: list[type] = [type(report) for report in server.reports]
        assert kinds.index(CheckpointBegun) < kinds.index(TrainingBegun)
        assert files.newest()["version"] == 0


def test_a_failed_checkpoint_ends_the_server_and_closes_no_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: raised.append(told.exc_value))
    full = [os.open("/dev/full", os.O_RDWR) for _ in range(2)]
    with (
        CheckpointFiles((full[0], full[1]), STORED) as files,
        running(monkeypatch, files, None) as server,
    ):
        for number in (0, 1):
            server.connect(number)
        server.thread.join(10)
        assert not server.thread.is_alive()
        server.reader.join(10)
        assert not server.of(ConnectionClosed)
    (error,) = raised
    assert isinstance(error, RunError)
    assert "checkpoint of update 0 cannot be written: No space left" in str(error)


def test_a_restored_server_does_not_wait_long_for_missing_workers(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    monkeypatch.setattr(server_role, "BACK_TIMEOUT", 0.5)
    with running(monkeypatch, files, None) as first:
        five_updates(first)
    with running(monkeypatch, files, Restart(1, time.monotonic())) as second:
        a = second.connect(0)
        began = time.monotonic()
        assert pull(a)[0] == 3
        assert 0.3 < time.monotonic() - began < 60
        b = second.connect(1)  # it was cut off, and connects later
        assert pull(b)[0] == 3


def test_a_worker_that_comes_and_goes_does_not_extend_the_wait(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    monkeypatch.setattr(server_role, "BACK_TIMEOUT", 1.0)
    with running(monkeypatch, files, None) as first:
        five_updates(first)
    with running(monkeypatch, files, Restart(1, time.monotonic())) as second:
        began = time.monotonic()
        answered = False
        while not answered:
            assert time.monotonic() - began < 60
            with second.connect(0) as a:  # the other worker never comes back
                a.sendall(header(Kind.PULL))
                a.settimeout(0.3)
                with suppress(TimeoutError):
                    answered = receive(a)[:2] == (Kind.PARAMETERS, 3)
        assert time.monotonic() - began > 0.9


def test_the_clock_of_an_interrupted_run_stands_still(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    with running(monkeypatch, files, None) as first:
        five_updates(first)
    files.cut_back(0)
    with running(monkeypatch, files, Restart(0, None, elapsed=50.0)) as second:
        assert second.until(ServerRestored).version == 0
        time.sleep(1)
        before = time.monotonic()
        workers = [second.connect(number) for number in (0, 1)]
        began = second.until(TrainingBegun).host_time
        # The clock went on from 50 s at a moment between the two readings.
        assert before <= began + 50.0 <= time.monotonic()
        for worker in workers:
            assert pull(worker) == (0, 0.0)


def test_a_checkpoint_holds_only_evaluations_without_a_result(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    with running(monkeypatch, files, None) as server:
        evaluator = server.connect(2)
        done = threading.Event()

        def evaluate(connection: socket.socket) -> None:
            assert receive(connection)[:2] == (Kind.PARAMETERS, 0)
            connection.sendall(header(Kind.FINISHED, 0))
            done.set()

        thread = threading.Thread(target=evaluate, args=(evaluator,))
        thread.start()
        workers = [server.connect(number) for number in (0, 1)]
        thread.join(10)
        assert done.is_set()
        for worker in workers:
            assert pull(worker) == (0, 0.0)
        for worker in (*workers, workers[0]):
            version = (
                0 if worker is workers[1] or server.server.host.service.half.version == 0 else 2
            )
            if version:
                assert pull(worker)[0] == 2
            worker.sendall(dense(version, 1.0))
            server.until(UpdatesApplied)
        deadline = time.monotonic() + 20
        # The update is reported before the checkpoint is written.
        while (state := files.newest())["version"] != 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # The second evaluation was sent, and has no result yet.
        assert [one[0] for one in state["evaluations"]] == [2]


def test_a_server_restored_after_training_sends_evaluations_and_stop(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    with killed(monkeypatch, files, **MORTAL) as first:
        five_updates(first)
    with running(monkeypatch, files, Restart(1, time.monotonic()), **MORTAL) as second:
        assert second.until(ServerRestored).version == 5
        # It waits for devices that may lack STOP: two workers, and the evaluator of 0, 2, 4 and 5.
        worker, evaluator = second.connect(0), second.connect(2)
        assert evaluate(evaluator, 4) == [0, 2, 4, 5]
        assert receive(worker)[0] is Kind.STOP
        assert receive(evaluator)[0] is Kind.STOP
        for connection in (worker, evaluator):
            connection.close()
        assert second.until(ConnectionClosed).reason is None  # it received STOP once, and closed
        assert second.until(ServerFinished).version == 5


def test_a_restored_server_waits_for_the_evaluator_however_late_it_comes(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    """The evaluator is busy when the server dies, and notices it only when its workers have left."""
    monkeypatch.setattr(server_role, "BACK_TIMEOUT", 0.2)
    with killed(monkeypatch, files, **MORTAL) as first:
        five_updates(first)
    with running(monkeypatch, files, Restart(1, time.monotonic()), **MORTAL) as second:
        assert second.until(TrainingEnded).version == 5
        time.sleep(1.0)
        evaluator = second.connect(2)
        assert evaluate(evaluator, 4) == [0, 2, 4, 5]
        assert receive(evaluator)[0] is Kind.STOP
        evaluator.close()
        assert second.until(ServerFinished).version == 5


def test_a_restored_server_does_not_wait_for_an_evaluator_that_was_told_to_leave(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    """It is told when a checkpoint says that nothing of it is missing, and is gone then."""
    monkeypatch.setattr(server_role, "BACK_TIMEOUT", 0.2)
    with running(monkeypatch, files, None, **MORTAL) as first:
        evaluator = first.connect(2)
        five_updates(first)
        first.until(TrainingEnded)
        assert evaluate(evaluator, 3) == [0, 2, 4]
        assert receive(evaluator)[:2] == (Kind.PARAMETERS, 5)
        evaluator.settimeout(0.5)
        with pytest.raises(TimeoutError):  # it has not reported version 5 yet
            receive(evaluator)
        evaluator.settimeout(10)
        evaluator.sendall(header(Kind.FINISHED, 5))
        assert receive(evaluator)[0] is Kind.STOP
        assert not files.newest()["evaluations"]
        evaluator.close()
    began = time.monotonic()
    with running(monkeypatch, files, Restart(1, began), **MORTAL) as second:
        assert second.until(ServerFinished).version == 5
        assert time.monotonic() - began < 10
        assert not second.events("error")


def test_a_restored_server_gives_up_an_evaluator_that_never_comes(
    monkeypatch: pytest.MonkeyPatch, files: CheckpointFiles
) -> None:
    monkeypatch.setattr(evaluator_link, "EVALUATOR_TIMEOUT", 0.5)
    with killed(monkeypatch, files, **MORTAL) as first:
        five_updates(first)
    with running(monkeypatch, files, Restart(1, time.monotonic()), **MORTAL) as second:
        missing = "nothing was heard of it for 0.5 s: 4 evaluations are missing"
        assert second.until(EventReported, missing).device == 2
        assert second.until(ServerFinished).version == 5

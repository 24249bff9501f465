"""The devices that are killed when training is over, and how long each has to end before."""

import os
import signal
import subprocess
import sys
import time

from testbed.orchestrator.liveness import (
    LEAVING_TIMEOUT,
    LOOK_PERIOD,
    PAUSED_TIMEOUT,
    SUSPECTED_TIMEOUT,
    Liveness,
    is_stalled,
)

WORKERS = ("worker-0", "worker-1", "worker-2")


def there() -> Liveness:
    liveness = Liveness(WORKERS)
    for device in ("server", *WORKERS):
        liveness.started(device)
    return liveness


def test_a_device_that_does_not_end_in_time_is_killed_once() -> None:
    liveness = there()
    assert list(liveness.overdue(1e9)) == []  # training goes on
    liveness.over(100.0)
    liveness.exited("worker-1")
    assert list(liveness.overdue(100.0 + LEAVING_TIMEOUT - 1)) == []
    late = 100.0 + LEAVING_TIMEOUT
    left = [("worker-0", LEAVING_TIMEOUT), ("worker-2", LEAVING_TIMEOUT)]
    assert list(liveness.overdue(late)) == left
    assert list(liveness.overdue(late + 1)) == []
    assert liveness.any_alive
    for device in ("server", "worker-0", "worker-2"):
        liveness.exited(device)
    assert not liveness.any_alive


def test_a_worker_that_was_killed_and_is_back_is_no_longer_suspected() -> None:
    liveness = there()
    liveness.suspect("worker-0")
    liveness.exited("worker-0")
    liveness.started("worker-0")
    liveness.over(100.0)
    assert list(liveness.overdue(100.0 + SUSPECTED_TIMEOUT)) == []


def test_a_suspected_worker_has_less_time_and_a_new_server_suspects_none() -> None:
    liveness = there()
    for worker in WORKERS[:2]:
        liveness.suspect(worker)
    liveness.clear_suspicions()
    liveness.suspect("worker-1")
    liveness.suspect("worker-2")
    liveness.welcome("worker-2")
    liveness.over(100.0)
    assert list(liveness.overdue(101.0)) == [("worker-1", SUSPECTED_TIMEOUT)]


def test_a_stopped_worker_has_less_time_than_one_that_computes() -> None:
    liveness = there()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as worker:
        processes = {"worker-0": worker.pid, "worker-1": os.getpid()}
        os.kill(worker.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 20
        while not is_stalled(worker.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert list(liveness.overdue(90.0)) == []  # training goes on
        liveness.stopping(100.0, processes)
        assert list(liveness.overdue(100.0)) == []
        os.kill(worker.pid, signal.SIGCONT)
        while is_stalled(worker.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert list(liveness.overdue(100.0 + PAUSED_TIMEOUT)) == []
        os.kill(worker.pid, signal.SIGSTOP)
        while not is_stalled(worker.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        again = 100.0 + PAUSED_TIMEOUT + LOOK_PERIOD
        assert list(liveness.overdue(again)) == []
        # It is killed although the server has not ended.
        assert list(liveness.overdue(again + PAUSED_TIMEOUT)) == [("worker-0", PAUSED_TIMEOUT)]
        worker.kill()
    assert not is_stalled(worker.pid)

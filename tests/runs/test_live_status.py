"""The state of a run that is written step by step, as a reader beside it sees it."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.faults.fault import Fault
from testbed.messages.fault_changes import FaultChange, Kind, Phase
from testbed.results.reading.recorded_run import RecordedRun
from testbed.runs import runs_on_host
from testbed.runs.live_status import LiveStatus
from testbed.telemetry.entries import FaultChanged, Noted, Updates
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.run_log import RunLog
from testbed.telemetry.update_rows import UPDATE

MANIFEST: dict[str, Any] = {
    "experiment": "small",
    "algorithm": "asgd",
    "seed": 1,
    "engine": "emulation",
    "clock": "wall",
    "workers": 3,
}


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog(
        tmp_path / "small" / "now-1" / "asgd",
        "training: {updates: 40}\n",
        MANIFEST,
        began=time.monotonic() - 1,
    )


def rows(first: int, last: int, seconds: float) -> np.ndarray[Any, Any]:
    """Return the updates ``first`` to ``last``, of 1,000 bytes each and 0.1 s apart."""
    made = np.zeros(last - first + 1, UPDATE)
    made["iteration"] = np.arange(first, last + 1)
    made["host_time"] = seconds + 0.1 * np.arange(len(made))
    made["message_bytes"] = 1000
    made["applied"] = True
    return made


def fault(phase: Phase, kind: Kind, device: str) -> FaultChange:
    return Fault(0, kind, 2.0).record(phase, [int(device[-1])], 1.0, 3)


def test_a_run_is_followed_as_it_writes(log: RunLog) -> None:
    live = LiveStatus(RecordedRun.load(log.directory))
    status = live.look(running=True)
    assert (status.phase, status.updates, status.update_rate) == ("making nodes", 0, None)
    log.take(Noted("info", "training begins", kind=EventKind.TRAINING_BEGAN))
    log.take(Updates(rows(1, 10, 0.1), 0))
    status = live.look(running=True)
    assert (status.phase, status.updates, status.all_updates) == ("training", 10, 40)
    assert status.update_rate == pytest.approx(10, rel=0.2)
    assert status.ingress_rate == pytest.approx(10_000, rel=0.2)
    assert live.look(running=True).updates == 10  # nothing is read twice
    log.take(Updates(rows(11, 40, 1.1), 0))
    assert live.look(running=True).phase == "finishing"
    first_look = LiveStatus(RecordedRun.load(log.directory))
    log.close("completed", None, {"updates": 40, "ended": "completed"})
    # It has ended since the look for what is running, and its rows are in another file.
    status = first_look.look(running=True)
    assert (status.phase, status.ended, status.updates) == ("completed", True, 40)
    status = live.look(running=False)
    assert (status.ended, status.update_rate) == (True, None)
    shutil.rmtree(log.directory)
    assert live.look(running=False).phase == "removed"


def test_rates_fall_while_nothing_is_written(log: RunLog) -> None:
    log.take(Updates(rows(1, 10, 0.1), 0))
    past = time.time() - 99
    os.utime(log.directory / "updates.arrows", (past, past))
    status = LiveStatus(RecordedRun.load(log.directory)).look(running=True)
    assert status.update_rate == pytest.approx(0.1, rel=0.05)


def test_a_run_that_goes_back_is_read_anew(log: RunLog) -> None:
    live = LiveStatus(RecordedRun.load(log.directory))
    log.take(Updates(rows(1, 20, 0.1), 0))
    assert live.look(running=True).updates == 20
    log.go_back(12, 12)
    assert live.look(running=True).updates == 12
    log.take(Updates(rows(13, 15, 3.0), 0))
    assert live.look(running=True).updates == 15


def test_faults_are_counted_while_they_last(log: RunLog) -> None:
    live = LiveStatus(RecordedRun.load(log.directory))
    log.take(FaultChanged(fault("begin", "kill", "worker-1"), ["worker-1"], 1.0))
    log.take(FaultChanged(fault("begin", "slow", "worker-2"), ["worker-2"], 1.0))
    status = live.look(running=True)
    assert (status.alive, status.faulted) == (2, 2)
    log.take(FaultChanged(fault("end", "kill", "worker-1"), ["worker-1"], 2.0))
    status = live.look(running=True)
    assert (status.alive, status.faulted) == (3, 1)


def test_a_run_is_running_while_its_process_holds_its_events(log: RunLog) -> None:
    def found() -> list[Path]:
        return [run.directory for run in runs_on_host.running_runs()]

    assert log.directory in found()
    (own,) = runs_on_host.named(runs_on_host.running_runs(), str(log.directory))
    for text in ("small", "small/now-1", "small/now-1/asgd", "asgd", str(os.getpid())):
        assert own.directory in [one.directory for one in runs_on_host.named([own], text)]
    assert runs_on_host.named([own], "smal") == []
    log.close("completed", None, {"updates": 0})
    assert log.directory not in found()

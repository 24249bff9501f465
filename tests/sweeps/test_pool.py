"""The processes of a sweep on this host: forked, or started anew where a GPU forbids it, and killed."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from testbed.experiment.combinations import load_sweep
from testbed.experiment.load import dump
from testbed.results.reading.recorded_run import RecordedRun
from testbed.signal_handlers import STOPPING
from testbed.sweeps import pool, run_process
from testbed.sweeps.needed_runs import wanted
from testbed.sweeps.pool import TITLE, SweepJob, SweepPool


class Processes:
    """A display that records what the processes are, and may end them."""

    def __init__(self, number: int | None = None) -> None:
        self.titles: set[str] = set()
        self._number = number

    def show(self, running: Sequence[SweepJob]) -> None:
        for one in psutil.Process().children():
            line = one.cmdline()
            title = TITLE if line[:1] == [TITLE] else run_process.__name__
            if title in line:
                self.titles.add(title)
                if self._number is not None and running:
                    os.kill(one.pid, self._number)

    def event(self, job: SweepJob, level: str, text: str) -> None:
        """Ignore an event."""

    def ended(self, job: SweepJob) -> None:
        """Ignore an end."""


def jobs(file: Path, updates: int, folder: Path) -> list[SweepJob]:
    """Return the first two runs of a sweep."""
    runs = wanted(load_sweep(file, (f"training.updates={updates}",)), folder)[:2]
    return [SweepJob(one.title, dump(one.spec), one.directory) for one in runs]


def test_forked_and_new_interpreters_end_with_the_same_bits(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests, titles = [], []
    for gpu in (False, True):
        monkeypatch.setattr(pool, "_sees_gpu", lambda gpu=gpu: gpu)
        given, seen = jobs(file, 40, tmp_path / str(gpu)), Processes()
        with SweepPool(1) as processes:
            assert processes.carry_out(given, seen) is None
        assert [one.result and one.result.ended for one in given] == ["completed"] * 2
        digests.append([RecordedRun.load(one.directory).summary.parameters_sha256 for one in given])
        titles.append(seen.titles)
    assert digests[0] == digests[1]
    assert titles[0] == {TITLE}
    assert run_process.__name__ in titles[1]  # it is forked, and then another program


@pytest.mark.parametrize(
    ("number", "ended"),
    [*((number, "interrupted") for number in STOPPING), (signal.SIGKILL, "failed")],
)
def test_a_process_that_is_ended_ends_its_run_and_no_other(
    number: signal.Signals, ended: str, file: Path, tmp_path: Path
) -> None:
    first, second = jobs(file, 1_000_000, tmp_path)
    second.spec = second.spec.replace("1000000", "40")
    with SweepPool(1) as processes:
        processes.carry_out([first], Processes(number))
        processes.carry_out([second], Processes())
    assert first.result and first.result.ended == ended
    assert second.result and second.result.ended == "completed"


@pytest.mark.parametrize("number", STOPPING)
def test_a_process_that_is_ended_before_its_run_begins_was_interrupted(
    number: signal.Signals, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_process, "carry_out", lambda *_: time.sleep(60))  # it notes no signal
    first, _ = jobs(file, 40, tmp_path)
    with SweepPool(1) as processes:
        processes.carry_out([first], Processes(number))
    assert first.result and first.result.ended == "interrupted"
    assert first.result.reason == f"its process ended with status {-number}"

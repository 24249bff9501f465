"""Signals that come during a run, and those that come when it has ended already."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.channel import readable
from testbed.errors import InterruptedRunError
from testbed.execution import execute
from testbed.experiment.load import load
from testbed.runs.ending import LateSignalError, signal_in, signals
from testbed.runs.watching import Unwatched
from testbed.simulation.recording import Recording
from testbed.simulation.simulated_run import SimulatedRun

SPEC = """
name: two
dataset: digits
model: mlp
engine: simulation
compute: {mean: 100ms}
training: {updates: 20}
algorithms: [asgd, adacomp]
devices: {workers: 2}
evaluation: {every: 10, images: 50}
"""


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_a_signal_that_is_read_is_the_reader_s() -> None:
    with signals() as wake_up:
        send(signal.SIGTERM)
        assert readable(wake_up, 10)
        assert os.read(wake_up, 1)[0] == signal.SIGTERM
        send(signal.SIGINT)  # a second one, while the run that was stopped is taken down


def test_a_signal_that_nobody_reads_is_raised_at_the_end() -> None:
    with pytest.raises(LateSignalError, match="SIGTERM") as late, signals():
        send(signal.SIGTERM)
        send(signal.SIGINT)
    assert late.value.number == signal.SIGTERM


def test_an_error_of_the_body_goes_before_a_signal() -> None:
    with pytest.raises(ZeroDivisionError), signals():
        send(signal.SIGINT)
        raise ZeroDivisionError


def test_a_signal_while_a_run_s_directory_and_libraries_are_made_ready_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that imports another may swallow a KeyboardInterrupt, as Arrow does with pandas."""
    made = Recording

    def interrupted(*arguments: Any, **named: Any) -> Recording:
        recording = made(*arguments, **named)
        with contextlib.suppress(BaseException):
            send(signal.SIGINT)
        return recording

    monkeypatch.setattr("testbed.simulation.simulated_run.Recording", interrupted)
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("updates: 20", "updates: 1000000"))
    execution = execute(load(path), tmp_path / "runs", lambda *_: Unwatched(), report=False)
    (summary,) = execution.summaries
    assert summary["reason"] == "stopped by SIGINT"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (1, r"after 1 run of 2: `testbed resume '.*/my runs/.*'` carries out the others"),
        (2, r"after 2 runs of 2: `testbed report '.*/my runs/.*'` writes the report"),
    ],
)
def test_ctrl_c_while_a_run_s_end_is_written_ends_the_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, said: str
) -> None:
    ended = 0
    write_end = SimulatedRun._write_end

    def interrupted(run: SimulatedRun) -> dict[str, Any]:
        nonlocal ended
        ended += 1
        summary = write_end(run)
        if ended == at:
            send(signal.SIGINT)
        return summary

    monkeypatch.setattr(SimulatedRun, "_write_end", interrupted)
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    with pytest.raises(InterruptedRunError, match=said) as error:
        execute(load(path), tmp_path / "my runs", lambda *_: Unwatched())
    assert error.value.exit_status == 130
    assert ended == at
    done = [one.parent.name for one in tmp_path.glob("my runs/*/*/*/summary.json")]
    assert len(done) == at


def test_a_signal_of_another_part_of_the_process_ends_nothing() -> None:
    """Python writes each signal that it handles to the descriptor: a library's timer does as well."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        with pytest.raises(LateSignalError, match="SIGTERM"), signals() as wake_up:
            send(signal.SIGALRM)
            assert signal_in(wake_up) is None
            send(signal.SIGTERM)
            send(signal.SIGALRM)
        with signals() as wake_up:
            send(signal.SIGALRM)
            send(signal.SIGTERM)
            assert signal_in(wake_up) == signal.SIGTERM
    finally:
        signal.signal(signal.SIGALRM, before)

"""However a simulation on several processors ends, none of its processes is left."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.end_to_end.conftest import warm
from tests.end_to_end.warm import WarmCommand

SPEC = """
name: long
dataset: {name: digits, train_images: 300}
model: cnn
engine: simulation
training: {updates: 100000, learning_rate: 0.001}
algorithms: [asgd]
devices: {workers: 5}
compute: {distribution: exponential, mean: 1ms}
evaluation: {every: 100000, images: 10}
simulation: {processors: 2}
"""


class Started(NamedTuple):
    run: WarmCommand
    pool: list[psutil.Process]
    errors: Path

    def end(self) -> tuple[int, str]:
        """Wait for the run's end; return its status and its standard error."""
        return self.run.wait(60), self.errors.read_text()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    (tmp_path / "long.yaml").write_text(SPEC)
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr, Path(os.devnull).open("wb") as stdout:
        streams = stdout.fileno(), stderr.fileno()
        run = warm().start(["run", "long.yaml", "--no-report"], tmp_path, os.environ, *streams)
    try:
        deadline = time.monotonic() + 60
        pool: list[psutil.Process] = []
        while len(pool) < 2 and time.monotonic() < deadline and run.poll() is None:
            time.sleep(0.1)
            # git, which tells the code's commit, is no process of the pool, and may have just ended.
            with contextlib.suppress(psutil.NoSuchProcess):
                pool = [one for one in run.children() if one.cmdline() == run.cmdline()]
        assert len(pool) == 2
        yield Started(run, pool, errors)
    finally:
        if run.poll() is None:
            run.kill()
        run.wait()


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=30)[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_of_them_interrupts_the_run(
    started: Started, number: signal.Signals
) -> None:
    os.killpg(started.run.pid, number)
    status, said = started.end()
    assert status == 128 + number
    assert f"asgd interrupted: stopped by {number.name}" in said
    assert gone(started.pool)


def test_they_end_with_a_run_that_is_killed(started: Started) -> None:
    started.run.kill()
    assert gone(started.pool)


def test_a_run_that_loses_one_fails_with_a_sentence(started: Started) -> None:
    started.pool[1].kill()
    status, said = started.end()
    assert status == 1
    assert "asgd failed: a process that computes gradients was killed by SIGKILL: with" in said
    assert gone(started.pool)

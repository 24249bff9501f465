"""Ctrl-C in every phase of every command: the exit status is 130, and no traceback is shown.

A command is held in its phase by something that it waits for: a fifo without data, or a proxy that
never answers.
"""

import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.conftest import ENDLESS, CommandLine, Started

INTERRUPTED = 130


def hold(path: Path) -> Path:
    """Replace a file by a fifo, so that a process that reads it waits; return the path."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def interrupt_once_read(started: Started, path: Path) -> None:
    """Interrupt the command when it has opened the fifo and waits for data."""

    def opened() -> int | None:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # ENXIO: no process reads the fifo yet
            return None

    # Kept open: without a writer, the command would see the end of the file and go on.
    writer = started.until(opened, f"it opens {path}")
    try:
        # A signal between the interpreter's last check for signals and read() would not end read().
        started.until(
            lambda: started.process.status() == psutil.STATUS_SLEEPING, f"it reads {path}"
        )
        assert_interrupted(started)
    finally:
        os.close(writer)


def assert_interrupted(started: Started) -> None:
    started.interrupt()
    assert started.wait() == INTERRUPTED, started.said
    assert "Traceback" not in started.said


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a complete run without a report."""
    command = CommandLine(tmp_path_factory.mktemp("complete"))
    done = command.do("simulate", command.spec(), "--out", command.out, "--no-report")
    assert done.returncode == 0, done.stderr
    (summary,) = command.out.glob("*/*/*/summary.json")
    return summary.parent


@pytest.mark.parametrize("what", ["plan", "run"])
def test_ctrl_c_while_the_experiment_file_is_read(command: CommandLine, what: str) -> None:
    path = hold(command.folder / "spec.yaml")
    interrupt_once_read(command.start(what, path), path)


def test_ctrl_c_while_a_dataset_is_fetched(
    command_with: Callable[..., CommandLine], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        address = "http://{}:{}".format(*proxy.getsockname())
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        command = command_with(
            **dict.fromkeys(names, address), no_proxy="", NO_PROXY="", XDG_CACHE_HOME=str(cache)
        )
        started = command.start("data", "fetch", "mnist")
        proxy.settimeout(60)
        connection, _ = proxy.accept()
        with connection:
            assert_interrupted(started)
    # A partial download is not kept.
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_ctrl_c_while_a_simulation_trains(command: CommandLine) -> None:
    started = command.start("simulate", command.spec(ENDLESS), "--out", command.out, "--no-report")
    started.until_training()
    assert_interrupted(started)
    goes_on = f"`testbed resume {started.run_directory.parent}` goes on where it stopped"
    assert f"testbed: asgd interrupted: stopped by SIGINT; {goes_on}" in started.said


def test_another_signal_has_its_own_status(command: CommandLine) -> None:
    started = command.start("simulate", command.spec(ENDLESS), "--out", command.out, "--no-report")
    started.until_training()
    started.process.terminate()
    assert started.wait() == 128 + signal.SIGTERM, started.said


def test_ctrl_c_while_the_report_of_a_run_is_written(
    command_with: Callable[..., CommandLine], tmp_path: Path
) -> None:
    settings = hold(tmp_path / "matplotlibrc")  # matplotlib reads it before it draws the figures
    command = command_with(MATPLOTLIBRC=str(settings))
    started = command.start("simulate", command.spec(), "--out", command.out)
    interrupt_once_read(started, settings)
    assert (
        "testbed: interrupted while the report was written; the runs are complete" in started.said
    )


def test_ctrl_c_while_a_report_is_written_anew(
    command_with: Callable[..., CommandLine], run: Path, tmp_path: Path
) -> None:
    settings = hold(tmp_path / "matplotlibrc")
    command = command_with(MATPLOTLIBRC=str(settings))
    directory = command.folder / "copy" / "execution" / run.name
    shutil.copytree(run, directory)
    interrupt_once_read(command.start("report", directory), settings)


def test_ctrl_c_while_a_run_is_replayed(command: CommandLine, run: Path) -> None:
    started = command.start("replay", run, "--metrics-port", "0", "--speed", "0.0001")
    started.until(lambda: "metrics: http" in started.said, "it serves")
    assert_interrupted(started)

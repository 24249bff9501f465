"""Standard streams that cannot be written to: runs complete, only what was to be printed is lost."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.conftest import ENGINES, REPOSITORY, SMALL, warm

SPEC: dict[str, Any] = SMALL | {"training": {"updates": 12}, "devices": {"workers": 2}}
SECONDS = 240


@contextlib.contextmanager
def without_a_reader() -> Iterator[int]:
    """Yield a pipe whose reader has ended: EPIPE."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@contextlib.contextmanager
def full_disk() -> Iterator[int]:
    """Yield a file on a full disk: ENOSPC."""
    opened = os.open("/dev/full", os.O_WRONLY)
    yield opened
    os.close(opened)


@contextlib.contextmanager
def hung_up() -> Iterator[int]:
    """Yield a terminal that has hung up: EIO."""
    master, terminal = pty.openpty()
    os.close(master)
    yield terminal
    os.close(terminal)


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """Yield a pipe that is full and does not block: EAGAIN."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    yield writing
    os.close(reading)
    os.close(writing)


@contextlib.contextmanager
def closed() -> Iterator[None]:
    """Yield None for a descriptor that is closed: EBADF."""
    yield None


DEAD: dict[str, Callable[[], Any]] = {
    "EPIPE": without_a_reader,
    "ENOSPC": full_disk,
    "EIO": hung_up,
    "EAGAIN": full_pipe,
    "EBADF": closed,
}


class Printed:
    """A command, of which some standard streams are dead."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}

    def spec(self, content: dict[str, Any]) -> Path:
        path = self.folder / "spec.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    def do(
        self,
        *arguments: str | Path,
        stdout: int | None,
        stderr: int | None,
        interpreter: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Carry out a command in a warm process; a stream that is None is closed.

        Args:
            interpreter: True to start one, which finds at its start that streams are closed.
        """
        texts = [*map(str, arguments)]
        if interpreter:
            return self._started(texts, stdout, stderr)
        written = [self.folder / name for name in ("output", "errors")]
        with written[0].open("wb") as output, written[1].open("wb") as errors:
            streams = [
                kept.fileno() if asked in {None, subprocess.PIPE} else asked
                for kept, asked in ((output, stdout), (errors, stderr))
            ]
            closed = [number for number, one in ((1, stdout), (2, stderr)) if one is None]
            command = warm().start(texts, self.folder, self.environment, *streams, closed=closed)
            status = command.wait(SECONDS)
        return subprocess.CompletedProcess(texts, status, *(path.read_text() for path in written))

    def _started(
        self, texts: list[str], stdout: int | None, stderr: int | None
    ) -> subprocess.CompletedProcess[str]:
        close = [">&-"] * (stdout is None) + ["2>&-"] * (stderr is None)
        shell = f'exec "$@" {" ".join(close)}'
        return subprocess.run(
            ["sh", "-c", shell, "sh", sys.executable, "-m", "testbed", *texts],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if stdout is None else stdout,
            stderr=subprocess.DEVNULL if stderr is None else stderr,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def ends(self) -> list[str]:
        found = sorted(self.folder.glob("**/manifest.json"))
        return [json.loads(path.read_bytes())["ended"] for path in found]


@pytest.fixture
def printed(tmp_path: Path) -> Printed:
    return Printed(tmp_path)


@pytest.mark.parametrize("error", DEAD)
def test_a_simulation_completes_without_its_progress(error: str, printed: Printed) -> None:
    with DEAD[error]() as dead:
        spec = printed.spec(SPEC | {"algorithms": ["asgd", "comp-asgd"]})
        done = printed.do("simulate", spec, "--no-report", stdout=subprocess.PIPE, stderr=dead)
    assert printed.ends() == ["completed", "completed"]
    assert done.returncode == 0
    assert "wire bytes" in done.stdout or "bytes: payload" in done.stdout


@pytest.mark.real
@pytest.mark.parametrize("error", ["EPIPE", "EBADF"])
def test_an_emulation_completes_without_its_progress(error: str, printed: Printed) -> None:
    with DEAD[error]() as dead:
        spec = printed.spec(SPEC)
        streams = {"stdout": subprocess.PIPE, "stderr": dead}
        done = printed.do("run", spec, "--no-report", interpreter=error == "EBADF", **streams)
    assert printed.ends() == ["completed"]
    assert done.returncode == 0
    assert "the three ledgers agree in 1 of 1 run" in done.stdout


@pytest.mark.parametrize("error", ["EIO", "EBADF"])
def test_a_run_completes_without_both_streams(error: str, printed: Printed) -> None:
    with DEAD[error]() as one, DEAD[error]() as other:
        spec = printed.spec(SPEC | {"algorithms": ["asgd", "comp-asgd"]})
        streams = {"stdout": one, "stderr": other}
        done = printed.do("simulate", spec, "--no-report", interpreter=error == "EBADF", **streams)
    assert printed.ends() == ["completed", "completed"]
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("options", "error", "status", "told"),
    [
        ((), "EPIPE", 0, ""),
        ((), "ENOSPC", 0, "No space left on device: `testbed show` prints the results"),
        (("--json",), "EPIPE", 0, ""),
        (("--json",), "ENOSPC", 1, "testbed: the output cannot be written: No space left"),
    ],
)
def test_the_results_of_runs_that_cannot_be_printed(
    options: tuple[str, ...], error: str, status: int, told: str, printed: Printed
) -> None:
    with DEAD[error]() as dead:
        spec = printed.spec(SPEC)
        done = printed.do(
            "simulate", spec, "--no-report", *options, stdout=dead, stderr=subprocess.PIPE
        )
    assert printed.ends() == ["completed"]
    assert done.returncode == status, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot be written" in done.stderr if told else "cannot" not in done.stderr


@pytest.mark.parametrize("error", ["EPIPE", "EBADF"])
def test_a_sweep_completes_though_nothing_of_it_is_printed(error: str, printed: Printed) -> None:
    with full_disk() as one, DEAD[error]() as other:
        spec = printed.spec(SPEC | ENGINES["simulated"] | {"sweep": {"seed": [1, 2]}})
        one_process = ("--no-figures", "--at-once", "1")
        done = printed.do("sweep", spec, *one_process, stdout=one, stderr=other)
    assert printed.ends() == ["completed", "completed"]
    assert done.returncode == 0


def test_a_resumption_completes_though_nothing_of_it_is_printed(printed: Printed) -> None:
    spec = printed.spec(SPEC | {"training": {"updates": 100_000}} | ENGINES["simulated"])
    reading, writing = os.pipe()
    with (printed.folder / "begun").open("wb") as output, os.fdopen(reading) as told:
        command = ["run", str(spec), "--no-report"]
        where = (printed.folder, printed.environment)
        begun = warm().start(command, *where, output.fileno(), writing)
        os.close(writing)
        for line in told:
            if "training" in line:
                begun.send_signal(signal.SIGTERM)
                break
    # Its reader has ended, too.
    assert begun.wait(SECONDS) == 128 + signal.SIGTERM
    assert printed.ends() == ["interrupted"]
    (directory,) = printed.folder.glob("runs/*/*/asgd")
    text = (directory / "spec.yaml").read_text()
    (directory / "spec.yaml").write_text(text.replace("100000", "12"))
    with without_a_reader() as one, full_disk() as other:
        done = printed.do("resume", directory, "--no-report", stdout=one, stderr=other)
    assert (printed.ends(), done.returncode) == (["completed"], 0)


@pytest.mark.parametrize(
    ("command", "error", "status", "told"),
    [
        ("schema", "EPIPE", 1, ""),
        ("plan", "EIO", 1, "testbed: the output cannot be written: Input/output error\n"),
        ("plan", "EBADF", 0, ""),
    ],
)
def test_a_command_that_only_prints(
    command: str, error: str, status: int, told: str, printed: Printed
) -> None:
    arguments = () if command == "schema" else (printed.spec(SPEC),)
    with DEAD[error]() as dead:
        done = printed.do(command, *arguments, stdout=dead, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (status, told)


def test_output_waits_for_a_pipe_that_does_not_block(printed: Printed) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    with (printed.folder / "errors").open("wb") as errors:
        where = (printed.folder, printed.environment)
        schema = warm().start(["schema"], *where, writing, errors.fileno())
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as text:
        assert "$defs" in json.load(text)  # more than the pipe holds
    assert schema.wait(SECONDS) == 0


LIBRARY = """
import sys, testbed
runs = testbed.simulate(sys.argv[1], out=sys.argv[2])
swept = testbed.sweep(sys.argv[1], {"seed": [1]}, out=sys.argv[2])
assert [run.summary.ended for run in (*runs, *swept.runs)] == ["completed"] * 2
open(sys.argv[3], "w").close()
"""


def test_the_library_goes_on_without_standard_error(printed: Printed) -> None:
    spec, done = printed.spec(SPEC | ENGINES["simulated"]), printed.folder / "done"
    with full_disk() as dead:
        subprocess.run(
            [sys.executable, "-c", LIBRARY, str(spec), str(printed.folder / "runs"), str(done)],
            env=printed.environment,
            stderr=dead,
            timeout=SECONDS,
            check=False,
        )
    assert done.exists()

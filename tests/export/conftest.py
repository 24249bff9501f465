"""Two small simulated runs, one of which reports diagnostics, and servers that show exports."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import parquet

import testbed
from testbed.export.exporting import Destination, export
from testbed.results.reading.recorded_run import RecordedRun

SMALL = """
name: small
dataset: digits
model: mlp
training: {updates: 60}
algorithms: [asgd, {name: dana, label: dana, momentum: 0.5}]
devices: {workers: 3}
waiting: {distribution: constant, mean: 10ms}
evaluation: {every: 20}
"""


@pytest.fixture(scope="package")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an execution with the runs ``asgd`` and ``dana``."""
    root = tmp_path_factory.mktemp("export")
    return testbed.simulate(testbed.Experiment.parse(SMALL), out=root, progress=False).directory


@pytest.fixture(scope="package")
def runs(simulated: Path) -> list[RecordedRun]:
    return [RecordedRun.load(simulated / name) for name in ("asgd", "dana")]


def grown(run: RecordedRun, into: Path) -> RecordedRun:
    """Return a run as it was before its last evaluation: a copy under the same id."""
    copied = into / Path(*run.directory.parts[-3:])
    shutil.copytree(run.directory, copied)
    path = copied / "evaluations.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table.slice(0, len(table) - 1), path)
    return RecordedRun.load(copied)


def what(runs: Sequence[RecordedRun], to: Destination, *, figures: bool = False) -> list[str]:
    """Export runs, and return what became of each."""
    return [one.what for one in export(runs, to, figures)]


@contextmanager
def server(command: Sequence[str | Path], health: str, **more: str) -> Iterator[str]:
    """Start a server with a free port after its command, and yield its address once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    environment = {**os.environ, **more}
    words = [*map(str, command), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: process.poll() is not None or _answers(address + health))
            assert process.poll() is None
            yield address
        finally:
            process.terminate()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=10):
            return True
    except (urllib.error.URLError, OSError):
        return False


def columns(run: RecordedRun, table: str = "evaluations") -> Mapping[str, list[float]]:
    """Return a table of a run directory, read without the code under test."""
    found: dict[str, list[float]] = parquet.read_table(
        run.directory / f"{table}.parquet"
    ).to_pydict()
    return found

"""A whole run of real processes, in a network namespace of its own."""

import csv
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.end_to_end.warm import Warm, WarmCommand

REPOSITORY = Path(__file__).parents[2]
SPEC = """\
name: alone
dataset: digits
model: mlp
training: {updates: %d, learning_rate: %g}
algorithms: [asgd]
devices: {workers: %d}
evaluation: {every: 10}
waiting: {distribution: constant, mean: 10ms}
"""


def isolated() -> list[str]:
    """Return a prefix that gives a command its own network; skip the test where that is impossible."""
    before = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    try:
        subprocess.run([*before, "ip", "link"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespace can be made here: {error}")
    return before


# In one network of their own, because their ports are fixed, and forked from one process, because an
# interpreter of each role takes more of a processor than its training.
@pytest.fixture(scope="module")
def warm() -> Warm:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    return Warm(environment, [*isolated(), "sh", "-c", 'ip link set lo up; exec "$@"', "sh"])


class Roles:
    """The processes of a run; what the server prints comes by ``stdout``."""

    def __init__(self, warm: Warm, folder: Path, workers: int) -> None:
        environment = os.environ | {
            "TESTBED_SECRET": secrets.token_hex(16),
            "PYTHONPATH": str(REPOSITORY),
        }
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading, encoding="utf-8")

        def role(output: int, *arguments: str) -> WarmCommand:
            return warm.start(
                arguments, folder, environment, output, output, program="testbed.standalone"
            )

        self.server = role(writing, "server", "spec.yaml", "--results", "results")
        os.close(writing)
        self._processes = [self.server]
        for i, name in enumerate(["worker"] * workers + ["evaluator"]):
            with (folder / f"{name}-{i}.log").open("wb") as log:
                self._processes.append(role(log.fileno(), name))

    def wait(self, seconds: float) -> int:
        """Wait until every role has ended; return the server's exit status."""
        deadline = time.monotonic() + seconds
        for process in self._processes:
            process.wait(max(0.0, deadline - time.monotonic()))
        return self.server.wait()

    def rest(self, seconds: float) -> tuple[int, str]:
        """Read what the server still prints; return its exit status, and that, once all have ended."""
        said = self.stdout.read()
        return self.wait(seconds), said

    def close(self) -> None:
        self.stdout.close()
        for process in self._processes:
            if process.poll() is None:
                process.kill()


class Starting(Protocol):
    def __call__(self, updates: int, learning_rate: float = 0.1, workers: int = 1) -> Roles: ...


@pytest.fixture
def start(warm: Warm, tmp_path: Path) -> Iterator[Starting]:
    """A function that starts all roles; those still running at the end are killed."""
    started: list[Roles] = []

    def starting(updates: int, learning_rate: float = 0.1, workers: int = 1) -> Roles:
        (tmp_path / "spec.yaml").write_text(SPEC % (updates, learning_rate, workers))
        started.append(Roles(warm, tmp_path, workers))
        return started[-1]

    yield starting
    for one in started:
        one.close()


def summary(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("results/alone/*-1/asgd/summary.json")
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content


@pytest.mark.real
def test_a_run_from_start_to_end(start: Starting, tmp_path: Path) -> None:
    process = start(30, workers=2)
    status, said = process.rest(240)
    assert status == 0, said
    result = summary(tmp_path)
    assert (result["ended"], result["updates"], result["workers_lost"]) == ("completed", 30, 0)
    lines = said.splitlines()
    assert lines[0].startswith("alone: asgd, 2 workers, 30 updates")
    # The evaluator reports by itself, and its first result may arrive before training begins.
    evaluations = [line.partition(":")[0] for line in lines[1:8] if line.startswith("update ")]
    assert evaluations == [f"update {i} of 30" for i in (0, 10, 20, 30)]
    assert [line for line in lines[1:8] if not line.startswith("update ")] == [
        "worker greeted: 1 of 2",
        "worker greeted: 2 of 2",
        "training begins",
    ]
    assert f"parameters_sha256 {result['parameters_sha256']}" in lines[8]
    (curve,) = tmp_path.glob("results/alone/*-1/asgd/curve.csv")
    with curve.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["iteration"]) for row in rows] == [0, 10, 20, 30]
    assert float(rows[-1]["accuracy"]) == result["final_accuracy"]
    # Whole gradients: the parameters of the mlp, four bytes each, and little around them.
    assert int(rows[-1]["payload_bytes"]) == 30 * 109_386 * 4 == result["ingress"]["payload_bytes"]
    assert 0 < result["ingress"]["message_bytes"] - 30 * 109_386 * 4 < 30 * 200


@pytest.mark.real
def test_a_server_whose_run_diverges_says_so_and_ends_with_its_status(
    start: Starting, tmp_path: Path
) -> None:
    process = start(60, learning_rate=1e30)
    status, said = process.rest(240)
    assert status == 3, said
    assert "update 60 of 60: loss nan, ingress" in said
    assert "diverged: the loss is not a finite number from update" in said
    assert summary(tmp_path)["ended"] == "diverged"


@pytest.mark.real
def test_a_server_whose_output_is_not_read_any_more_goes_on(
    start: Starting, tmp_path: Path
) -> None:
    process = start(300)
    for line in process.stdout:
        if line.startswith("training begins"):
            break
    process.stdout.close()
    assert process.wait(240) == 0
    assert (summary(tmp_path)["ended"], summary(tmp_path)["updates"]) == ("completed", 300)


@pytest.mark.real
def test_a_stopped_server_writes_its_results_and_the_others_end(
    start: Starting, tmp_path: Path
) -> None:
    process = start(1_000_000)
    for line in process.stdout:
        if line.startswith("update 20"):
            break
    process.server.send_signal(signal.SIGTERM)
    began = time.monotonic()
    status, said = process.rest(60)
    assert status == 128 + signal.SIGTERM, said
    assert time.monotonic() - began < 30
    result = summary(tmp_path)
    assert (result["ended"], result["reason"]) == ("interrupted", "stopped by SIGTERM")
    assert result["updates"] >= 20


@pytest.fixture
def small_results(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 1 MiB for the results."""
    folder = tmp_path / "results"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.real
def test_a_full_disk_ends_the_run_with_an_error_message(
    start: Starting, tmp_path: Path, small_results: Path
) -> None:
    process = start(1_000_000)
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("update 20"):
            break
    with (small_results / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(bytes(4096))
    status, rest = process.rest(120)
    said += rest
    assert status == 1, said
    assert "failed: results cannot be written to" in said
    assert "No space left on device" in said
    assert "Traceback" not in said
    result = summary(tmp_path)
    assert result["ended"] == "failed"
    assert result["reason"].startswith("results cannot be written to")
    assert not list(tmp_path.glob("results/*/*/*/.reserve"))

"""Memory of real processes by role, within the time that reading may take; and processor time."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from testbed.orchestrator.agent.usage import Usage

HOLD = (
    "import sys; held = bytearray({0}); held[::4096] = b'x' * len(held[::4096]); "
    "print(flush=True); sys.stdin.read()"
)
MIB = 2**20


@pytest.fixture
def holders() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Start processes that hold some memory each; yield them by the device that each represents."""
    sizes = {"server": 60, "evaluator": 1, "worker-0": 30, "worker-1": 30, "worker-2": 30}
    found = {}
    for device, size in sizes.items():
        found[device] = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(size * MIB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    for process in found.values():
        assert process.stdout is not None
        process.stdout.readline()
    yield found
    for process in found.values():
        process.kill()
        process.communicate()


def test_private_memory_by_role(
    holders: dict[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = Usage(os.getpid())
    for device, process in holders.items():
        usage.watch(device, process.pid)
    monkeypatch.setattr("testbed.orchestrator.agent.usage.SHARE", 1e9)
    for _ in range(12):
        found = usage.memory()
    assert set(found) == {"server", "evaluator", "workers", "orchestrator"}
    assert 60 * MIB < found["server"] < 75 * MIB
    assert found["evaluator"] < 15 * MIB
    assert 90 * MIB < found["workers"] < 135 * MIB
    for device in ("worker-1", "worker-2"):
        holders[device].kill()
        holders[device].wait()
    for _ in range(12):
        found = usage.memory()
    assert 30 * MIB < found["workers"] < 45 * MIB


def test_workers_that_were_not_read_yet_count_as_the_mean_of_the_others(
    holders: dict[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.orchestrator.agent.usage.ADVANCE", 1e-9)
    monkeypatch.setattr("testbed.orchestrator.agent.usage.SHARE", 1e-6)
    usage = Usage(os.getpid())
    for number in range(3):
        usage.watch(f"worker-{number}", holders[f"worker-{number}"].pid)
    found = usage.memory()
    assert set(found) == {"workers"}  # reading one of them used up the allowance
    assert 90 * MIB < found["workers"] < 135 * MIB
    assert usage.memory() == found
    usage.watch("evaluator", holders["evaluator"].pid)
    found = usage.memory()  # the first process of a role is read all the same
    assert set(found) == {"workers", "evaluator"}
    began = time.process_time()
    for _ in range(1000):
        assert usage.memory() == found
    assert time.process_time() - began < 1


def test_processor_time_of_helpers() -> None:
    usage = Usage(os.getpid())
    usage.helper(os.getppid(), "capture")
    found = usage.processor()
    # This process is both agent and fork server here.
    assert set(found) == {"fork server", "capture"}
    assert found["fork server"] > 0

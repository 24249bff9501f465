"""Freezing with cgroup v2, checked against what the kernel itself reports."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.nodes import control_group
from testbed.nodes.control_group import ControlGroup

pytestmark = [pytest.mark.real, pytest.mark.quick]
BUSY = "import sys; sys.stdout.write('.'); sys.stdout.flush()\nwhile True: pass"


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    made = control_group.create()
    if made is None:
        pytest.skip("no control group can be written here")
    if made.version != 2:
        made.remove()
        pytest.skip("this host has cgroup v1: `make kernels` boots a kernel that has v2")
    yield made
    made.remove()


@pytest.fixture
def busy(group: ControlGroup) -> Iterator[subprocess.Popen[bytes]]:
    """A process that computes without a pause, in the group of a device."""
    members = group.child("worker-0").members_file
    process = subprocess.Popen(
        ["sh", "-c", 'echo 0 >"$0" && exec "$@"', members, sys.executable, "-ISc", BUSY],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"."
    yield process
    process.kill()
    process.wait()


def processor_time(process: int) -> int:
    """Return the processor time of a process in clock ticks."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def events(group: ControlGroup) -> str:
    return (group.path / "cgroup.events").read_text()


def test_a_frozen_group_computes_nothing(
    group: ControlGroup, busy: subprocess.Popen[bytes]
) -> None:
    device = group.child("worker-0")
    assert str(busy.pid) in device.members_file.read_text().split()
    for _ in range(3):
        before = processor_time(busy.pid)
        until(lambda: processor_time(busy.pid) > before + 5)  # noqa: B023
        device.freeze()
        assert "frozen 1" in events(device)
        stopped = processor_time(busy.pid)
        time.sleep(1)
        # It leaves the processor a moment after the kernel counts it as frozen: in a guest on a busy
        # host a few ticks, of the hundred in which it would have computed.
        assert processor_time(busy.pid) <= stopped + 10
        device.thaw()
        assert "frozen 0" in events(device)
    until(lambda: processor_time(busy.pid) > stopped + 5)


def test_a_frozen_process_is_killed(group: ControlGroup, busy: subprocess.Popen[bytes]) -> None:
    device = group.child("worker-0")
    device.freeze()
    os.kill(busy.pid, signal.SIGKILL)
    device.thaw()
    assert busy.wait(60) == -signal.SIGKILL
    until(lambda: "populated 0" in events(device))


def test_a_group_left_by_an_ended_process_is_found_and_removed() -> None:
    code = "from testbed.nodes import control_group as c; g = c.create(); print(g.child('w').path)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    path = Path(made.stdout.strip()).parent
    if not (path / "cgroup.events").exists():
        ControlGroup(path, 1).remove()
        pytest.skip("this host has cgroup v1")
    (found,) = (one for one in control_group.left_over() if one.path == path)
    found.remove()
    assert not path.exists()

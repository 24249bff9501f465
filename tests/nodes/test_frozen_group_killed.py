"""A frozen process that is killed does nothing more: it dies when its group goes on, or is removed."""

import mmap
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from testbed.nodes import control_group

TIMES = 20


@pytest.mark.real
def test_a_frozen_process_does_not_run_on_before_it_is_killed() -> None:
    group = control_group.create()
    if group is None:
        pytest.skip("no control group can be written here")
    counted = mmap.mmap(-1, 8)

    def count() -> int:
        return int.from_bytes(counted[:8], "little")

    try:
        device = group.child("worker-0")
        for _ in range(TIMES):
            before = count()
            child = os.fork()
            if not child:
                device.members_file.write_text("0")
                while True:
                    counted[:8] = (count() + 1).to_bytes(8, "little")
            while count() == before:
                time.sleep(0.001)
            device.freeze()
            frozen_at = count()
            device.kill()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            assert count() == frozen_at
        device.freeze()
        device.kill()  # of nobody
    finally:
        group.remove()


CODE = """
import os, signal, time
from testbed.nodes import control_group, linux
group = control_group.create()
device = group.child("worker-0")
parent = os.getpid()
if not (child := os.fork()):
    linux.die_with_parent(signal.SIGKILL, parent)
    os.closerange(0, 3)
    device.members_file.write_text("0")
    time.sleep(300)
while not device.members_file.read_text().strip():
    time.sleep(0.001)
device.freeze()
print(child, group.path, flush=True)
os.kill(parent, signal.SIGKILL)
"""


@pytest.mark.real
def test_frozen_processes_of_a_killed_run_end_when_its_group_is_removed() -> None:
    made = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert made.returncode == -signal.SIGKILL
    child, path = made.stdout.split()
    (found,) = (one for one in control_group.left_over() if str(one.path) == path)
    found.remove()
    assert not psutil.pid_exists(int(child)) or psutil.Process(int(child)).status() == "zombie"
    assert not found.path.exists()

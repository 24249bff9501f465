"""The processor time of a device, by its control group and by its processes, on this host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.nodes import control_group
from testbed.orchestrator.agent.usage import Usage

BUSY = (
    "import time\nwhile time.process_time() < 0.3: pass\n"
    "print(time.process_time(), flush=True)\ninput()"
)


@pytest.mark.real
def test_a_group_counts_its_processes_and_those_that_have_ended() -> None:
    group = control_group.create()
    account = control_group.create_account(group)
    if group is None or account is None:
        pytest.skip("no control group can be written here")
    try:
        device = account.child("worker-0")
        own = 0.0
        for _ in range(2):  # the second is the device's next process, after a kill
            join = ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(device.members_file)]
            done = subprocess.run(
                [*join, sys.executable, "-ISc", BUSY],
                input=b"\n",
                stdout=subprocess.PIPE,
                check=True,
            )
            own += float(done.stdout)
            # The process counts what the shell took before it joined, too.
            assert own - 0.05 < control_group.processor_seconds(device.path) < own + 0.3
        assert control_group.processor_seconds(Path(account.path)) > own - 0.05  # all of the run
    finally:
        for one in {group, account}:
            one.remove()


def test_without_a_group_the_time_is_that_of_processes_as_last_read() -> None:
    usage = Usage(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-ISc", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        usage.watch("worker-0", process.pid)
        assert process.stdout is not None
        own = float(process.stdout.readline())
        found = usage.processor_of_devices()["worker-0"]
        assert own - 0.05 < found < own + 0.3  # the kernel's clock ticks every 10 ms
        process.kill()
        process.wait()
        assert usage.processor_of_devices()["worker-0"] == found

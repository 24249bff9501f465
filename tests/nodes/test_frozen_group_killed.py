"""A frozen process that is killed does nothing more: it is dead when its group goes on."""

import mmap
import os
import signal
import time

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

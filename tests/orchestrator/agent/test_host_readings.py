"""Readings of this host, which a busy process changes."""

import time
from pathlib import Path

from testbed.orchestrator.agent.host_readings import HostReadings


def test_a_busy_second_is_in_the_readings() -> None:
    readings = HostReadings()
    assert readings.is_due
    before = readings.read()
    assert not readings.is_due
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass
    after = readings.read()
    total, idle = after.total - before.total, after.idle - before.idle
    assert total - idle >= 0.4  # the kernel counts in ticks
    assert 0 <= after.stolen - before.stolen <= total
    assert after.host_time > before.host_time
    assert set(after.pressure) == {
        path.name for path in Path("/proc/pressure").glob("[cim]*") if path.name != "irq"
    }

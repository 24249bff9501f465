"""Readings of the processor time of a host and of its devices; the agent takes them."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.messages.agent_reports import HostRead
from testbed.nodes.control_group import own_groups
from testbed.nodes.node_interface import Nodes
from testbed.orchestrator.agent.usage import Usage

PERIOD = 1.0
"""Seconds between two readings, each of which takes some 0.3 ms of a processor."""
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE, _IO_WAIT, _STEAL = 3, 4, 7
_COUNTED = 8
"""The fields of a processor's line in /proc/stat that add up to its time; guests' are in others."""


class HostReadings:
    """The processors that this process may use, and what processes wait for."""

    def __init__(self) -> None:
        self._processors = [f"cpu{number}" for number in sorted(os.sched_getaffinity(0))]
        self._groups = [group.path for group in own_groups("cpu")]
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """True if a second has passed since the last reading."""
        return time.monotonic() >= self._next

    def read(self) -> HostRead:
        """Return what has been counted since the host started."""
        now = time.monotonic()
        self._next = now + PERIOD
        idle, stolen, total = self._times()
        return HostRead(now, total, idle, stolen, self._throttled(), _pressure())

    def _times(self) -> tuple[float, float, float]:
        lines = Path("/proc/stat").read_text(encoding="ascii", errors="replace").splitlines()
        idle = stolen = total = 0
        for name, *fields in map(str.split, lines):
            if name in self._processors:
                ticks = [int(one) for one in fields[:_COUNTED]]
                idle += ticks[_IDLE] + ticks[_IO_WAIT]
                stolen += ticks[_STEAL]
                total += sum(ticks)
        return idle / _TICKS, stolen / _TICKS, total / _TICKS

    def _throttled(self) -> float | None:
        """Return how long the groups of this process were held back; None if no group counts it."""
        found = None
        for group in self._groups:
            with contextlib.suppress(OSError, ValueError):
                lines = (group / "cpu.stat").read_text(encoding="ascii").splitlines()
                counts = {name: int(value) for name, value in map(str.split, lines)}
                if "throttled_usec" in counts:
                    found = (found or 0.0) + counts["throttled_usec"] / 1e6
                elif "throttled_time" in counts:
                    found = (found or 0.0) + counts["throttled_time"] / 1e9
        return found


def _pressure() -> dict[str, float]:
    """Return how long some process has waited for each resource; empty if the kernel does not count."""
    found = {}
    for resource in ("cpu", "memory", "io"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            some = Path("/proc/pressure", resource).read_text(encoding="ascii").splitlines()[0]
            found[resource] = int(some.rpartition("total=")[2]) / 1e6
    return found


SHARE = 0.005
"""Seconds that regular readings may take in each second: one of 1,000 groups takes some 20 ms."""


class ProcessorTimes:
    """The processor times of one run's devices.

    A device's control group counts the time of all its processes, of those that have ended, too. Where
    an ordinary user may make no group, the time is that of the processes that are there, in ticks of
    the kernel's clock (10 ms), and of an ended process as it was last read.
    """

    def __init__(self, nodes: Nodes, devices: Sequence[str], usage: Usage) -> None:
        self._nodes = nodes
        self._devices = devices
        self._usage = usage
        self._next = 0.0

    @property
    def is_due(self) -> bool:
        """True if the next regular reading would not take more than its share."""
        return bool(self._devices) and time.monotonic() >= self._next

    def read(self) -> tuple[float, str, dict[str, float]]:
        """Return the time of CLOCK_MONOTONIC, what the times are of, and the seconds by device."""
        began = time.monotonic()
        counted = {name: self._nodes.processor_seconds(name) for name in self._devices}
        found = {name: seconds for name, seconds in counted.items() if seconds is not None}
        source = "control group"
        if not found:
            source, found = "process", self._usage.processor_of_devices()
        now = time.monotonic()
        self._next = now + (now - began) / SHARE
        return began, source, found

"""The processor time of each device; the agent reads it.

A device's control group counts the time of all its processes, of those that have ended, too. Where an
ordinary user may make no group, the time is that of the processes that are there, in ticks of the
kernel's clock (10 ms), and of an ended process as it was last read.
"""

import time
from collections.abc import Sequence

from testbed.nodes.node_interface import Nodes
from testbed.orchestrator.agent.usage import Usage

SHARE = 0.005
"""Seconds that regular readings may take in each second: one of 1,000 groups takes some 20 ms."""


class ProcessorTimes:
    """The processor times of one run's devices."""

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

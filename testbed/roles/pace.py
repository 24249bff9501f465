"""How much slower than planned each device is now: one factor each, in memory that a run's roles share.

Under the wall clock the orchestrator says when a device becomes slow and when it is over, and a device
looks when it draws its next durations. A device that became slow by a push of its own writes it itself:
its very next computation is to be slow.
"""

import mmap
import os
from typing import Protocol, Self

import numpy as np


class Draws(Protocol):
    """A device's times, as ``testbed.training.computation.DeviceTimes`` draws them."""

    def draw(self, now: float) -> tuple[float, float]:
        """Seconds of the next computation, and of the waiting behind it."""


class Paces:
    """The factors of a run's devices, 1 at the beginning.

    Attributes:
        descriptor: of the memory; None if it is this process's own.
    """

    def __init__(self, descriptor: int | None, devices: int) -> None:
        self.descriptor = descriptor
        size = 8 * devices
        memory = bytearray(size) if descriptor is None else mmap.mmap(descriptor, size)
        self._excess = np.frombuffer(memory, np.float64)

    @classmethod
    def make(cls, devices: int) -> Self:
        """Make shared ones."""
        descriptor = os.memfd_create("paces")
        os.ftruncate(descriptor, 8 * devices)
        return cls(descriptor, devices)

    def __getitem__(self, device: int) -> float:
        return 1.0 + float(self._excess[device])

    def __setitem__(self, device: int, factor: float) -> None:
        # New memory is 0, which is to mean a factor of 1.
        self._excess[device] = factor - 1.0


class PacedTimes:
    """A device's times at the pace that it has when they are drawn."""

    def __init__(self, times: Draws, paces: Paces, device: int) -> None:
        self._times, self._paces, self._device = times, paces, device

    def draw(self, now: float) -> tuple[float, float]:
        """As ``DeviceTimes.draw``."""
        factor = self._paces[self._device]
        computing, waiting = self._times.draw(now)
        return factor * computing, factor * waiting

"""The pace of each device: a factor by which it is slower than planned, in memory that roles share.

Under the wall clock the orchestrator sets a device's factor when a slowdown begins and when it ends;
the device reads it when it draws its next durations. A device that is slowed down after a push of its
own sets the factor itself, because its very next computation must be slow.

The factor of a worker that was killed for good, or whose host is lost, is infinite for the rest of the
run: so its server knows for whom not to wait. So is that of a peer that was killed after training,
because it could not learn of the end, for the coordinator of the peers.
"""

import math
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from testbed.nodes.shared_memory import memory_of_fixed_size

if TYPE_CHECKING:  # paces are also made where no settings are read
    from testbed.training.times import DeviceTimes


class Paces:
    """The factors of a run's devices, 1 at the beginning.

    Attributes:
        descriptor: of the shared memory; None if the memory is this process's own.
    """

    def __init__(self, descriptor: int | None, devices: int) -> None:
        self.descriptor = descriptor
        size = 8 * devices
        memory = bytearray(size) if descriptor is None else mmap.mmap(descriptor, size)
        self._excess = np.frombuffer(memory, np.float64)

    @classmethod
    def make(cls, devices: int) -> Self:
        return cls(memory_of_paces(devices), devices)

    def __getitem__(self, device: int) -> float:
        return 1.0 + float(self._excess[device])

    def __setitem__(self, device: int, factor: float) -> None:
        # New memory is 0, which has to mean a factor of 1.
        if not self.has_ended(device):
            self._excess[device] = factor - 1.0

    def end(self, device: int) -> None:
        self[device] = math.inf

    def has_ended(self, device: int) -> bool:
        """Return True if a device's process has ended, and no other one follows it."""
        return math.isinf(self[device])

    def ended(self) -> set[int]:
        """Return the numbers of all devices of which ``has_ended`` is true."""
        return set(np.flatnonzero(np.isinf(self._excess)).tolist())


def memory_of_paces(devices: int) -> int:
    """Make the memory of a run's factors, and return its descriptor."""
    return memory_of_fixed_size("paces", 8 * devices)


class PacedTimes:
    """A device's times, at the pace that it has when they are drawn."""

    def __init__(self, times: "DeviceTimes", paces: Paces, device: int) -> None:
        self._times, self._paces, self._device = times, paces, device

    def draw(self, now: float, gradients: int = 1) -> tuple[float, float]:
        # An infinite factor is for others: this process may run for a moment before it is killed. By 0
        # times infinity it would end of itself, while its last packets may not leave.
        factor = 1.0 if self._paces.has_ended(self._device) else self._paces[self._device]
        computing, waiting = self._times.draw(now, gradients)
        return factor * computing, factor * waiting


@dataclass(frozen=True, slots=True)
class WakeUp:
    """When a device is to wake, in seconds of ``time.monotonic()``.

    Attributes:
        at: when it wakes, after what its computation took on this host.
        planned: when it would by the times that were drawn.
        asked: the seconds that were drawn; 0 if no time was.
    """

    at: float
    planned: float
    asked: float

    @classmethod
    def after(cls, began: float, computing: float, waiting: float) -> "WakeUp":
        """Return the end of a computation that has been made, and of the waiting after it.

        Args:
            computing, waiting: the seconds drawn for both; no ``computing`` is what the host takes.
        """
        now = time.monotonic()
        planned = (began + computing if computing else now) + waiting
        return cls(max(began + computing, now) + waiting, planned, computing + waiting)

    def tell(self, woke: Callable[[float, float], None]) -> None:
        """Count the wake-up, which is now, if a time was drawn for it.

        Args:
            woke: takes the seconds asked for, and by how many it is late.
        """
        if self.asked:
            woke(self.asked, time.monotonic() - self.planned)

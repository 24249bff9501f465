"""The times for which the devices of a run compute and then wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from testbed.durations import DeviceDurations, Durations
from testbed.training.settings import Settings

Purpose: TypeAlias = Literal["compute", "waiting"]
PURPOSES: tuple[Purpose, ...] = ("compute", "waiting")
"""The sections of the experiment file, which name the random streams."""


def durations(settings: Settings, purpose: Purpose) -> list[Durations]:
    """Make the durations of each device class; without classes those of all devices, once.

    Raises:
        SpecError: a trace cannot be used.
    """
    sections = [getattr(one, purpose) for one in settings.kinds_of_devices]
    return Durations.of_classes(sections, settings.seed, purpose, settings.workers)


@dataclass(frozen=True, slots=True)
class Times:
    """The times for which the run's devices compute and then wait; made once per run.

    Attributes:
        devices: the number of devices.
        compute: the durations of a gradient, by class; one for all devices if there are no classes.
        waiting: the durations between a computation and its push, likewise.
        class_of: every device's class; empty if there are none.
    """

    devices: int
    compute: Sequence[Durations]
    waiting: Sequence[Durations]
    class_of: Sequence[int]

    @classmethod
    def of(cls, settings: Settings) -> "Times":
        """Make the times from a run's settings.

        Raises:
            SpecError: a trace cannot be used.
        """

        both = durations(settings, "compute"), durations(settings, "waiting")
        return cls(settings.workers, *both, settings.class_of)

    def busy(self, local_steps: int = 1) -> "Busy":
        """Make the object that a clock asks for the seconds that a device computes and then waits."""
        own = [self.of_device(device, local_steps) for device in range(self.devices)]
        return Busy(own)

    def of_device(self, device: int, local_steps: int = 1) -> "DeviceTimes":
        """Return one device's times, from the beginning of its streams."""
        of = self.class_of[device] if self.class_of else 0
        compute, waiting = self.compute[of].of_device(device), self.waiting[of].of_device(device)
        return DeviceTimes(compute, waiting, local_steps)


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """One device's times; each draw is the next of its stream.

    Attributes:
        local_steps: gradients in one computation.
    """

    compute: DeviceDurations
    waiting: DeviceDurations
    local_steps: int

    def draw(self, now: float) -> tuple[float, float]:
        """Draw the seconds that the next computation takes, and that the device waits after it.

        Args:
            now: when the computation begins, in seconds since training began.
        """
        computing = sum(self.compute.sample(now) for _ in range(self.local_steps))
        return computing, self.waiting.sample(now)


class Busy:
    """The times of all devices, computing and waiting added up.

    Attributes:
        asked: how often each device's time was asked for.
    """

    def __init__(self, own: Sequence[DeviceTimes]) -> None:
        self.asked = [0] * len(own)
        self._own = own

    def __call__(self, device: int, now: float) -> float:
        """Return the seconds that a device computes and then waits, from a moment on."""
        self.asked[device] += 1
        return sum(self._own[device].draw(now))

    def go_on(self, asked: Sequence[int]) -> None:
        """Repeat the draws of an earlier object, ``asked`` times for each device."""
        for device, times in enumerate(asked):
            for _ in range(times):
                self(device, 0.0)  # the number of draws does not depend on the time

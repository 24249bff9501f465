"""The times for which the devices of a run compute and then wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from testbed.checkpoints.stateful import State, Stateful
from testbed.durations import DeviceDurations, Durations
from testbed.experiment.sections.timing import DurationSpec
from testbed.training.settings import Settings

Purpose: TypeAlias = Literal["compute", "waiting"]
PURPOSES: tuple[Purpose, ...] = ("compute", "waiting")
"""The sections of the experiment file, which name the random streams."""


def sections_of_kinds(settings: Settings, purpose: Purpose) -> list[DurationSpec]:
    """Return the section of each device class; without classes that of all devices, once."""
    place = PURPOSES.index(purpose)
    return [both[place] for both in settings.times_of_kinds]


def durations(settings: Settings, purpose: Purpose) -> list[Durations]:
    """Make the durations of each device class; without classes those of all devices, once.

    Raises:
        SpecError: a trace cannot be used.
    """
    plain = [one.model_dump() for one in sections_of_kinds(settings, purpose)]
    return Durations.of_classes(plain, settings.seed, purpose, settings.workers)


@dataclass(frozen=True, slots=True)
class Times:
    """The times for which the run's devices compute and then wait; made once per run.

    Attributes:
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

    def busy(self) -> "Busy":
        """Make the object that a clock asks for the seconds that a device computes, and then waits."""
        return Busy([self.of_device(device) for device in range(self.devices)])

    def of_device(self, device: int) -> "DeviceTimes":
        """Return one device's times, from the beginning of its streams."""
        of = self.class_of[device] if self.class_of else 0
        compute, waiting = self.compute[of].of_device(device), self.waiting[of].of_device(device)
        return DeviceTimes(compute, waiting)


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """One device's times; each draw is the next of its stream."""

    compute: DeviceDurations
    waiting: DeviceDurations

    def draw(self, now: float, gradients: int = 1) -> tuple[float, float]:
        """Draw the seconds that the next computation takes, and that the device waits after it.

        Args:
            now: when the computation begins, in seconds since training began.
        """
        computing = sum(self.compute.sample(now) for _ in range(gradients))
        return computing, self.waiting.sample(now)


class Busy(Stateful):
    """The times of all devices, as a clock asks for them."""

    not_saved = frozenset({"_own"})

    def __init__(self, own: Sequence[DeviceTimes]) -> None:
        # By device: the computations whose time was asked for, and the gradients in them.
        self._asked = [(0, 0)] * len(own)
        self._own = own

    def __call__(self, device: int, now: float, gradients: int = 1) -> tuple[float, float]:
        """Return the seconds that a device computes, and those that it then waits, from a moment on."""
        computations, computed = self._asked[device]
        self._asked[device] = computations + 1, computed + gradients
        return self._own[device].draw(now, gradients)

    def restore(self, state: State) -> None:
        """Repeat the draws of an earlier object."""
        super().restore(state)
        # Computing and waiting have streams of their own, and the draws do not depend on the time.
        for device, (computations, gradients) in enumerate(self._asked):
            for _ in range(gradients):
                self._own[device].compute.sample(0.0)
            for _ in range(computations):
                self._own[device].waiting.sample(0.0)

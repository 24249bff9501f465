"""Device classes by name: how the devices of a run differ, for labels and tables.

A class is given by the experiment file: one of ``devices.classes``, by its name, or the classes of
computing and waiting times, by their factors: ``compute-x10``, or ``compute-x10+waiting-x2`` where both
have classes. Several are joined to one name: ``phone+compute-x10``. The names depend on the file alone
and are the same in all its runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.durations.shares import classes

if TYPE_CHECKING:  # records are read where no run is planned
    from testbed.training.settings import Settings

ALL = "all"
"""The class of every device in a run without classes."""


@dataclass(frozen=True, slots=True)
class DeviceClasses:
    """The classes of a run, and the class of each device.

    Attributes:
        names: the classes' names, sorted.
        of_device: each device's index in ``names``, shape (devices,).
    """

    names: tuple[str, ...]
    of_device: npt.NDArray[np.int64]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of devices in each class, shape (classes,)."""
        return np.bincount(self.of_device, minlength=len(self.names))

    def count(self, devices: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """Count how often each class occurs among devices given by their numbers."""
        return np.bincount(self.of_device[devices], minlength=len(self.names))

    def add_up(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the sum over each class of values given for all devices."""
        return np.bincount(self.of_device, values, len(self.names)).astype(np.float64)


def device_classes(
    sections: Mapping[str, Mapping[str, Any]],
    seed: int,
    devices: int,
    named: Sequence[str] = (),
) -> DeviceClasses:
    """Find the class of each device of a run.

    Args:
        sections: the resolved sections ``compute`` and ``waiting``, of which ``classes`` is read.
        named: the name of each device's class in ``devices.classes``; empty if there are none.
    """
    parts: list[Sequence[str]] = [named] if named else []
    for purpose, section in sections.items():
        groups = section.get("classes") or ()
        if groups:
            names = [f"{purpose}-x{group['factor']:g}" for group in groups]
            of = classes([group["share"] for group in groups], seed, devices)
            parts.append([names[i] for i in of])
    if not parts:
        return DeviceClasses((ALL,), np.zeros(devices, np.int64))
    found = ["+".join(names) for names in zip(*parts, strict=True)]
    distinct = sorted(set(found))
    places = {name: i for i, name in enumerate(distinct)}
    return DeviceClasses(tuple(distinct), np.array([places[name] for name in found], np.int64))


def classes_of_run(settings: "Settings") -> DeviceClasses:
    """Find the class of each device of a planned run."""
    spec = settings.spec
    sections = {"compute": spec.compute.model_dump(), "waiting": spec.waiting.model_dump()}
    named = [spec.devices.classes[i].name for i in settings.class_of]
    return device_classes(sections, settings.seed, settings.workers, named)

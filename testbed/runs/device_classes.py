"""Device classes by name: what the devices of a run differ in, for labels and tables.

A class is what the experiment file makes of a device: one of ``devices.classes``, by its name, or the
classes of computing and waiting times, by their factors: ``compute-x10``, or ``compute-x10+waiting-x2``
where both have classes. What stands together is one name: ``phone+compute-x10``. There are no more of
them than the file has classes, and the names are the same in every run of the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.durations.shares import classes

ALL = "all"
"""The class of every device where there are none."""


@dataclass(frozen=True, slots=True)
class DeviceClasses:
    """Who is in which class.

    Attributes:
        names: of the classes, sorted.
        of_device: each device's place in ``names``, shape (devices,).
    """

    names: tuple[str, ...]
    of_device: npt.NDArray[np.int64]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Devices in each class."""
        return np.bincount(self.of_device, minlength=len(self.names))

    def count(self, devices: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """How often each class occurs among devices given by their numbers."""
        return np.bincount(self.of_device[devices], minlength=len(self.names))

    def add_up(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The sum over each class of values given for all devices."""
        return np.bincount(self.of_device, values, len(self.names)).astype(np.float64)


def device_classes(
    sections: Mapping[str, Mapping[str, Any]],
    seed: int,
    devices: int,
    named: Sequence[str] = (),
) -> DeviceClasses:
    """The classes of a run.

    Args:
        sections: the resolved sections ``compute`` and ``waiting``; their ``classes`` are looked at.
        named: the name of each device's class in ``devices.classes``; empty where there are none.
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

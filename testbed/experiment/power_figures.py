"""The power of devices: from their own section, their hardware, and their link's profile."""

from collections.abc import Iterator
from typing import Any

from testbed.device_power import DevicePower
from testbed.experiment.contents import Contents
from testbed.experiment.profiles import HARDWARE, LINKS
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.devices import DevicesSpec
from testbed.experiment.sections.power import PowerSpec
from testbed.experiment.sections.section import Conflict


def power_of(contents: Contents, one: DeviceClassSpec | None) -> DevicePower | None:
    """Return the power of a class's devices, of all devices if it is None; None if it is not known.

    A class comes before ``devices``, and in each of them ``power`` before ``hardware``. A byte costs
    nothing unless something says what it costs.
    """
    found = _figures(contents, one)
    if found.idle is None or found.busy is None:
        return None
    return DevicePower(found.idle, found.busy, found.sent or 0.0, found.received or 0.0)


def of_power(contents: Contents) -> Iterator[Conflict]:
    """Yield a conflict for each section of power that gives its devices no energy, or a wrong one."""
    devices = contents.devices
    sections: list[tuple[tuple[Any, ...], DeviceClassSpec | None, PowerSpec | None]]
    sections = [(("devices", "power"), None, devices.power)]
    sections += [
        (("devices", "classes", i, "power"), one, one.power)
        for i, one in enumerate(devices.classes)
    ]
    for path, one, own in sections:
        if own is None:
            continue
        found = _figures(contents, one)
        missing = [key for key in ("idle", "busy") if getattr(found, key) is None]
        # A class may add what the general section lacks.
        if missing and (one is not None or not devices.classes):
            yield (
                path,
                f"there is no energy without {' and '.join(missing)}: give that here, too, or name a "
                "`hardware` that has figures of power (docs/links.md)",
            )
        elif found.idle is not None and found.busy is not None and found.busy < found.idle:
            yield (
                path,
                f"busy, {found.busy:g} W, is less than idle, {found.idle:g} W: it is the power of the "
                "whole device while a processor computes",
            )


def _figures(contents: Contents, one: DeviceClassSpec | None) -> PowerSpec:
    """Return the figures of a class's devices, as far as they are known."""
    devices, found = contents.devices, PowerSpec()
    sections: list[tuple[DevicesSpec | DeviceClassSpec, str | None]]
    sections = [(devices, contents.network.profile)]
    sections += [] if one is None else [(one, one.profile)]
    for section, profile in sections:
        if section.hardware is not None and (drawn := HARDWARE[section.hardware].draws) is not None:
            found = found.model_copy(update={"idle": drawn[0], "busy": drawn[1]})
        elif section.hardware is not None:
            found = found.model_copy(update={"idle": None, "busy": None})
        if profile is not None:
            sent, received = LINKS[profile].costs
            found = found.model_copy(update={"sent": sent, "received": received})
        own = section.power or PowerSpec()
        found = found.model_copy(update=own.model_dump())
    return found

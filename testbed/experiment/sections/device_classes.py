"""A class of devices in the experiment file: values for its devices that replace the general ones.

The devices are assigned to the classes by a shuffle that depends on the seed. The factors of
``compute.classes`` and ``waiting.classes`` use the same shuffle: equal shares reach the same devices.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
)

from testbed.durations.shares import apportion
from testbed.experiment.alternatives import ShortForm
from testbed.experiment.sections.directions import (
    DirectedDuration,
    DirectedPercentage,
    DirectedSize,
)
from testbed.experiment.sections.faults import ClassFaultSpec
from testbed.experiment.sections.power import PowerSpec
from testbed.experiment.sections.presence import PresenceSpec
from testbed.experiment.sections.profile_keys import HardwareName, LinkName, ProfiledSection
from testbed.experiment.sections.rate_traces import RateTraceSpec
from testbed.experiment.sections.section import Conflict, as_tuple, check_name, wrong_sizes
from testbed.experiment.sections.timing import ComputeSpec, DrawnSpec, WaitingSpec
from testbed.units import Limit, Share, Size

_PATH = ("devices", "classes")


class DeviceClassSpec(ProfiledSection):
    """A class of devices, with its own times, link, limits, faults and images."""

    name: Annotated[str, AfterValidator(partial(check_name, of="a class"))] = Field(
        description="Name of the class, in reports: letters, digits, '-' and '_'.",
        examples=["slow"],
    )
    share: Share | None = Field(
        default=None,
        description="Share of the devices in this class; the shares of all classes add up to 100%.",
        examples=["30%"],
    )
    number: int | None = Field(
        default=None,
        ge=1,
        description="Number of devices in this class, if no class has a share; the numbers add up to "
        "devices.workers.",
        examples=[5],
    )
    compute: ComputeSpec | None = Field(
        default=None,
        description="Replaces compute of the top of the file; default (null): that one.",
        examples=[{"distribution": "constant", "mean": "100ms"}],
    )
    waiting: WaitingSpec | None = Field(
        default=None,
        description="Replaces waiting of the top of the file; default (null): that one.",
        examples=[{"distribution": "uniform", "mean": "10s"}],
    )
    hardware: HardwareName | None = Field(
        default=None,
        description="Replaces devices.hardware; default (null): that one.",
        examples=["raspberry-pi-4"],
    )
    power: PowerSpec | None = Field(
        default=None,
        description="Replaces devices.power, key by key; default (null): that one.",
        examples=[{"idle": "2.7W", "busy": "3.6W"}],
    )
    profile: LinkName | None = Field(
        default=None,
        description="A named link (docs/links.md), which replaces the rates, the delay, the jitter and "
        "the loss of network; other keys of the class replace what it gives. Default: none.",
        examples=["4g"],
    )
    uplink: Limit | None = Field(
        default=None, description="Replaces network.uplink; default (null): that one."
    )
    downlink: Limit | None = Field(
        default=None, description="Replaces network.downlink; default (null): that one."
    )
    delay: DirectedDuration | None = Field(
        default=None,
        description="Replaces network.delay, or that of one direction; default (null): that one.",
    )
    jitter: DirectedDuration | None = Field(
        default=None,
        description="Replaces network.jitter, or that of one direction; default (null): that one.",
    )
    loss: DirectedPercentage | None = Field(
        default=None,
        description="Replaces network.loss, or that of one direction; default (null): that one.",
    )
    queue: DirectedSize | None = Field(
        default=None,
        description="Replaces network.queue, or that of one direction; default (null): that one.",
    )
    trace: Annotated[RateTraceSpec, ShortForm((), open_ended=True, key="file")] | None = Field(
        default=None,
        description="How the rates change over time, in place of uplink and downlink here and in "
        "network; default (null): as in network.",
        examples=["lte.csv"],
    )
    cpus: float | None = Field(
        default=None,
        ge=0.01,
        description="docker: replaces devices.cpus; default (null): that one.",
        examples=[0.5],
    )
    memory: Size | None = Field(
        default=None,
        ge=6 * 2**20,
        description="docker: replaces devices.memory; default (null): that one.",
        examples=["256MiB"],
    )
    faults: Annotated[tuple[ClassFaultSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Faults of each of these devices by itself: as faults at the top of the file, but "
        "without who; default: none.",
        examples=[[{"when": {"probability": 0.0004}, "how": "freeze"}]],
    )
    arrives: PresenceSpec | None = Field(
        default=None,
        description="Replaces devices.arrives; default (null): that one.",
        examples=["30s"],
    )
    leaves: PresenceSpec | None = Field(
        default=None,
        description="Replaces devices.leaves; default (null): that one.",
        examples=[{"distribution": "exponential", "mean": "5min"}],
    )
    returns: PresenceSpec | None = Field(
        default=None,
        description="Replaces devices.returns; default (null): that one.",
        examples=["1min"],
    )
    weight: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="`partition: sizes`: the number of a device's images is in proportion to it.",
        examples=[3],
    )

    def of(self, key: str, general: Any) -> Any:
        """Return the class's own value of a key, or ``general`` if it has none."""
        own = getattr(self, key)
        return general if own is None else own


def shares_of(classes: Sequence[DeviceClassSpec], workers: int) -> list[float]:
    """Return the classes' shares of the devices, as fractions that add up to 1."""
    return [
        one.number / workers if one.share is None and one.number else one.share or 0.0
        for one in classes
    ]


def mean_over_devices(parts: Sequence[DrawnSpec], sizes: Sequence[int]) -> float:
    """Return the mean of durations over all devices, before any change, in seconds.

    Each class has its section, and its number of devices.
    """
    devices, first, total = sum(sizes), 0, 0.0
    for part, size in zip(parts, sizes, strict=True):
        # The section's own classes use the same shuffle, so both kinds of class are consecutive in it.
        groups = part.classes
        counts = apportion([one.share for one in groups], devices) if groups else [devices]
        factors = np.repeat([one.factor for one in groups] or [1.0], counts)
        total += part.mean * float(factors[first : first + size].sum())
        first += size
    return total / devices


def class_conflicts(
    classes: Sequence[DeviceClassSpec], workers: int, *, containers: bool
) -> list[Conflict]:
    """Return the conflicts of the classes with each other and with the runtime.

    Args:
        containers: True if devices are containers; only containers have limits.
    """
    found = _sizes(classes, workers)
    first: dict[str, int] = {}
    for i, one in enumerate(classes):
        if one.name in first:
            text = f"'{one.name}' is already the name of devices.classes.{first[one.name]}"
            found.append(((*_PATH, i, "name"), text))
        first.setdefault(one.name, i)
        for section in ("compute", "waiting"):
            if getattr(one, section) is not None and getattr(one, section).classes:
                text = "a class cannot have classes: make them classes of devices, or take them out"
                found.append(((*_PATH, i, section, "classes"), text))
        if not containers:
            found += [
                ((*_PATH, i, key), "only containers have it: take it out, or use `runtime: docker`")
                for key in ("cpus", "memory")
                if getattr(one, key) is not None
            ]
    return found


def _sizes(classes: Sequence[DeviceClassSpec], workers: int) -> list[Conflict]:
    found: list[Conflict] = []
    for i, one in enumerate(classes):
        if (one.share is None) == (one.number is None):
            what = "has neither" if one.share is None else "has both"
            text = f"{what} a share {'nor' if one.share is None else 'and'} a number: give it one"
            found.append(((*_PATH, i), text))
    if found:
        return found
    numbers = [one.number for one in classes if one.number is not None]
    if numbers and len(numbers) < len(classes):
        text = "some have a share and some a number: give all a share, or all a number"
        return [(_PATH, text)]
    wrong = wrong_sizes([one.share for one in classes], [one.number for one in classes], workers)
    return [(_PATH, wrong)] if wrong else []

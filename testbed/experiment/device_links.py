"""The links that the sections of the experiment file say: their shapes, and the rates over time."""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from testbed.experiment.rate_trace_files import Direction
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.network import NetworkSpec
from testbed.experiment.sections.shared_links import SharedLinkSpec
from testbed.network.links import Shape
from testbed.rate_trace import RateTrace
from testbed.units import UNLIMITED

LinkKeys: TypeAlias = NetworkSpec | DeviceClassSpec | SharedLinkSpec
"""A section with the keys of a link."""


@dataclass(frozen=True, slots=True)
class AskedLink:
    """A device's own link.

    Attributes:
        up, down: its directions; one that follows a trace has no rate here.
        up_trace, down_trace: the rates over time; None where they do not change.
    """

    up: Shape
    down: Shape
    up_trace: RateTrace | None = None
    down_trace: RateTrace | None = None

    def first_shapes(self, number: int = 0, devices: int = 1) -> tuple[Shape, Shape]:
        """Return uplink and downlink of one of so many devices, with the first rates above 0."""
        up, down = (
            shape if trace is None else replace(shape, rate=trace.of_device(number, devices).first)
            for shape, trace in ((self.up, self.up_trace), (self.down, self.down_trace))
        )
        return up, down


def link_of(*sections: LinkKeys) -> AskedLink:
    """Return the link of a class's devices; of all devices without classes.

    Args:
        sections: of the class, if there is one, and of the network. In each direction the first that
            has a rate or a trace decides; a trace replaces the rate that a profile gives.
    """
    up, down = link_shapes(*sections)
    up_trace, down_trace = _trace(sections, "uplink"), _trace(sections, "downlink")
    return AskedLink(
        up if up_trace is None else replace(up, rate=None),
        down if down_trace is None else replace(down, rate=None),
        up_trace,
        down_trace,
    )


def _trace(sections: tuple[LinkKeys, ...], direction: Direction) -> RateTrace | None:
    for one in sections:
        if isinstance(one, NetworkSpec | DeviceClassSpec) and one.trace is not None:
            trace = one.trace.trace(direction)
            if trace is not None:
                return trace
        if getattr(one, direction) is not None:
            return None
    return None


def link_shapes(*sections: LinkKeys) -> tuple[Shape, Shape]:
    """Return the shapes of a link's uplink and downlink.

    Args:
        sections: the first that has a value for a direction decides.
    """
    return _shape(sections, "up"), _shape(sections, "down")


def _shape(sections: tuple[LinkKeys, ...], way: str) -> Shape:
    rates = [section.uplink if way == "up" else section.downlink for section in sections]
    rate = next((one for one in rates if one is not None), UNLIMITED)

    def first(key: str, otherwise: Any) -> Any:
        found = (getattr(getattr(section, key), way, None) for section in sections)
        return next((value for value in found if value is not None), otherwise)

    return Shape(
        rate=rate if isinstance(rate, int) else None,
        delay=first("delay", 0.0),
        loss=first("loss", 0.0),
        jitter=first("jitter", 0.0),
        queue=first("queue", None),
    )

"""The shapes of links in ``testbed plan``: what each direction has, and what a profile gave."""

from typing import Any

from testbed.device_power import DevicePower
from testbed.experiment.device_links import AskedLink, LinkKeys, link_of
from testbed.experiment.power_figures import power_of
from testbed.experiment.profiles import HARDWARE, LINKS
from testbed.experiment.spec import Spec
from testbed.network.links import Link, Shape
from testbed.number_text import as_energy
from testbed.rate_trace import RateTrace
from testbed.units import (
    format_duration,
    format_percentage,
    format_power,
    format_rate,
    format_size,
)

NO_VALUE = "-"
"""The text for what is not shaped."""
TRACED = "trace"
"""The text for a rate that follows a trace."""


def describe(spec: Spec) -> list[str]:
    """Return a line for each profile that the experiment names, with what it gives and where."""
    lines = []
    for where, section in _sections(spec):
        if section.profile is not None:
            link = link_of(section)
            text = f"up {shape_text(link.up)}; down {shape_text(link.down)}"
            title = LINKS[section.profile].title
            lines.append(f"  {where}: profile {section.profile}, {title}: {text}")
    devices = spec.devices
    named = [("devices", devices.hardware)]
    named += [(f"class {one.name}", one.hardware) for one in devices.classes if not one.compute]
    for where, name in named:
        if name is not None:
            one = HARDWARE[name]
            text = f"computing takes {one.factor:g} times as long"
            lines.append(f"  {where}: hardware {name}, {one.title}: {text}")
    return lines + _powers(spec)


def _powers(spec: Spec) -> list[str]:
    """Return a line for the power of each class, where anything says what devices draw."""
    devices = spec.devices
    named = bool(devices.power or devices.hardware)
    if not named and not any(one.power or one.hardware for one in devices.classes):
        return []
    return [
        f"  {'devices' if one is None else f'class {one.name}'}: {_power_text(power_of(spec, one))}"
        for one in devices.classes or (None,)
    ]


def _power_text(power: DevicePower | None) -> str:
    if power is None:
        return "power not known, so no energy"
    text = f"power {format_power(power.idle)} idle, {format_power(power.busy)} while it computes"
    costs = [("sent", power.sent), ("received", power.received)]
    return text + "".join(f", {as_energy(one)} a byte {what}" for what, one in costs if one)


def _sections(spec: Spec) -> list[tuple[str, LinkKeys]]:
    network = spec.network
    found: list[tuple[str, LinkKeys]] = [("network", network)]
    found += [(f"class {one.name}", one) for one in spec.devices.classes]
    found += [("server", network.server)] if network.server is not None else []
    return found + [(f"cluster {one.name}", one) for one in network.clusters]


def record(link: Link) -> dict[str, object]:
    """Return a device's link as JSON values, for scripts; rates in bit/s."""
    return {
        "name": link.node,
        "address": link.address,
        "router": link.router,
        "router_address": link.router_address,
        "uplink": link.uplink.rate,
        "downlink": link.downlink.rate,
    }


def shape_text(shape: Shape) -> str:
    """Return what a direction of a link has, in words; ``not shaped`` if it has nothing."""
    parts = [] if shape.rate is None else [format_rate(shape.rate)]
    if shape.delay:
        jitter = f" ± {format_duration(shape.jitter)}" if shape.jitter else ""
        parts.append(f"delay {format_duration(shape.delay)}{jitter}")
    if shape.loss:
        parts.append(f"loss {format_percentage(shape.loss)}")
    if shape.queue is not None:
        parts.append(f"queue {format_size(shape.queue)}")
    return ", ".join(parts) or "not shaped"


def cells(link: AskedLink) -> dict[str, str]:
    """Return the columns of a table of classes for a link: up / down where the directions differ."""
    up, down = link.up, link.down
    return {
        "uplink": _rate(up, link.up_trace),
        "downlink": _rate(down, link.down_trace),
        "delay": _both(up.delay, down.delay, format_duration),
        "jitter": _both(up.jitter, down.jitter, format_duration),
        "loss": _both(up.loss, down.loss, format_percentage),
        "queue": _both(up.queue, down.queue, format_size, alike=True),
    }


def _rate(shape: Shape, trace: RateTrace | None) -> str:
    if trace is not None:
        return TRACED
    return NO_VALUE if shape.rate is None else format_rate(shape.rate)


def _both(up: Any, down: Any, write: Any, *, alike: bool = False) -> str:
    """Return a value as the experiment file writes it plainly, or else that of both directions."""
    if not up and not down:
        return NO_VALUE
    if (up == down) if alike else not down:
        return str(write(up))
    return " / ".join(write(value) if value else NO_VALUE for value in (up, down))

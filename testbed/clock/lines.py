"""The lines of a device, and the delays of its routes, from its run's settings."""

from collections.abc import Sequence
from typing import TypeAlias

from testbed.clock.conversations import Way
from testbed.clock.traced_line import TracedLine
from testbed.clock.transfers import Jitter, Line, jitter
from testbed.rate_trace import RateTrace
from testbed.training.settings import Settings

OwnLink: TypeAlias = tuple[int, bool]
"""One direction of a device's own link: the device's number, and True for its uplink."""


def lines(settings: Settings, number: int, conversation: int) -> tuple[Line, Line]:
    """Make a device's uplink and downlink, both idle, with the delays of its whole route.

    Args:
        conversation: its only one, by whose number jitter is drawn; among peers the device's. Where
            messages share links they do not pass these lines, and it may be any one.
    """
    device = settings.device(number)
    upwards, downwards = (
        route_delay(settings, (conversation, up), [(number, up)]) for up in (True, False)
    )
    up, down = settings.rate_traces(number)
    return _line(device.uplink, up, *upwards), _line(device.downlink, down, *downwards)


def _line(rate: int | None, trace: RateTrace | None, delay: float, jitter: Jitter | None) -> Line:
    return Line(rate, delay, jitter) if trace is None else TracedLine(trace, delay, jitter)


def route_delay(
    settings: Settings, way: Way, own: Sequence[OwnLink]
) -> tuple[float, Jitter | None]:
    """Return the delay in seconds and the jitter of the whole of a way.

    Args:
        own: the directions of devices' links that it passes; that of a machine with a server is in the
            route.
    """
    delay = 0.0
    widths: list[float] = []
    for number, up in own:
        if number < settings.network.co_located:
            continue
        device = settings.device(number)
        delay += device.delay if up else device.down_delay
        widths.append(device.jitter if up else device.down_jitter)
    conversation, up = way
    route = settings.route(conversation)
    if route is not None:
        delay += route.up_delay if up else route.down_delay
        widths += route.up_jitters if up else route.down_jitters
    return delay, jitter(settings.seed, conversation, "up" if up else "down", widths)

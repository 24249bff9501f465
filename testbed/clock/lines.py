"""The lines of a device, and the delays of its routes, from its run's settings."""

from collections.abc import Sequence

from testbed.clock.background import Background, OwnLink, usual_rate
from testbed.clock.conversations import Way
from testbed.clock.rate_courses import course
from testbed.clock.traced_line import TracedLine
from testbed.clock.transfers import Jitter, Line, jitter
from testbed.rate_trace import RateTrace
from testbed.training.settings import Settings


def lines(
    settings: Settings, number: int, conversation: int, background: Background | None = None
) -> tuple[Line, Line]:
    """Make a device's uplink and downlink, both idle, with the delays of its whole route.

    Args:
        conversation: its only one, by whose number jitter is drawn; among peers the device's. Where
            messages share links they do not pass these lines, and it may be any one.
    """
    up, down = (
        _line(settings, (number, up), (conversation, up), background) for up in (True, False)
    )
    return up, down


def _line(settings: Settings, own: OwnLink, way: Way, background: Background | None) -> Line:
    usual, takings = usual_rate(settings, own), () if background is None else background.on(own)
    delays = route_delay(settings, way, [own])
    changing = course(usual, takings)
    if changing is not None:
        return TracedLine(changing, *delays)
    assert not isinstance(usual, RateTrace)
    return Line(usual, *delays)


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

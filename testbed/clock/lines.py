"""The lines of a device, and the delays of its routes, from its run's settings."""

from testbed.clock.jitter import Jitter, jitter
from testbed.clock.traced_line import TracedLine
from testbed.clock.transfers import Line
from testbed.rate_trace import RateTrace
from testbed.training.settings import Settings


def lines(settings: Settings, number: int) -> tuple[Line, Line]:
    """Make a device's uplink and downlink, both idle, with the delays of its whole route."""
    device, first = settings.device(number), number * settings.servers
    upwards, downwards = route_delays(settings, first)
    up, down = settings.rate_traces(number)
    return _line(device.uplink, up, *upwards), _line(device.downlink, down, *downwards)


def _line(rate: int | None, trace: RateTrace | None, delay: float, jitter: Jitter | None) -> Line:
    return Line(rate, delay, jitter) if trace is None else TracedLine(trace, delay, jitter)


def route_delays(
    settings: Settings, conversation: int
) -> tuple[tuple[float, Jitter | None], tuple[float, Jitter | None]]:
    """Return the delay in seconds and the jitter of a conversation's whole route: up, then down."""
    worker = conversation // settings.servers
    device, route = settings.device(worker), settings.route(conversation)
    up, down = [device.jitter], [device.down_jitter]
    up_delay, down_delay = device.delay, device.down_delay
    if worker < settings.network.co_located:  # its machine's link is in the route
        up, down, up_delay, down_delay = [], [], 0.0, 0.0
    if route is not None:
        up, down = [*up, *route.up_jitters], [*down, *route.down_jitters]
        up_delay, down_delay = up_delay + route.up_delay, down_delay + route.down_delay
    return (
        (up_delay, jitter(settings.seed, conversation, "up", up)),
        (down_delay, jitter(settings.seed, conversation, "down", down)),
    )

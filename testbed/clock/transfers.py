"""The time that messages take under the virtual clock.

A message takes its bytes on the wire, every header included, divided by the link's rate: that is what
tc would let pass. A link carries one message after the other; the delay is added and delays nothing
else. Retransmissions and acknowledgements are left out.

While a link is down, time stands still on it: what is under way arrives that much later, and what is
sent leaves when the link is up again.
"""

from collections.abc import Callable

from testbed.network.segments import wire_bytes
from testbed.training.settings import Settings


class Line:
    """One direction of one link."""

    def __init__(self, rate: int | None, delay: float = 0.0) -> None:
        """Make an idle line.

        Args:
            rate: in bit/s; None if a message takes no time.
            delay: in seconds.
        """
        self._rate = self._usual = rate
        self._delay = delay
        self.free = 0.0
        """The time when everything sent so far has left, in seconds."""
        self.down = 0.0
        """The time when the link is up again, if it is down; in seconds."""
        self._moved = 0.0
        """The last arrival of a message that a change of the line has moved, in seconds."""

    @property
    def instant(self) -> bool:
        """True if a message's size does not matter for when it arrives."""
        return self._rate is None

    def earliest(self, now: float, size: int) -> float:
        """Return the earliest time at which a message of at least ``size`` bytes, sent now, arrives."""
        if self._rate is None:
            return max(now, self.down) + self._delay
        start = max(now, self.free, self.down)
        return start + 8 * wire_bytes(size) / self._rate + self._delay

    def send(self, now: float, size: int) -> float:
        """Send a message of ``size`` bytes; return the time at which it arrives."""
        arrival = self.earliest(now, size)
        if self._rate is not None:
            self.free = arrival - self._delay
        elif self.down > now:
            self.free = self.down
        # Rounding must not let it overtake an earlier message that was moved.
        return max(arrival, self._moved)

    def hold(self, now: float, until: float) -> Callable[[float], float]:
        """Take the link down; return a function from old to new arrival times of what is under way."""
        by = max(0.0, until - max(now, self.down))
        if self.free > now:
            self.free += by
        self.down = max(until, self.down)
        return self._noting(lambda arrival: arrival + by)

    def change(self, now: float, rate: int | None) -> Callable[[float], float]:
        """Change the rate; None restores the usual one.

        What has not left leaves at the new rate. (What a line without a rate holds because it is down
        leaves when it is up, whatever its size.)

        Returns:
            A function from old to new arrival times of what is under way.
        """
        rate = rate or self._usual
        if rate == self._rate:
            return lambda arrival: arrival
        start, ratio = max(now, self.down), 1.0
        if self._rate is not None:
            ratio = 0.0 if rate is None else self._rate / rate
        self._rate = rate

        def later(leaving: float) -> float:
            return start + (leaving - start) * ratio if leaving > start else leaving

        self.free = later(self.free)
        return self._noting(lambda arrival: later(arrival - self._delay) + self._delay)

    def _noting(self, later: Callable[[float], float]) -> Callable[[float], float]:
        """Wrap ``later`` so that the latest arrival that it gives is noted."""
        self._moved = 0.0

        def moved(arrival: float) -> float:
            there = later(arrival)
            self._moved = max(self._moved, there)
            return there

        return moved

    def forget(self, now: float) -> None:
        """Drop what is being sent: it is lost."""
        self.free = min(self.free, now)
        self._moved = 0.0


def lines(settings: Settings, number: int) -> tuple[Line, Line]:
    """Make a device's uplink and downlink, both idle, with the delays of its whole route."""
    device, route = settings.device(number), settings.route(number)
    up_delay, down_delay = (route.up_delay, route.down_delay) if route else (0.0, 0.0)
    return Line(device.uplink, device.delay + up_delay), Line(device.downlink, down_delay)

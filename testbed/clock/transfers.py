"""How long messages take under the virtual clock.

A message takes its bytes on the wire, every header included, divided by the link's rate: that is what
tc would let pass. A link carries one message after the other; the delay comes on top and delays
nothing else. Retransmissions and acknowledgements are not part of it.
"""

from testbed.network.segments import wire_bytes


class Line:
    """One direction of one link."""

    def __init__(self, rate: int | None, delay: float = 0.0) -> None:
        """Make an idle line.

        Args:
            rate: in bit/s; None: a message takes no time.
            delay: in seconds.
        """
        self._rate = rate
        self._delay = delay
        self.free = 0.0
        """When what was sent so far has left, in seconds."""

    @property
    def instant(self) -> bool:
        """Whether a message's size does not matter for when it arrives."""
        return self._rate is None

    def earliest(self, now: float, size: int) -> float:
        """When a message of at least ``size`` bytes that is sent now arrives at the earliest."""
        if self._rate is None:
            return now + self._delay
        return max(now, self.free) + 8 * wire_bytes(size) / self._rate + self._delay

    def send(self, now: float, size: int) -> float:
        """Send a message of ``size`` bytes; returns when it arrives."""
        arrival = self.earliest(now, size)
        if self._rate is not None:
            self.free = arrival - self._delay
        return arrival

"""The time that messages take under the virtual clock.

A message takes its bytes on the wire, every header included, divided by the link's rate: that is what
tc would let pass. A link carries one message after the other; the delay is added and delays nothing
else. With jitter, each message's delay is drawn, and no message arrives before an earlier one.
Retransmissions and acknowledgements are left out.

While a link is down, time stands still on it: what is under way arrives that much later, and what is
sent leaves when the link is up again.
"""

from collections.abc import Callable, Sequence

from testbed.network.segments import wire_bytes
from testbed.random_streams import stream

_BLOCK = 64
"""Messages whose numbers are drawn at once: making a stream costs more than drawing from it."""


class Jitter:
    """The random part of the delays on one direction of a device's route.

    Every link draws uniformly between minus and plus its jitter, for each message: as netem does for
    each packet. The numbers come from a stream of the device and direction, so that they are the same
    in an emulation and in a simulation, and no other draw changes them.
    """

    def __init__(self, seed: int, device: int, direction: str, widths: Sequence[float]) -> None:
        """Set up the stream, from its first message on.

        Args:
            widths: the jitter of each link on the way, in seconds.
        """
        self._seed = seed
        self._device = device
        self._purpose = f"jitter {direction}"
        self._widths = list(widths)
        # Only plain values, so that a checkpoint has all of it.
        self._blocks = 0
        self._drawn: list[float] = []

    @property
    def least(self) -> float:
        """The least value that can be drawn, in seconds; at most 0."""
        return sum(-width for width in self._widths)

    def draw(self) -> float:
        """Return the seconds by which the next message's delay is longer; negative if it is shorter."""
        if not self._drawn:
            random = stream(self._seed, self._purpose, self._device, self._blocks)
            self._blocks += 1
            shares = random.uniform(-1.0, 1.0, size=(_BLOCK, len(self._widths)))
            self._drawn = [
                sum(width * float(share) for width, share in zip(self._widths, row, strict=True))
                for row in shares
            ]
            self._drawn.reverse()
        return self._drawn.pop()


def jitter(seed: int, device: int, direction: str, widths: Sequence[float]) -> Jitter | None:
    """Return the jitter of one direction; None if there is none."""
    given = [width for width in widths if width]
    return Jitter(seed, device, direction, given) if given else None


class Line:
    """One direction of one link."""

    def __init__(self, rate: int | None, delay: float = 0.0, jitter: Jitter | None = None) -> None:
        """Make an idle line.

        Args:
            rate: in bit/s; None if a message takes no time.
            delay: in seconds.
            jitter: varies the delay, by no more than the delay; None: nothing does.
        """
        self._rate = self._usual = rate
        self._delay = delay
        self._jitter = jitter
        self._jittered: list[tuple[float, float]] = []
        """Where there is jitter: arrivals of what is under way, and when it left, in seconds."""
        self.free = 0.0
        """The time when everything sent so far has left, in seconds."""
        self.down = 0.0
        """The time when the link is up again, if it is down; in seconds."""
        self.handed_over = 0
        """The bytes on the wire of all messages so far."""
        self.marks: list[float] = []
        """Times when something that was sent has left, in seconds; they move as ``free`` does."""
        self._moved = 0.0
        """The last arrival of a message that a change of the line has moved, or that was sent with
        jitter, in seconds."""

    @property
    def instant(self) -> bool:
        """True if a message's size does not matter for when it arrives."""
        return self._rate is None and self._jitter is None

    def earliest(self, now: float, size: int) -> float:
        """Return the earliest time at which a message of at least ``size`` bytes, sent now, arrives."""
        arrival = self._usual_arrival(now, size)
        return arrival if self._jitter is None else max(now, arrival + self._jitter.least)

    def _usual_arrival(self, now: float, size: int) -> float:
        """Return when a message arrives without jitter."""
        if self._rate is None:
            return max(now, self.down) + self._delay
        start = max(now, self.free, self.down)
        return start + 8 * wire_bytes(size) / self._rate + self._delay

    def left(self, now: float) -> int:
        """Return the bytes on the wire that have left so far."""
        return max(0, self.handed_over - round(self._waiting_bits(max(now, self.down)) / 8))

    def _waiting_bits(self, start: float) -> float:
        """Return the bits that have not left at a time at which the link is up."""
        return 0.0 if self._rate is None else max(0.0, self.free - start) * self._rate

    def send(self, now: float, size: int) -> float:
        """Send a message of ``size`` bytes; return the time at which it arrives."""
        self.handed_over += wire_bytes(size)
        arrival = self._usual_arrival(now, size)
        if self._rate is not None:
            self.free = arrival - self._delay
        elif self.down > now:
            self.free = self.down
        return self._sent(now, arrival - self._delay, arrival)

    def _sent(self, now: float, left: float, arrival: float) -> float:
        """Return when a message arrives that leaves at ``left``; ``arrival`` is without jitter."""
        if self._jitter is None:
            # Rounding must not let it overtake an earlier message that was moved.
            return max(arrival, self._moved)
        # Jitter must not let it overtake any earlier message, or arrive before it is sent.
        self._moved = max(now, arrival + self._jitter.draw(), self._moved)
        self._jittered = [one for one in self._jittered if one[0] > now]
        self._jittered.append((self._moved, left))
        return self._moved

    def hold(self, now: float, until: float) -> Callable[[float], float]:
        """Take the link down; return a function from old to new arrival times of what is under way."""
        by = max(0.0, until - max(now, self.down))
        if self.free > now:
            self.free += by
        self.marks = [mark + by if mark > now else mark for mark in self.marks]
        self.down = max(until, self.down)
        self._jittered = [(arrival + by, left + by) for arrival, left in self._jittered]
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
        self.marks = list(map(later, self.marks))
        return self._moving(later, lambda _, left, delay: later(left) + delay)

    def _moving(
        self, later: Callable[[float], float], moved: Callable[[float, float, float], float]
    ) -> Callable[[float], float]:
        """Return a function from old to new arrivals; the delays stay as they were drawn.

        Args:
            later: gives the new time at which a message leaves.
            moved: gives a message's new arrival, from the old one, when it left, and its delay.
        """
        if self._jitter is None:
            return self._noting(lambda at: moved(at, at - self._delay, self._delay))
        there: dict[float, float] = {}
        last, pairs = 0.0, []
        for arrival, left in self._jittered:
            last = there[arrival] = max(last, moved(arrival, left, arrival - left))
            pairs.append((last, later(left)))
        self._jittered = pairs
        return self._noting(lambda at: there.get(at, moved(at, at - self._delay, self._delay)))

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
        self.marks = [min(mark, now) for mark in self.marks]
        self._moved = 0.0
        self._jittered = []

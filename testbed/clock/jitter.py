"""The random part of the delays on one direction of a device's route.

Every link draws uniformly between minus and plus its jitter, for each message: as netem does for each
packet. The numbers come from a stream of the device and direction, so that they are the same in an
emulation and in a simulation, and no other draw changes them.
"""

from collections.abc import Sequence

from testbed.random_streams import stream

_BLOCK = 64
"""Messages whose numbers are drawn at once: making a stream costs more than drawing from it."""


class Jitter:
    """The jitter of one direction."""

    def __init__(self, seed: int, device: int, direction: str, widths: Sequence[float]) -> None:
        """Set up the stream, from its first message on.

        Args:
            seed: the experiment's seed.
            direction: names the stream.
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

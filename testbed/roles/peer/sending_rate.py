"""The rate at which a peer's first messages leave it: its measured bandwidth.

The peer looks again and again at which connections still have bytes that the other's kernel has not
received. A peer that receives nothing (it is frozen, or its link is down) must not hold the measurement
up for ever: after a limit only the connections that have become empty count.
"""

import math
from collections.abc import Collection, Mapping

SENDING_LOOK = 0.002
"""Seconds between two looks at what has left."""
LONGEST = 60.0
"""Seconds after which messages that have not left are no longer waited for."""


class SendingRate:
    """The measurement of one step's messages; moments are seconds of CLOCK_MONOTONIC.

    Attributes:
        is_over: True if all messages have left, or are no longer waited for.
    """

    def __init__(self, before: Mapping[int, int], after: Mapping[int, int], now: float) -> None:
        """Begin.

        Args:
            before, after: the bytes handed over to each connection before and after the step.
        """
        self.is_over = False
        self._waiting = {peer: size - before.get(peer, 0) for peer, size in after.items()}
        self._began = self._last = now
        self._left = 0

    def look(self, under_way: Collection[int], now: float) -> None:
        """Note which connections have bytes under way; those of peers that are gone have none."""
        for peer in [peer for peer in self._waiting if peer not in under_way]:
            self._left += self._waiting.pop(peer)
            self._last = now
        self.is_over = not self._waiting or now - self._began > LONGEST

    @property
    def bandwidth(self) -> float:
        """Bytes per second; inf where nothing was sent, or left at once."""
        elapsed = self._last - self._began
        return self._left / elapsed if self._left and elapsed > 0 else math.inf

"""The bytes of a peer's messages that its own kernel, or the receivers', have not taken yet."""

import time
from collections.abc import Callable, Collection, Mapping

from testbed.roles.transport.connection import Connection
from testbed.roles.transport.kernel_queues import under_way

SETTLING = 0.5
"""Seconds without a byte more after which a peer is taken for one that receives nothing now."""


class Outgoing:
    """The bytes on their way over the connections of a peer, by receiving peer."""

    def __init__(
        self, peers: Mapping[int, Connection], turn: Callable[[float | None], object]
    ) -> None:
        """Look at connections.

        Args:
            turn: waits for events for at most some seconds, and handles them.
        """
        self._peers = peers
        self._turn = turn

    def handed_over(self) -> dict[int, int]:
        """Return the number of bytes that were passed to ``send`` so far."""
        return {n: c.sent_bytes + c.pending for n, c in self._peers.items()}

    def unsent(self, counts: Mapping[int, int], spared: Collection[int] = ()) -> dict[int, int]:
        """Return the connections of which the kernel has not taken these bytes, and what it took.

        Args:
            counts: bytes by receiving peer.
        """
        return {
            n: c.sent_bytes
            for n, c in self._peers.items()
            if c.sent_bytes < counts.get(n, 0) and n not in spared
        }

    def under_way(self) -> list[int]:
        """Return the peers whose kernels have not received all bytes sent to them."""
        return [n for n, c in self._peers.items() if c.pending or under_way(c.socket)]

    def settle(self) -> list[int]:
        """Send all that is pending, and read what comes, until the others' kernels have all bytes.

        Returns:
            The peers whose kernels lack some, and took none for ``SETTLING`` seconds.
        """
        since, left = time.monotonic(), self._bytes_under_way()
        while left and time.monotonic() - since < SETTLING:
            self._turn(0.01)
            now = self._bytes_under_way()
            if now != left:
                since, left = time.monotonic(), now
        return list(left)

    def _bytes_under_way(self) -> dict[int, int]:
        sizes = ((n, c.pending + under_way(c.socket)) for n, c in self._peers.items())
        return {n: size for n, size in sizes if size}

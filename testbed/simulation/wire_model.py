"""A model of wire bytes where there is no wire: TCP on an idle, lossless link, stated here in full.

- A message takes its bytes and 66 bytes of headers for every 1,448 of them begun, sent in one go.
- A device acknowledges each super-frame of segmentation offload that it receives with one pure ACK of
  66 bytes: Linux acknowledges each that it is handed. One holds up to 45 segments (64 KiB); the first
  of a connection hold 5, 5, 11, 16, 24 and 36, as its congestion window opens (as captured on links of
  this testbed). A message that fits into one segment is acknowledged by the next message instead.
- A connection begins with SYN and ACK (74 and 66 bytes) where it is accepted, with SYN and ACK in one
  (74) where it was made; the answer to the greeting is acknowledged on its own (66). It ends with FIN
  and ACK in one (66) on both sides.
- Nothing is lost and nothing sent again.
"""

from collections.abc import Iterable

from testbed.network.segments import HEADERS, SEGMENT, wire_bytes

OPENING = (5, 5, 11, 16, 24, 36)
"""Segments in the first super-frames of a connection."""
FULL = 45
"""Segments in each later super-frame."""
SYN = 74


class Acknowledgements:
    """The acknowledgements of what is sent one way over one connection."""

    def __init__(self) -> None:
        self._full_ones = 0

    def of(self, size: int) -> int:
        """Return the bytes of pure ACKs that come back for a message of ``size`` bytes."""
        if size <= SEGMENT:
            return 0
        segments, frames = -(-size // SEGMENT), 0
        while segments > 0 and self._full_ones < len(OPENING):
            room = OPENING[self._full_ones]
            if segments >= room:
                self._full_ones += 1
            segments -= room
            frames += 1
        return HEADERS * (frames + max(0, -(-segments // FULL)))


class ModelledConnection:
    """The modelled wire bytes between two devices, over all connections between them.

    Attributes:
        sent: by direction, the bytes that leave one of them and enter the other: True for those of the
            first device.
    """

    def __init__(self) -> None:
        self.sent = {True: 0, False: 0}
        self._acknowledgements = {up: Acknowledgements() for up in self.sent}

    def greeted(self, sizes: Iterable[int], answer: int, *, up: bool = True) -> None:
        """Count a new connection, with the messages that its caller begins with and their answer."""
        self._acknowledgements = {one: Acknowledgements() for one in self.sent}
        self.sent[up] += SYN + 2 * HEADERS + sum(map(wire_bytes, sizes))
        self.sent[not up] += SYN + wire_bytes(answer)

    def passed(self, size: int, *, up: bool) -> None:
        """Count messages of ``size`` bytes together, sent in one go, and their acknowledgements."""
        self.sent[up] += wire_bytes(size)
        self.sent[not up] += self._acknowledgements[up].of(size)

    def ended(self, size: int, *, up: bool) -> None:
        """Count the last message of a direction, which is not acknowledged."""
        self.sent[up] += wire_bytes(size)

    def closed(self) -> None:
        for up in self.sent:
            self.sent[up] += HEADERS

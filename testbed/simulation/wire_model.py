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


class ModelledIngress:
    """The modelled wire bytes that entered one device."""

    def __init__(self) -> None:
        self.wire_bytes = 0

    def opened(self) -> None:
        """Count a connection made to the device, with the ACK of its answer to the greeting."""
        self.wire_bytes += SYN + 2 * HEADERS

    def answered(self) -> None:
        """Count that a connection which the device made was accepted."""
        self.wire_bytes += SYN

    def closed(self) -> None:
        self.wire_bytes += HEADERS

    def received(self, size: int) -> None:
        """Count messages of ``size`` bytes together, sent in one go."""
        self.wire_bytes += wire_bytes(size)

    def acknowledged(self, size: int) -> None:
        self.wire_bytes += size


class ModelledConnection:
    """The modelled wire bytes between one worker and one server, over all connections between them.

    Attributes:
        to_server, to_worker: what entered the server, and the worker.
    """

    def __init__(self) -> None:
        self.to_server = ModelledIngress()
        self.to_worker = ModelledIngress()
        self._of_server = Acknowledgements()
        self._of_worker = Acknowledgements()

    def greeted(self, sizes: Iterable[int], answer: int) -> None:
        """Count a new connection, with the messages that the worker begins with and their answer."""
        self._of_server, self._of_worker = Acknowledgements(), Acknowledgements()
        self.to_server.opened()
        self.to_worker.answered()
        self.to_worker.received(answer)
        for size in sizes:
            self.to_server.received(size)

    def pushed(self, size: int) -> None:
        """Count messages of ``size`` bytes together from the worker, sent in one go."""
        self.to_server.received(size)
        self.to_worker.acknowledged(self._of_server.of(size))

    def sent(self, size: int) -> None:
        self.to_worker.received(size)
        self.to_server.acknowledged(self._of_worker.of(size))

    def stopped(self, size: int) -> None:
        """Count the last message to the worker, which is not acknowledged, and the end."""
        self.to_worker.received(size)
        self.closed()

    def closed(self) -> None:
        self.to_server.closed()
        self.to_worker.closed()

    @property
    def wire_bytes(self) -> tuple[int, int]:
        """The bytes that the worker has sent, and received."""
        return self.to_server.wire_bytes, self.to_worker.wire_bytes

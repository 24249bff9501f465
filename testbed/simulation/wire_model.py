"""Wire bytes where there is no wire: a model of TCP on an idle, lossless link, stated here in full.

- A message takes its bytes and 66 bytes of headers for every 1,448 of them begun, sent in one go.
- What a device receives it acknowledges with one pure ACK of 66 bytes per 45 segments begun: Linux
  acknowledges every super-frame of segmentation offload (64 KiB, 45 segments) that it is handed. What
  fits into one segment is acknowledged by the next message instead.
- A connection begins with SYN and ACK (74 and 66 bytes) where it is accepted, with SYN and ACK in one
  (74) where it was made, and ends with FIN and ACK (66 and 66) on both sides.
- Nothing is lost and nothing sent again.
"""

from testbed.network.segments import HEADERS, SEGMENT, wire_bytes

SUPER_FRAME = 45 * SEGMENT
SYN = 74
CLOSING = 2 * HEADERS


def acknowledgements(received: int) -> int:
    """Bytes of pure ACKs that a device sends for a message of this size."""
    return HEADERS * -(-received // SUPER_FRAME) if received > SEGMENT else 0


class ModelledIngress:
    """Wire bytes that entered one device.

    Attributes:
        wire_bytes: so far.
    """

    def __init__(self) -> None:
        self.wire_bytes = 0

    def opened(self) -> None:
        """A connection was made to it."""
        self.wire_bytes += SYN + HEADERS

    def answered(self) -> None:
        """A connection that was made from it was accepted."""
        self.wire_bytes += SYN

    def closed(self) -> None:
        """A connection to it was ended."""
        self.wire_bytes += CLOSING

    def received(self, size: int) -> None:
        """Messages of ``size`` bytes together, sent in one go, came in."""
        self.wire_bytes += wire_bytes(size)

    def sent(self, size: int) -> None:
        """A message of ``size`` bytes went out, whose acknowledgements come in."""
        self.wire_bytes += acknowledgements(size)

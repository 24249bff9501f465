"""The size of a message on the wire: TCP segments at an MTU of 1,500, with every header."""

SEGMENT = 1448
"""Bytes of a stream in a full segment: 1,500 less 20 of IPv4 and 32 of TCP with timestamps."""
HEADERS = 66
"""Bytes of its headers: Ethernet 14, IPv4 20, TCP with timestamps 32; also the size of a pure ACK."""
DATAGRAM_HEADERS = 42
"""Bytes of the headers of a UDP datagram: Ethernet 14, IPv4 20, UDP 8."""
LARGEST_DATAGRAM = 1472
"""Bytes of a datagram's payload in a full frame: 1,500 less 20 of IPv4 and 8 of UDP."""


def wire_bytes(size: int) -> int:
    """Return the bytes on the wire of ``size`` bytes of a stream that are sent in one go."""
    return size + HEADERS * -(-size // SEGMENT)

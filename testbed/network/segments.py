"""What a message takes on the wire: TCP segments of an MTU of 1,500, with every header."""

SEGMENT = 1448
"""Bytes of a stream in a full segment: 1,500 less 20 of IPv4 and 32 of TCP with timestamps."""
HEADERS = 66
"""Bytes around it: Ethernet 14, IPv4 20, TCP with timestamps 32; also the size of a pure ACK."""


def wire_bytes(size: int) -> int:
    """Bytes that ``size`` bytes of a stream take when they are sent in one go."""
    return size + HEADERS * -(-size // SEGMENT)

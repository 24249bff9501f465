"""Read pcap files: each packet follows 16 bytes that hold its time and length.

The upper half of the header's link type may say how long a frame check sequence the packets have.
"""

import struct
from collections.abc import Iterator
from typing import IO

import numpy as np
import numpy.typing as npt

from traffic.chunks import Chunk, chunks
from traffic.packet_batches import LINK_HEADERS, LONGEST, Interface, Records

HEADER = 24
TICKS = {0xA1B2C3D4: 1_000_000, 0xA1B23C4D: 1_000_000_000}
"""Ticks per second, by the file's first four bytes, which also show its byte order."""
_PACKET_HEAD = 16
_NOTHING = bytes(_PACKET_HEAD)
_LINK = 20
"""Offset of the link type in the header."""
_HAS_CHECKSUM, _RESERVED = 0x0400_0000, 0x0BFF_0000


class Damage(Exception):  # noqa: N818 -- a place and a reason, on their way to a DamagedError
    """Damage in a file, which cannot be read on from ``place``.

    Attributes:
        what: the words between the file's name and the place.
    """

    def __init__(self, place: int, why: str, what: str = "is damaged at") -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why
        self.what = what


class Unknown(Damage):
    """What follows ``place`` may be whole, but is of a kind that is not read."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(place, why, "cannot be read on from")


def unknown_link_type(place: int, number: int) -> Unknown:
    """Return what is said of packets of a link type whose IP header is at no known place."""
    return Unknown(place, f"packets of link type {number}; capture at an Ethernet interface")


def byte_order(head: bytes) -> str | None:
    """Return the byte order of a pcap file that begins with ``head``; None if it is no pcap file."""
    for order in "<>":
        if len(head) >= 4 and struct.unpack_from(f"{order}I", head)[0] in TICKS:
            return order
    return None


def read(file: IO[bytes], interfaces: list[Interface]) -> Iterator[Records]:
    """Yield the packets of a pcap file and add its interface to ``interfaces``.

    Raises:
        Damage: after the last packet that can be read.
    """
    head = file.read(HEADER)
    order = byte_order(head)
    assert order is not None
    if len(head) < HEADER:
        raise Damage(len(head), "the file ends within its header")
    magic, link = struct.unpack(f"{order}I16xI", head)
    if link & _RESERVED:
        raise Unknown(_LINK, f"the link type {link:#010x}, in which reserved bits are set")
    checksum = 2 * (link >> 28) if link & _HAS_CHECKSUM else 0  # it counts words of 16 bits
    interface = Interface(link & 0xFFFF, TICKS[magic], checksum=checksum)
    interfaces.append(interface)
    if interface.link_type not in LINK_HEADERS:
        raise unknown_link_type(_LINK, interface.link_type)
    for chunk in chunks(file, HEADER):
        places, end, damage = _walk(chunk, order)
        chunk.used = end
        if places:
            yield _records(chunk.padded(), np.array(places, np.intp), interface, order)
        if damage or (chunk.last and end < chunk.end):
            raise Damage(chunk.start + end, damage or "the file ends within a packet")


def _walk(chunk: Chunk, order: str) -> tuple[list[int], int, str | None]:
    """Return where a chunk's whole packets begin, where the last one ends, and what is wrong there."""
    unpack = struct.Struct(f"{order}I").unpack_from
    data, end = chunk.bytes, chunk.end
    places: list[int] = []
    add = places.append
    place, last = 0, end - _PACKET_HEAD
    while place <= last:
        kept: int = unpack(data, place + 8)[0]
        following = place + _PACKET_HEAD + kept
        if kept > LONGEST:
            return places, place, f"a packet of {kept:,} bytes"
        if not kept and data[place:following] == _NOTHING:
            return places, place, "zeros, as a crash leaves them"
        if following > end:
            break
        add(place)
        place = following
    return places, place, None


def _records(
    buffer: npt.NDArray[np.uint8], at: npt.NDArray[np.intp], interface: Interface, order: str
) -> Records:
    heads = np.lib.stride_tricks.sliding_window_view(buffer, _PACKET_HEAD)[at].view(f"{order}u4")
    seconds, ticks = heads[:, 0].astype(np.uint64), heads[:, 1].astype(np.uint64)
    time = interface.nanoseconds(seconds * np.uint64(interface.ticks) + ticks)
    kept = heads[:, 2].astype(np.int64)
    length = np.maximum(heads[:, 3], heads[:, 2]).astype(np.int64) - interface.checksum
    length, kept = np.maximum(length, 0), np.clip(kept, 0, np.maximum(length, 0))
    link = np.full(len(at), interface.link_type)
    return Records(link, buffer, at + _PACKET_HEAD, time, length, kept)

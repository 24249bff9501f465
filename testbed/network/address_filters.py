"""Filters that send the packets of IPv4 addresses, or of pairs of them, to classes, for the kernel.

The u32 classifier would compare a packet with one pair after the other. So the pairs are in a hash
table, by the address of which there are more, and a packet is compared with those of its bucket. The
requests are packed here since there are hundreds of them, each of which takes pyroute2 milliseconds.
"""

import ipaddress
import socket
import struct
from collections.abc import Mapping, Sequence

from testbed.network.netlink import ADD, attribute, number, packed_request

ROOT = 0x0001_0000
"""Handle 1:, the HTB at the root of an interface's egress, to which filters belong."""
SOURCE, DESTINATION = 12, 16
"""Offsets of the addresses in an IPv4 header."""
_NEW_FILTER = 44
_FILTER = struct.Struct("=BxxxiIII")
_PRIORITY_AND_PROTOCOL = 1 << 16 | socket.htons(0x0800)
_KIND, _OPTIONS = 1, 2
_CLASS, _TABLE, _LINK, _BUCKETS, _SELECTOR = 1, 2, 3, 4, 5
_TABLE_HANDLE = 0x0010_0000
_BUCKET_COUNT = 256
_HASHED = 0x1FE
"""Bits of an address that are its bucket: the lowest one is the end of a link."""
_ONE_ADDRESS = 0xFFFF_FFFF


def packed_filters(
    targets: Mapping[tuple[str, str], int], first: Mapping[tuple[int, str], int]
) -> bytes:
    """Return the requests for all filters of an interface, for ``netlink.Requests.shape``.

    Args:
        targets: the handles of the classes, by source and destination.
        first: handles of classes for single addresses, by ``SOURCE`` or ``DESTINATION`` and address;
            they come before the pairs.
    """
    packed = b"".join(
        _request(number(_CLASS, target) + _selector([(place, _value(address), _ONE_ADDRESS)]))
        for (place, address), target in first.items()
    )
    if not targets:
        return packed
    sides: Sequence[set[str]] = [set(side) for side in zip(*targets, strict=True)]
    side = int(len(sides[1]) > len(sides[0]))
    packed += _request(number(_BUCKETS, _BUCKET_COUNT), _TABLE_HANDLE)
    # Every packet goes on in the table, at the bucket of this address.
    packed += _request(
        number(_LINK, _TABLE_HANDLE) + _selector([(0, 0, 0)], (SOURCE, DESTINATION)[side])
    )
    for pair, target in targets.items():
        source, destination = map(_value, pair)
        bucket = ((source, destination)[side] & _HASHED) >> 1
        packed += _request(
            number(_CLASS, target)
            + number(_TABLE, _TABLE_HANDLE | bucket << 12)
            + _selector([(SOURCE, source, _ONE_ADDRESS), (DESTINATION, destination, _ONE_ADDRESS)])
        )
    return packed


def _request(options: bytes, handle: int = 0) -> bytes:
    body = _FILTER.pack(0, 0, handle, ROOT, _PRIORITY_AND_PROTOCOL)
    body += attribute(_KIND, b"u32\0") + attribute(_OPTIONS, options)
    return packed_request(_NEW_FILTER, ADD, body)


def _selector(keys: Sequence[tuple[int, int, int]], hashed: int | None = None) -> bytes:
    """Return what a packet must have: at each offset a value, in the bits of a mask.

    Args:
        hashed: offset of the address by which a table is looked up.
    """
    mask = 0 if hashed is None else _HASHED
    # flags (1: what matches is in the class), offset's shift, number of keys; offsets that stay 0
    matched = int(hashed is None)
    packed = struct.pack("=BBBxHHhh", matched, 0, len(keys), 0, 0, 0, hashed or 0)
    packed += struct.pack(">I", mask)
    for place, value, bits in keys:
        packed += struct.pack(">II", bits, value) + struct.pack("=ii", place, 0)
    return attribute(_SELECTOR, packed)


def _value(address: str) -> int:
    return int(ipaddress.IPv4Address(address))

"""Write pcapng files with times in nanoseconds, the interface's name, the filter and the drops.

The format is pcapng (IETF draft-ietf-opsawg-pcapng) and not pcap, because a capture's drops must
travel with it: they are in an interface statistics block at the end of the file.
"""

import functools
import os
import platform
import struct

import numpy as np
import numpy.typing as npt

from traffic.packet_ring import Packets

_SECTION = 0x0A0D0D0A
_INTERFACE = 1
_STATISTICS = 5
_ENHANCED_PACKET = 6
_BYTE_ORDER = 0x1A2B3C4D
_LINK_TYPE_ETHERNET = 1
_LONGEST_FILTER = 65_534
"""Bytes of a filter that an option holds; the rest is left out."""
_PACKET_HEAD = 28
_PACKET_TAIL = 4


def header(interface: str, snap_length: int, filter_text: str, writer: str) -> bytes:
    """Return the beginning of a file: section and interface blocks.

    Args:
        filter_text: what the kernel's filter kept, in words or tcpdump's language; may be empty.
        writer: the program that captures.
    """
    system = f"{platform.system()} {platform.release()}"
    section = struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1)
    section += _option(3, system.encode()) + _option(4, writer.encode()) + _option(0, b"")
    options = _option(2, os.fsencode(interface))
    options += _option(9, b"\x09")  # if_tsresol: 10⁻⁹ s
    if filter_text:
        options += _option(11, b"\0" + os.fsencode(filter_text)[:_LONGEST_FILTER])
    options += _option(12, system.encode()) + _option(0, b"")
    return _block(_SECTION, section) + _block(
        _INTERFACE, struct.pack("<HHI", _LINK_TYPE_ETHERNET, 0, snap_length) + options
    )


def packets(batch: Packets) -> memoryview:
    """Return the blocks of a batch of packets, as they are written into the file."""
    count, width = batch.data.shape
    data_mask, block_mask = _masks(width)
    rows = np.empty((count, block_mask.shape[1]), np.uint8)
    padded = (batch.kept + 3) & ~np.uint32(3)
    total = padded + np.uint32(_PACKET_HEAD + _PACKET_TAIL)
    head = rows[:, :_PACKET_HEAD].view("<u4")
    head[:, 0] = _ENHANCED_PACKET
    head[:, 1] = total
    head[:, 2] = 0  # the interface
    head[:, 3] = batch.time >> 32
    head[:, 4] = batch.time & 0xFFFFFFFF
    head[:, 5] = batch.kept
    head[:, 6] = batch.length
    body = rows[:, _PACKET_HEAD:-_PACKET_TAIL]
    np.bitwise_and(batch.data, data_mask[batch.kept], out=body[:, :width])
    body[:, width:] = 0
    # The length again, after each packet's data.
    tail = (np.arange(count) * rows.shape[1] + padded + _PACKET_HEAD) // 4
    rows.reshape(-1).view("<u4")[tail] = total
    blocks: npt.NDArray[np.uint8] = rows[block_mask[batch.kept]]
    return blocks.data


@functools.cache
def _masks(width: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Return, for each number of bytes kept, which bytes of the data and of the block exist.

    They are looked up: computing them for each packet would take most of the time.
    """
    kept = np.arange(width + 1)[:, None]
    block = _PACKET_HEAD + (width + 3 & ~3) + _PACKET_TAIL
    data_mask = np.where(np.arange(width) < kept, 0xFF, 0).astype(np.uint8)
    return data_mask, np.arange(block) < _PACKET_HEAD + (kept + 3 & ~3) + _PACKET_TAIL


def statistics(time: int, counted: int, dropped: int) -> bytes:
    """Return the block at the end of a file: the numbers of packets that passed and that were lost.

    Args:
        time: nanoseconds since 1970.
    """
    options = _option(4, struct.pack("<Q", counted)) + _option(5, struct.pack("<Q", dropped))
    options += _option(0, b"")
    return _block(_STATISTICS, struct.pack("<III", 0, time >> 32, time & 0xFFFFFFFF) + options)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)

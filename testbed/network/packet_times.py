"""The times at which the kernel sees packets on an interface: AF_PACKET, TPACKET_V2, small slots.

A slot holds the first bytes of one packet and its time. The ring has a slot for every packet that will
come, so that nothing depends on when it is read. (``traffic.packet_ring``, which runs for hours, hands
over whole blocks, and loses packets if its reader is away until all blocks are full.)
"""

import mmap
import socket
import struct

import numpy as np
import numpy.typing as npt

SEEN_BYTES = 50
"""Bytes of each packet that can be read, from its Ethernet header on."""

_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_VERSION = 10
_TPACKET_V2 = 1
_ETH_P_ALL = 3
_BLOCK = 1 << 16
_SLOT = 128
_HEADER = np.dtype(
    [
        ("status", "u4"),
        ("length", "u4"),
        ("kept", "u4"),
        ("start", "u2"),
        ("network", "u2"),
        ("seconds", "u4"),
        ("nanoseconds", "u4"),
        ("rest", "u1", 12),
    ]
)
_DATA = 66
"""Offset of a packet in its slot: after the header, an address and padding for its IP header."""
_USER = 1


class PacketTimes:
    """A capture of what passes one interface of the current network namespace, both directions."""

    def __init__(self, interface: str, packets: int) -> None:
        """Start to capture.

        Args:
            packets: the number of packets that may pass before they are read.

        Raises:
            OSError: no such interface, no permission, or no memory.
        """
        blocks = -(-packets * _SLOT // _BLOCK)
        # Without a protocol nothing is received before the ring exists.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            request = struct.pack("4I", _BLOCK, blocks, _SLOT, blocks * _BLOCK // _SLOT)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
            self._memory = mmap.mmap(self._socket.fileno(), blocks * _BLOCK)
            self._socket.bind((interface, _ETH_P_ALL))
        except BaseException:
            self._socket.close()
            raise
        slots = np.frombuffer(self._memory, np.uint8).reshape(-1, _SLOT)
        self._headers = slots[:, : _HEADER.itemsize].view(_HEADER)[:, 0]
        self._data = slots[:, _DATA : _DATA + SEEN_BYTES]

    def take(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """Take the packets seen since the last call, in no order.

        Returns:
            Times in nanoseconds since 1970 (UTC), and the first bytes of each packet, shape
            (packets, ``SEEN_BYTES``).
        """
        filled = np.flatnonzero(self._headers["status"] & _USER)
        headers, data = self._headers[filled], self._data[filled]
        self._headers["status"][filled] = 0
        if np.any(headers["start"] != _DATA):
            raise OSError("the kernel's packet ring has another layout than TPACKET_V2's")
        seconds = headers["seconds"].astype(np.int64)
        return seconds * 1_000_000_000 + headers["nanoseconds"], data

    def close(self) -> None:
        """Stop capturing."""
        del self._headers, self._data
        self._memory.close()
        self._socket.close()

"""A packet socket with a ring of memory that the kernel fills: AF_PACKET, TPACKET_V3.

The kernel copies the first bytes of each packet into a block of the ring, and hands the block over
when it is full or has been open for ``RETIRE`` seconds. A block is read as a whole: its packets form
a linked list, which is walked one step per packet; everything after that is done on arrays. The block
goes back to the kernel before anything is written to disk, so that a slow disk does not hold it up.
"""

import errno
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traffic import TrafficError, filters

BLOCK_SIZE = 1 << 20
BLOCKS = 64
"""64 MiB of ring, which holds about 300,000 packets of 128 bytes."""
RETIRE = 0.1
"""Seconds after which a block that is not full is handed over."""

_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_VERSION = 10
_PACKET_IGNORE_OUTGOING = 23
_PROMISCUOUS = 1
_TPACKET_V3 = 2
_ETH_P_ALL = 3
_BLOCK_STATUS = 8
_STATUS_USER = 1
_STATUS_VLAN_VALID = 1 << 4
_STATUS_VLAN_TPID_VALID = 1 << 6
_ETHERTYPE_VLAN = 0x8100
_ARPHRD_ETHER = 1
_ARPHRD_LOOPBACK = 772


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets in the order in which the kernel saw them.

    Attributes:
        time: int64, nanoseconds since 1970 (UTC).
        length: uint32, bytes of the whole packet.
        kept: uint32, bytes of it that are in ``data``.
        data: uint8, shape (packets, snap length); bytes after ``kept`` are not part of the packet.
    """

    time: npt.NDArray[np.int64]
    length: npt.NDArray[np.uint32]
    kept: npt.NDArray[np.uint32]
    data: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.time)


class PacketRing:
    """A ring that receives what passes one interface, in both directions.

    Attributes:
        received: packets read so far.
        dropped: packets that passed the filter and found no room, as of the last ``statistics``.
    """

    def __init__(
        self,
        interface: str,
        program: Sequence[filters.Instruction],
        snap_length: int,
        blocks: int = BLOCKS,
        promiscuous: bool = False,
    ) -> None:
        """Open the ring in the current network namespace; the interface may still be down.

        Args:
            program: the filter, which also cuts packets to at most ``snap_length`` bytes.

        Raises:
            TrafficError: no such interface, no Ethernet, no permission, or no memory for the ring.
        """
        self.received = 0
        self.dropped = 0
        self._counted = 0
        self._interface = interface
        self._snap_length = snap_length
        try:
            self._index = socket.if_nametoindex(interface)
        except OSError as error:
            names = ", ".join(name for _, name in socket.if_nameindex())
            raise TrafficError(f"there is no interface {interface}: use one of {names}") from error
        try:
            # Without a protocol nothing is received before the filter and the interface are set.
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError as error:
            raise TrafficError(
                f"this user may not capture on {interface}: run it as root or with CAP_NET_RAW"
            ) from error
        try:
            self._open(interface, program, blocks, promiscuous)
        except BaseException:
            self.socket.close()
            raise
        self._next = 0
        # The block being read, with room after it so that a packet at its end can be read in full.
        self._block = np.zeros(BLOCK_SIZE + snap_length + 8, np.uint8)
        self._words = memoryview(self._block[:BLOCK_SIZE]).cast("I")  # type: ignore[arg-type]
        self._windows = np.lib.stride_tricks.sliding_window_view(self._block, snap_length)

    def _open(
        self,
        interface: str,
        program: Sequence[filters.Instruction],
        blocks: int,
        promiscuous: bool,
    ) -> None:
        filters.attach(self.socket, program)
        self.socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
        frame = 2048
        request = struct.pack(
            "7I",
            BLOCK_SIZE,
            blocks,
            frame,
            BLOCK_SIZE // frame * blocks,
            round(RETIRE * 1000),
            0,
            0,
        )
        try:
            self.socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        except OSError as error:
            raise TrafficError(
                f"the kernel has no {BLOCK_SIZE * blocks >> 20} MiB for the capture's ring ({error}): "
                "use a smaller one"
            ) from error
        self._memory = mmap.mmap(self.socket.fileno(), BLOCK_SIZE * blocks)
        self._ring = np.frombuffer(self._memory, np.uint8)
        self._status = self._ring.view(np.uint32)[_BLOCK_STATUS // 4 :: BLOCK_SIZE // 4]
        hardware = self._bind(interface)
        if hardware not in (_ARPHRD_ETHER, _ARPHRD_LOOPBACK):
            raise TrafficError(
                f"{interface} is not an Ethernet interface (ARP type {hardware}): use another"
            )
        if promiscuous:
            membership = struct.pack("iHH8s", self._index, _PROMISCUOUS, 0, b"")
            self.socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)

    def _bind(self, interface: str) -> int:
        """Start to receive; return the interface's hardware type."""
        self.socket.bind((interface, 0))
        hardware: int = self.socket.getsockname()[3]
        if hardware == _ARPHRD_LOOPBACK:
            # A packet that goes out over loopback comes in again, and would be captured twice.
            self.socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        self.socket.bind((interface, _ETH_P_ALL))
        return hardware

    def receive(self) -> Packets | None:
        """Take the next block if the kernel has handed one over, else return None; never wait."""
        if not self._status[self._next] & _STATUS_USER:
            return None
        start = self._next * BLOCK_SIZE
        count, first, length = (int(n) for n in self._ring[start + 12 : start + 24].view(np.uint32))
        self._block[:length] = self._ring[start : start + length]
        self._status[self._next] = 0
        self._next = (self._next + 1) % len(self._status)
        self.received += count
        return self._read(count, first)

    def _read(self, count: int, first: int) -> Packets:
        words = self._words
        places = []
        place = first
        for _ in range(count):
            places.append(place)
            place += words[place >> 2]
        at = np.array(places, np.intp)
        header = np.lib.stride_tricks.sliding_window_view(self._block, 40)[at]
        fields = header.view(np.uint32)  # next, sec, nsec, kept, length, status, mac/net, ...
        time = fields[:, 1].astype(np.int64) * 1_000_000_000 + fields[:, 2]
        kept, length, status = fields[:, 3].copy(), fields[:, 4].copy(), fields[:, 5]
        data = self._windows[at + (fields[:, 6] & 0xFFFF)]
        tagged = np.flatnonzero(status & _STATUS_VLAN_VALID)
        if len(tagged):
            self._restore_tags(tagged, header, data, kept, length)
        return Packets(time, length, kept, data)

    def _restore_tags(
        self,
        rows: npt.NDArray[np.intp],
        header: npt.NDArray[np.uint8],
        data: npt.NDArray[np.uint8],
        kept: npt.NDArray[np.uint32],
        length: npt.NDArray[np.uint32],
    ) -> None:
        """Put VLAN tags back, which the kernel moves from the packet to the ring's header."""
        words = header[rows].view(np.uint16)
        known = header[rows].view(np.uint32)[:, 5] & _STATUS_VLAN_TPID_VALID
        protocol = np.where(known, words[:, 18], _ETHERTYPE_VLAN).astype(">u2")
        tag = words[:, 16].astype(">u2")
        data[rows, 16:] = data[rows, 12:-4]
        data[rows, 12:14] = protocol.view(np.uint8).reshape(-1, 2)
        data[rows, 14:16] = tag.view(np.uint8).reshape(-1, 2)
        kept[rows] = np.minimum(kept[rows] + 4, self._snap_length)
        length[rows] += 4

    def statistics(self) -> tuple[int, int]:
        """Return how many packets passed the filter so far, and how many of them were dropped."""
        counted, dropped, _ = struct.unpack(
            "3I", self.socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 12)
        )
        self._counted += counted
        self.dropped += dropped
        return self._counted, self.dropped

    def passed(self) -> int:
        """Return how many packets have passed the filter so far and were not dropped."""
        counted, dropped = self.statistics()
        return counted - dropped

    def trouble(self) -> str | None:
        """Clear the socket's error; return why the capture cannot go on, or None if it can."""
        number = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            socket.if_indextoname(self._index)
        except OSError:
            return f"the interface {self._interface} is gone"
        if number in (0, errno.ENETDOWN):  # it may come up again, or for the first time
            return None
        return f"capturing on {self._interface}: {os.strerror(number)}"

    def close(self) -> None:
        """Give the ring back to the kernel."""
        del self._ring, self._status
        self._memory.close()
        self.socket.close()

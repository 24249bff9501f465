"""Measurements of a link's rate, delay and loss, independent of the code that shapes it.

The kernel answers the echo requests, and the rate is that of the arrivals, so that neither depends on
how soon this process is scheduled.
"""

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.network.packet_times import PacketTimes
from testbed.network.segments import SEGMENT
from testbed.nodes.linux import inside_network

PAYLOAD = 1400
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
FRAME = PAYLOAD + 42
"""Bytes of a datagram with its headers: UDP 8, IPv4 20, Ethernet 14."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The result of sending a stream of datagrams.

    Attributes:
        sent: number of datagrams sent.
        arrived: number of datagrams that arrived.
        rate: bit/s with headers, between the first arrival and the last.
        damaged: datagrams with a wrong checksum, which the receiving kernel counted.
    """

    sent: int
    arrived: int
    rate: float
    damaged: int

    @property
    def lost(self) -> float:
        """The share of datagrams that did not arrive."""
        return 1 - self.arrived / self.sent


@dataclass(frozen=True, slots=True)
class Holes:
    """The holes that losses left in a connection's bytes when they were first sent.

    Attributes:
        frames: full frames that the bytes take; what was sent again is not among them.
        lost: those of them that were lost.
        holes: the number of holes, each of one or more consecutive frames.
        largest: bytes of the largest packet that passed, from its IP header on.
    """

    frames: int
    lost: int
    holes: int
    largest: int

    @property
    def mean_burst(self) -> float:
        """The mean number of frames that were lost together."""
        return self.lost / max(1, self.holes)


def connection(
    source: int, target: int, address: str, seen_at: tuple[int, str], size: int
) -> Holes:
    """Send bytes over TCP from one network namespace to an address of another; return what was lost.

    Args:
        source: descriptor of the sender's namespace.
        target: descriptor of the namespace that has the address.
        seen_at: descriptor of the namespace, and the name, of an interface behind the measured link.
        size: bytes to send.
    """
    frames = size // SEGMENT
    with inside_network(target):
        listener = socket.create_server((address, 0))
    with inside_network(seen_at[0]):
        seen = PacketTimes(seen_at[1], 4 * frames + 1000)
    with inside_network(source):
        sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    def send() -> None:
        with sender:
            sender.connect((address, port))
            sender.sendall(bytes(size))

    with contextlib.closing(seen), listener:
        port = listener.getsockname()[1]
        sending = threading.Thread(target=send)
        sending.start()
        receiver, (_, from_port) = listener.accept()
        with receiver:
            while receiver.recv(1 << 20):
                pass
        sending.join()
        times, data = seen.take()
    headers = data[np.argsort(times, kind="stable")]
    headers = headers[_field(headers, 34, ">u2") == from_port]
    total = _field(headers, 16, ">u2")
    length = total - 20 - 4 * (headers[:, 46] >> 4)
    number = _field(headers, 38, ">u4")
    place = (number - number[0] - 1) & 0xFFFFFFFF  # the first is the SYN, which takes one number
    full = length > 0
    # In the order of their IP identification, in which they were sent: a packet that another processor
    # has let overtake is not lost.
    sent = np.argsort(np.unwrap(_field(headers[full], 18, ">u2"), period=1 << 16), kind="stable")
    passed = lost = holes = 0
    for begin, count in zip(place[full][sent].tolist(), length[full][sent].tolist(), strict=True):
        if begin > passed:
            lost += round((begin - passed) / SEGMENT)
            holes += 1
        passed = max(passed, begin + count)
    assert passed == size
    return Holes(frames, lost, holes, int(total.max()))


def _field(headers: npt.NDArray[np.uint8], offset: int, kind: str) -> npt.NDArray[np.int64]:
    """Return a number of each packet's headers, in network byte order."""
    width = np.dtype(kind).itemsize
    return (
        np.ascontiguousarray(headers[:, offset : offset + width]).view(kind)[:, 0].astype(np.int64)
    )


def round_trips(network: int, address: str, count: int) -> list[float]:
    """Return the seconds until each echo request was answered, without unanswered requests."""
    with inside_network(network):
        asking = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    found = []
    with asking:
        for number in range(count):
            request = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, number) + bytes(16)
            sent = (
                time.monotonic()
            )  # before sending: a delay of this process must not shorten the trip
            asking.sendto(_with_checksum(request), (address, 0))
            while select.select([asking], [], [], max(0.0, sent + 1.0 - time.monotonic()))[0]:
                kind, _, _, _, got = struct.unpack_from("!BBHHH", asking.recv(2048), 20)
                if (kind, got) == (0, number):
                    found.append(time.monotonic() - sent)
                    break
    return found


def _with_checksum(message: bytes) -> bytes:
    total = sum(struct.unpack(f"!{len(message) // 2}H", message))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return message[:2] + struct.pack("!H", ~total & 0xFFFF) + message[4:]


def stream(source: int, target: int, address: str, count: int) -> Stream:
    """Send datagrams from one network namespace to an address of another, as fast as possible.

    Args:
        source: descriptor of the sender's namespace.
        target: descriptor of the namespace that has the address.
    """
    with inside_network(target):
        receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        before = _wrong_checksums()
    with inside_network(source):
        sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiving, sending:
        receiving.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 * 2**20)  # drop nothing here
        # A long queue in the discipline keeps the link busy while this process is not scheduled.
        sending.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 2**20)
        receiving.bind((address, 0))
        receiving.settimeout(3.0)
        port = receiving.getsockname()[1]
        arrivals: list[float] = []

        def receive() -> None:
            try:
                while len(arrivals) < count:
                    receiving.recv(2048)
                    arrivals.append(time.monotonic())
            except TimeoutError:
                pass

        receiver = threading.Thread(target=receive)
        receiver.start()
        for _ in range(count):
            sending.sendto(bytes(PAYLOAD), (address, port))
        receiver.join()
    with inside_network(target):
        damaged = _wrong_checksums() - before
    between = arrivals[-1] - arrivals[0] if len(arrivals) > 1 else float("inf")
    return Stream(count, len(arrivals), (len(arrivals) - 1) * FRAME * 8 / between, damaged)


def order(source: int, target: int, address: str, count: int) -> list[int]:
    """Return the numbers of datagrams in the order of their arrival; see ``stream``."""
    with inside_network(target):
        receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside_network(source):
        sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiving, sending:
        receiving.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 * 2**20)
        sending.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 2**20)
        receiving.bind((address, 0))
        receiving.settimeout(3.0)
        for number in range(count):
            sending.sendto(number.to_bytes(PAYLOAD, "big"), receiving.getsockname())
        found: list[int] = []
        while len(found) < count:
            try:
                found.append(int.from_bytes(receiving.recv(2048), "big"))
            except TimeoutError:
                break
    return found


def fastest(streaming: Callable[[], Stream], asked: int) -> Stream:
    """Stream up to ten times, until the rate is as asked; return the fastest stream.

    A busy host can only make a stream slower.
    """
    found = [streaming()]
    while found[-1].rate < 0.95 * asked and len(found) < 10:
        found.append(streaming())
    return max(found, key=lambda one: one.rate)


def _wrong_checksums() -> int:
    """Return the number of UDP datagrams with a wrong checksum in this thread's network namespace."""
    with open("/proc/thread-self/net/snmp") as file:  # noqa: PTH123
        names, values = (line.split() for line in file if line.startswith("Udp:"))
    return int(dict(zip(names, values, strict=True))["InCsumErrors"])

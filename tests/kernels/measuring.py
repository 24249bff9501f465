"""Measurements of a link's rate, delay and loss, independent of the code that shapes it.

The kernel answers the echo requests, and the rate is that of the arrivals, so that neither depends on
how soon this process is scheduled.
"""

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

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
    """Stream up to five times, until the rate is as asked; return the fastest stream.

    A busy host can only make a stream slower.
    """
    found = [streaming()]
    while found[-1].rate < 0.95 * asked and len(found) < 5:
        found.append(streaming())
    return max(found, key=lambda one: one.rate)


def _wrong_checksums() -> int:
    """Return the number of UDP datagrams with a wrong checksum in this thread's network namespace."""
    with open("/proc/thread-self/net/snmp") as file:  # noqa: PTH123
        names, values = (line.split() for line in file if line.startswith("Udp:"))
    return int(dict(zip(names, values, strict=True))["InCsumErrors"])

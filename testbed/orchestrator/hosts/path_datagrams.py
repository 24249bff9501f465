"""Measure whether UDP passes the way between two hosts, in packets as long as a tunnel's full ones.

Links that cross are UDP, which a firewall may drop where it lets TCP through; and where the MTU has no
room for a full packet its two fragments must arrive. So each host in its turn sends the other datagrams
to the port of the tunnels, more slowly than TCP was: short ones, and then full ones, which alone do not
arrive where fragments are dropped. Each begins with a token that the hosts have agreed on over their
connection; others do not count. While a run's tunnels have the port, which the kernel then gives to no
process, it is any free one.

Of packets some of whose fragments are dropped the receiver's kernel keeps the others for 30 s, and soon
has no room: a few full ones are sent at first, and more only if some of them arrive in both directions.
"""

import contextlib
import errno
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from testbed.network.underlay import OUTER_MTU
from testbed.orchestrator.hosts.inquiries import (
    DatagramsExchanged,
    DatagramsExpected,
    DatagramsSent,
    ExchangeDatagrams,
    ask,
    awaited,
    send_inquiry,
)
from testbed.orchestrator.hosts.secured_connection import SecuredConnection

SHARE_OF_TCP = 0.8
"""The rate of the full packets, as a share of TCP's."""
_RATES = 1e5, 2e8
"""The least bit/s, and the most: beyond that this process, and not the way, might lose packets."""
SHORT_ONES = 10
_FEWEST = 10
"""The number of full ones that are sent at first."""
_SPACING = 0.005
"""Seconds between two short ones."""
_LENGTHS = 64, OUTER_MTU - 28
"""Bytes of short and full datagrams; IPv4 and UDP have 28 more."""
_TOKEN = 16
_HEAD = struct.Struct(f"!{_TOKEN}sI")
_LATEST = 0.002
"""Seconds by which a packet may be late and still be made up for, so that none come in large bursts."""
_GRACE = 0.3
"""Seconds that packets may need after all were sent."""
_PATIENCE = 15.0
"""Seconds after which the other host is taken to send no more; it sends for 5 at most."""
_MTU_DISCOVER, _FRAGMENTS = 10, 0
"""IP_MTU_DISCOVER and IP_PMTUDISC_DONT: packets may be fragmented on the way, as a tunnel's may."""
_FORCED_BUFFER = 33
"""SO_RCVBUFFORCE"""


@dataclass(frozen=True, slots=True)
class DatagramsPassed:
    """The datagrams that were sent in one direction, and how many of them have arrived.

    Attributes:
        port: the UDP port that they were sent to.
        sent, arrived: numbers of the full ones.
        short_arrived: the number of the ``SHORT_ONES`` short ones that have arrived.
        rate: bit/s of the IPv4 packets that have arrived.
    """

    port: int
    sent: int
    arrived: int
    short_arrived: int
    rate: float

    @classmethod
    def of(
        cls, port: int, sent: DatagramsSent | DatagramsExchanged, arrived: tuple[int, int]
    ) -> "DatagramsPassed":
        """Return what both sides have counted.

        Args:
            arrived: short and full ones.
        """
        rate = 8 * OUTER_MTU * arrived[1] / sent.seconds
        return cls(port, sent.sent, arrived[1], arrived[0], rate)

    @property
    def lost(self) -> float:
        """The share of the full ones that has not arrived."""
        return 1 - self.arrived / max(1, self.sent)


def exchanged(
    connection: SecuredConnection, port: int, there: float, back: float, seconds: float
) -> list[DatagramsPassed]:
    """Send datagrams to the host at the other end of a connection, and have it send some.

    Args:
        port: of the tunnels.
        there, back: bit/s of TCP in both directions.
        seconds: for which each side sends.

    Returns:
        What has arrived there, and then here.

    Raises:
        ConnectionLostError: the connection has ended.
        OSError: no datagrams can be received on this host.
    """
    few = _exchanged(connection, port, there, back, 0.0)
    return (
        _exchanged(connection, port, there, back, seconds) if all(x.arrived for x in few) else few
    )


def _exchanged(
    connection: SecuredConnection, port: int, there: float, back: float, seconds: float
) -> list[DatagramsPassed]:
    token = secrets.token_bytes(_TOKEN)
    with _receiver(connection, port) as receiver:
        here = receiver.getsockname()[1]
        asked = ExchangeDatagrams(port, here, token.hex(), back, seconds)
        to = ask(connection, asked, DatagramsExpected).port
        sent = _sent(connection, to, token, there, seconds)
        send_inquiry(connection, sent)
        arrived = _arrived(receiver, connection, token)
        other = awaited(connection, DatagramsExchanged)
    return [
        DatagramsPassed.of(to, sent, (other.short_arrived, other.arrived)),
        DatagramsPassed.of(here, other, arrived),
    ]


def exchange(connection: SecuredConnection, asked: ExchangeDatagrams, seconds: float) -> None:
    """Do the other side's part of ``exchanged``; send for some seconds, which may be fewer than asked.

    Raises:
        ConnectionLostError: the connection has ended.
        OSError: no datagrams can be received on this host.
    """
    token = bytes.fromhex(asked.token)
    with _receiver(connection, asked.port) as receiver:
        send_inquiry(connection, DatagramsExpected(receiver.getsockname()[1]))
        short, full = _arrived(receiver, connection, token)
        awaited(connection, DatagramsSent)
    sent = _sent(connection, asked.back_to, token, asked.back, seconds)
    send_inquiry(connection, DatagramsExchanged(sent.sent, sent.seconds, full, short))


@contextlib.contextmanager
def _receiver(connection: SecuredConnection, port: int) -> Iterator[socket.socket]:
    """Yield a socket at a port of this side's address, or at a free one where the kernel has that."""
    address = connection.socket.getsockname()[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        try:
            receiver.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            receiver.bind((address, 0))
        receiver.setblocking(False)
        with contextlib.suppress(PermissionError):  # who is no administrator has the usual buffer
            receiver.setsockopt(socket.SOL_SOCKET, _FORCED_BUFFER, 4 << 20)
        yield receiver


def _sent(
    connection: SecuredConnection, port: int, token: bytes, tcp: float, seconds: float
) -> DatagramsSent:
    """Send datagrams to the other side; return how many full ones there were, and how long it took."""
    short, full = _LENGTHS
    least, most = _RATES
    gap = 8 * OUTER_MTU / max(least, min(most, SHARE_OF_TCP * tcp))
    to = connection.socket.getpeername()[0], port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((connection.socket.getsockname()[0], 0))
        sender.setsockopt(socket.IPPROTO_IP, _MTU_DISCOVER, _FRAGMENTS)

        def send(number: int, length: int) -> None:
            with contextlib.suppress(OSError):  # a filter of this host's refuses it: it is lost
                sender.sendto(_HEAD.pack(token, number).ljust(length, b"\0"), to)

        for number in range(SHORT_ONES):
            send(number, short)
            time.sleep(_SPACING)
        began = due = time.monotonic()
        count = 0
        while (now := time.monotonic()) < began + seconds or count < _FEWEST:
            if now < due:
                time.sleep(due - now)
                continue
            send(count, full)
            count, due = count + 1, max(due, now - _LATEST) + gap
        return DatagramsSent(count, time.monotonic() - began)


def _arrived(
    receiver: socket.socket, connection: SecuredConnection, token: bytes
) -> tuple[int, int]:
    """Receive until the other side says that it has sent all; return the numbers of short and full."""
    found: Mapping[int, set[bytes]] = {length: set() for length in _LENGTHS}
    deadline = time.monotonic() + _PATIENCE
    with selectors.DefaultSelector() as selector:
        selector.register(receiver, selectors.EVENT_READ)
        selector.register(connection.socket, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fileobj is receiver:
                    _take(receiver, token, found)
                else:
                    selector.unregister(connection.socket)
                    deadline = time.monotonic() + _GRACE
    short, full = (len(one) for one in found.values())
    return short, full


def _take(receiver: socket.socket, token: bytes, found: Mapping[int, set[bytes]]) -> None:
    """Take in what has come; strangers may send as much as they like."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(1000):
            data = receiver.recv(OUTER_MTU)
            if len(data) in found and data.startswith(token):
                found[len(data)].add(data[: _HEAD.size])

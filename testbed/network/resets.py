"""Reset TCP connections of a network namespace whose other end is gone, by NETLINK_SOCK_DIAG.

The other end sends no packet any more that would end them: without a reset a process that waits for it
waits for ever, and one that sends to it for a quarter of an hour.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Collection, Iterator

from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR
from pyroute2.netlink.diag import NETLINK_SOCK_DIAG, SOCK_DESTROY, SOCK_DIAG_BY_FAMILY

from traffic.counters import messages

_REQUEST = struct.Struct("=IHHII BBxxI48s")
_IDENTITY = slice(4, 52)
"""The place of a connection's ports, addresses and cookie in the kernel's description of it."""
_OTHER_END = slice(24, 28)
_CONNECTED = 0xFFF & ~(1 << 6 | 1 << 10)
"""All states of TCP but TIME_WAIT and LISTEN."""
_ERROR = struct.Struct("=i")


def reset_connections(addresses: Collection[str]) -> None:
    """Reset the connections of the current network namespace to IPv4 addresses.

    Raises:
        OSError: the kernel cannot (CONFIG_INET_DIAG_DESTROY), or refuses.
    """
    wanted = {socket.inet_aton(address) for address in addresses}
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    with contextlib.closing(socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG)) as netlink:
        netlink.bind((0, 0))
        for identity in [own for other, own in _connections(netlink) if other in wanted]:
            netlink.send(_request(SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, identity))
            ((_, body),) = messages(netlink.recv(1 << 16))
            (number,) = _ERROR.unpack_from(body)
            if number and -number != errno.ENOENT:  # else it has just ended
                raise OSError(-number, os.strerror(-number))


def _connections(netlink: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Yield the address of the other end of each connection, and what the kernel knows it by."""
    netlink.send(_request(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, bytes(48)))
    while True:
        for kind, body in messages(netlink.recv(1 << 16)):
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                (number,) = _ERROR.unpack_from(body)
                raise OSError(-number, os.strerror(-number))
            yield body[_OTHER_END], body[_IDENTITY]


def _request(kind: int, flags: int, identity: bytes) -> bytes:
    wanted = (socket.AF_INET, socket.IPPROTO_TCP, _CONNECTED, identity)
    return _REQUEST.pack(_REQUEST.size, kind, flags, 1, 0, *wanted)

"""The ports of a device's network namespace at which its processes can be reached."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

Protocol: TypeAlias = Literal["tcp", "udp"]
_WAITING = {"tcp": "0A", "udp": "07"}
"""The states of a socket that listens, or that receives from any sender."""
_LOOPBACK = "7F"
"""The last byte of an IPv4 address of the loopback, as /proc has it: the first byte of the address."""
_LOOPBACK_6, _MAPPED = "00000000000000000000000001000000", "0000000000000000FFFF0000"


class Listener(NamedTuple):
    """A socket that waits for others.

    Attributes:
        only_here: True if it can be reached over the loopback only.
        inode: of the socket.
    """

    protocol: Protocol
    port: int
    only_here: bool
    inode: int


def listeners() -> Iterator[Listener]:
    """Yield the sockets of this process's network namespace that wait for others."""
    for protocol in ("tcp", "udp"):
        for family in ("", "6"):
            path = Path(f"/proc/net/{protocol}{family}")
            try:
                lines = path.read_text("utf-8", "replace").splitlines()[1:]
            except FileNotFoundError:  # a kernel without IPv6
                continue
            for line in lines:
                fields = line.split()
                address, _, port = fields[1].partition(":")
                if fields[3] == _WAITING[protocol]:
                    yield Listener(
                        protocol,
                        int(port, 16),
                        _is_loopback(address),
                        int(fields[9]),
                    )


def _is_loopback(address: str) -> bool:
    """Return True for an address of /proc/net/tcp or tcp6 that is the loopback's."""
    is_ipv4 = len(address) == 8 or address.startswith(_MAPPED)
    return address == _LOOPBACK_6 or (is_ipv4 and address.endswith(_LOOPBACK))


def sockets_of(process: int) -> Iterator[int]:
    """Yield the inodes of the sockets that a process has open."""
    with contextlib.suppress(OSError):  # it has just ended
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                target = str(Path(f"/proc/{process}/fd/{descriptor}").readlink())
                if target.startswith("socket:["):
                    yield int(target[8:-1])

"""Count the UDP datagrams that reach an address, without any process that reads them.

A sink is a socket whose filter lets nothing in. The kernel counts each datagram for it as it arrives,
throws it away, and answers nothing, as it would if no socket had the port. So a count is exact and of
this moment, whatever the host's load: no buffer is full, and no datagram waits to be read.
"""

import socket
import struct

from traffic import filters

_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_DROPS = 8
_WRAPS = 1 << 32
"""The kernel counts in 32 bits."""


class Sink:
    """The datagrams from one address and port to another, in the current network namespace."""

    def __init__(self, here: tuple[str, int], there: tuple[str, int]) -> None:
        """Start to count; other sinks may have the same address and port, for other senders.

        Args:
            here: the IPv4 address and port at which datagrams arrive.
            there: those that they come from.

        Raises:
            OSError: a program has the port.
        """
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._before = self._count = 0
        try:
            filters.attach(self._socket, filters.everything(0))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(here)
            self._socket.connect(there)
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        """The number of datagrams that have arrived; to be read once in 2³² of them.

        A datagram whose checksum is wrong counts as well: it has crossed the link.
        """
        raw = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        drops = int(_MEMINFO.unpack(raw)[_DROPS])
        self._count += (drops - self._before) % _WRAPS
        self._before = drops
        return self._count

    def close(self) -> None:
        """Stop counting."""
        self._socket.close()

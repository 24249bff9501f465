"""The kernel's own counts of the TCP connections of devices that run programs of users."""

from collections.abc import Iterator, Mapping, Sequence

from testbed.messages.agent_reports import SocketsCounted
from testbed.nodes.linux import inside_network
from traffic.sockets import Socket, SocketLedger

ROWS = 500
"""Sockets in one message."""


class SocketLedgers:
    """The ledgers of sockets, one in the network namespace of each device."""

    def __init__(self, devices: Sequence[str], namespaces: Mapping[str, int]) -> None:
        """Record the connections that end in the devices' networks from now on.

        Args:
            namespaces: descriptor of each device's network namespace, by name.

        Raises:
            TrafficError: the kernel does not show TCP sockets.
        """
        self._ledgers: dict[str, SocketLedger] = {}
        self._ended: dict[str, list[Socket]] = {}
        for device in devices:
            with inside_network(namespaces[device]):
                self._ledgers[device] = SocketLedger()
            self._ended[device] = []

    def take(self) -> None:
        """Take in the connections that have ended; to be called often, as the kernel keeps few."""
        for device, ledger in self._ledgers.items():
            self._ended[device] += ledger.take()

    def read(self) -> Iterator[SocketsCounted]:
        """Yield all connections, in parts: those that live, and those that have ended.

        Raises:
            TrafficError: the kernel does not show TCP sockets.
        """
        for device, ledger in self._ledgers.items():
            found = ledger.living()
            self.take()
            found += self._ended[device]
            forgotten = [list(one) for one in ledger.forgotten]
            rows = [list(one) for one in found]
            for first in range(0, max(1, len(rows)), ROWS):
                part = rows[first : first + ROWS]
                yield SocketsCounted(device, part, ledger.lost, forgotten if first == 0 else [])

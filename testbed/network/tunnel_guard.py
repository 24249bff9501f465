"""A filter for the tunnels of one run: packets of its links come from its own hosts only.

A VXLAN interface takes a packet of its number from any address. So the host that has it drops, before
they reach it, packets of the run's numbers whose source is none of the run's other hosts. The filter is
a table of nftables that belongs to its socket: the kernel removes it when the process ends, however it
does. Each run has its own, and no other packet of the host is judged by it.

Whoever can send in the name of one of these hosts is not kept out: that is for the underlay to prevent.
"""

import os
import struct
from collections.abc import Iterator, Sequence

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.nftables.expressions import genex, ipv4addr, verdict
from pyroute2.nftables.main import NFTables

from testbed.errors import HostError
from testbed.network.underlay import MOST_NETWORKS, Underlay
from testbed.nodes.linux import inside_network

_IPV4 = 2
_OWNED = 2
"""Flag of a table that goes with its socket (Linux 5.12)."""
_DROP, _ACCEPT = 0, 1
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_PROTOCOL, _DESTINATION = (_NETWORK_HEADER, 9, 1), (_TRANSPORT_HEADER, 2, 2)
_NUMBER = (_TRANSPORT_HEADER, 12, 4)
"""Where a packet has its protocol, its port and, behind eight bytes of UDP, its VXLAN identifier."""
_NO_NETWORK_FILTER = "packets of the run's tunnels are taken from any address of the underlay"


class TunnelGuard:
    """The filter, until it is closed or the process ends."""

    def __init__(self, underlay: Underlay, links: int) -> None:
        """Drop packets of the first ``links`` identifiers from the first on that are of strangers.

        Raises:
            HostError: this kernel has no nftables, or none whose tables belong to a socket.
        """
        table = f"testbed-{underlay.first_network}"
        try:
            with inside_network(underlay.namespace):
                self._filter = add = NFTables(nfgen_family=_IPV4)
            add.table("add", kwarg={"name": table, "flags": _OWNED})
            add.chain(
                "add", table=table, name="tunnels", hook="input", type="filter", policy=_ACCEPT
            )
            for address in sorted({*underlay.elsewhere.values()}):
                known = ipv4addr(src=address), verdict(_ACCEPT)
                add.rule("add", table=table, chain="tunnels", expressions=known)
            for first, last in _ranges(underlay.first_network, links):
                stranger = [
                    _compared(_PROTOCOL, b"\x11"),
                    _compared(_DESTINATION, struct.pack(">H", underlay.port)),
                    _between(first, last),
                    verdict(_DROP),
                ]
                add.rule("add", table=table, chain="tunnels", expressions=stranger)
        except (NetlinkError, OSError) as error:
            why = os.strerror(error.code) if isinstance(error, NetlinkError) else error.strerror
            raise HostError(f"{_NO_NETWORK_FILTER}: nftables: {why}") from error

    def close(self) -> None:
        """Remove the filter."""
        self._filter.close()


def _ranges(first: int, links: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last identifiers of each range: after the highest comes 0."""
    last = first + links - 1
    yield first, min(last, MOST_NETWORKS - 1)
    if last >= MOST_NETWORKS:
        yield 0, last % MOST_NETWORKS


def _read(where: tuple[int, int, int]) -> dict[str, object]:
    base, offset, length = where
    read: dict[str, object] = genex(
        "payload", {"dreg": 1, "base": base, "offset": offset, "len": length}
    )
    return read


def _compared(where: tuple[int, int, int], value: bytes) -> Sequence[dict[str, object]]:
    equal = {"sreg": 1, "op": 0, "data": {"attrs": [("NFTA_DATA_VALUE", value)]}}
    return _read(where), genex("cmp", equal)


def _between(first: int, last: int) -> Sequence[dict[str, object]]:
    ends = {"from_data": first << 8, "to_data": last << 8 | 0xFF}
    values = {
        name: {"attrs": [("NFTA_DATA_VALUE", struct.pack(">I", end))]} for name, end in ends.items()
    }
    return _read(_NUMBER), genex("range", {"sreg": 1, "op": 0, **values})

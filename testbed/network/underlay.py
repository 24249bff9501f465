"""The network between the hosts of a run, over which links cross as VXLAN tunnels (RFC 7348).

A link whose ends are on two hosts is the same /31 with the same addresses: in place of a veth pair it
has a VXLAN interface at each end, which the kernel sends as UDP packets from host to host. An interface
knows its other end and no other address, and learns none. It is made in the namespace of a node, but
its packets come and go through the host's own namespace, where its socket is.

Packets within are as long as on one host, 1,500 bytes, so that the ledgers agree. Their outer packets
are 50 bytes longer; an underlay with less room than that has each in two fragments.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

PORT = 14_789
"""The UDP port of the tunnels: not 4789, which other programs of the hosts may have."""
AGENT_PORT = 14_790
"""The TCP port of the hosts' agents."""
MOST_NETWORKS = 1 << 24
"""The number of VXLAN network identifiers."""
INNER_MTU = 1_500
TUNNEL_BYTES = 50
"""By how many bytes the outer packet is longer: Ethernet, VXLAN, UDP and IPv4."""
OUTER_MTU = INNER_MTU + TUNNEL_BYTES
"""Bytes of the outer packet of a full one."""
_IP_MTU = 14
"""The socket option that has the longest packet that the kernel sends to the other end (ip(7))."""


def own_addresses() -> list[str]:
    """Return this host's IPv4 addresses."""
    found = psutil.net_if_addrs().values()
    return [one.address for own in found for one in own if one.family == socket.AF_INET]


def longest_packet(source: str, address: str) -> int:
    """Return the bytes of the longest packet that the kernel sends to an address; send none.

    Raises:
        OSError: ``source`` is no address of this host, or there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.bind((source, 0))
        way.connect((address, PORT))
        return way.getsockopt(socket.IPPROTO_IP, _IP_MTU)


@dataclass(frozen=True, slots=True)
class Underlay:
    """The other hosts of a run, as one host reaches them.

    Attributes:
        namespace: descriptor of the host's own network namespace.
        address: the host's IPv4 address in the underlay.
        elsewhere: for each node that is on another host, routers included, that host's address.
        first_network: the VXLAN network identifier of link 0; link i has the i-th after it. Two runs on
            the same hosts must have none in common.
        port: the UDP port of all hosts.
    """

    namespace: int
    address: str
    elsewhere: Mapping[str, str]
    first_network: int
    port: int = PORT

    def network_of(self, link: int) -> int:
        """Return the VXLAN network identifier of a link, by its index."""
        return (self.first_network + link) % MOST_NETWORKS

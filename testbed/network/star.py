"""Build the star from inside the core's network namespace.

One netlink socket in the core makes every veth pair with the far end already in the device's
namespace; one more per device, opened inside it, gives the far end its address and route. The requests
are packed by ``requests``: with a thousand devices they take most of the time of building. Nothing is
made in the host's own namespace: when the core's namespace is removed, every link is removed with it.

Neighbours are fixed entries and IPv6 is off, so that no ARP or router solicitation of the kernel's
own is counted as traffic of the devices.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence

from pyroute2 import IPRoute

from testbed.network.addresses import PREFIX_LENGTH, Link
from testbed.network.netlink import Requests
from testbed.network.shaping import count_ingress, packed_egress
from testbed.nodes.linux import inside_network, set_sysctl

DEVICE_INTERFACE = "eth0"
DEVICE_INDEX = 2
"""The kernel index of a device's only interface (1 is lo); link i's interface in the core has this
index + i. Indices are chosen here: looking each one up by name would list all the others, and building
the star would take time quadratic in its size."""

LINKS_PER_CHECK = 50
"""Links built between two calls of ``abandoned``."""


def prepare_core() -> None:
    """Make the current network namespace route between links."""
    _set_up_stack()
    set_sysctl("net.ipv4.ip_forward", "1")
    with IPRoute() as core:
        core.link("set", index=1, state="up")  # index 1 is always lo


def build(
    links: Sequence[Link],
    namespaces: Mapping[str, int],
    counted: Sequence[str],
    uncounted: Sequence[str],
    abandoned: Callable[[int], bool],
) -> None:
    """Connect every device to the core, which is the current network namespace.

    Args:
        links: the links to make.
        namespaces: descriptor of each device's network namespace, by device name.
        counted: devices whose ingress is counted, at the core's end of their links.
        uncounted: devices whose traffic is counted separately there.
        abandoned: called now and then with the number of links so far; True stops the building.
    """
    apart = [link.device_address for link in links if link.device in uncounted]
    with contextlib.closing(Requests()) as core:
        for number, link in enumerate(links):
            if number % LINKS_PER_CHECK == 0 and abandoned(number):
                return
            _attach(core, link, namespaces[link.device], shaped=link.device not in counted)
    with IPRoute() as netlink:
        for link in links:
            if link.device in counted:
                near = DEVICE_INDEX + link.index
                count_ingress(netlink, near, apart, link.downlink.rate)


def _attach(core: Requests, link: Link, namespace: int, *, shaped: bool) -> None:
    """Make a device's link, with its uplink as planned; its downlink, too, if ``shaped``."""
    near, far = DEVICE_INDEX + link.index, DEVICE_INDEX
    with inside_network(namespace):
        _set_up_stack()
        device = Requests()
    peer = far, DEVICE_INTERFACE, link.device_mac
    core.add_veth(near, link.core_interface, link.core_mac, peer, namespace)
    core.add_address(near, link.core_address, PREFIX_LENGTH)
    core.add_neighbour(near, link.device_address, link.device_mac)
    if shaped:
        core.shape(near, packed_egress(link.downlink))
    core.carry_out()
    with contextlib.closing(device):
        device.set_up(far)
        device.add_address(far, link.device_address, PREFIX_LENGTH)
        device.add_neighbour(far, link.core_address, link.core_mac)
        device.add_default_route(link.core_address)
        device.shape(far, packed_egress(link.uplink))
        device.carry_out()


def add_neighbour(netlink: IPRoute, interface: int, address: str, mac: str) -> None:
    """Add a permanent neighbour entry, so that no ARP request is sent."""
    netlink.neigh("add", ifindex=interface, dst=address, lladdr=mac, state="permanent")


def _set_up_stack() -> None:
    """Set the current network namespace's own TCP/IP settings, before it has an interface.

    IPv6 is switched off: it would send solicitations and group reports of its own. Socket buffers hold
    a whole parameter vector, so that a message is one system call at each end and its sender is not
    woken once per window. A connection that was idle keeps its congestion window: the emulated links
    carry no other traffic for which it would have to slow down, and 200 workers that take turns on two
    processors are idle most of the time.
    """
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6 sends nothing
        set_sysctl("net.ipv6.conf.all.disable_ipv6", "1")
        set_sysctl("net.ipv6.conf.default.disable_ipv6", "1")
    set_sysctl("net.ipv4.tcp_rmem", "4096 4194304 8388608")
    set_sysctl("net.ipv4.tcp_wmem", "4096 4194304 8388608")
    set_sysctl("net.ipv4.tcp_slow_start_after_idle", "0")

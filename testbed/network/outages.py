"""Links that fail, and devices that are cut off from the server, in a star that is already built.

Everything happens in the core's network namespace, so that a device notices no more than a real one
would. A link that is down looks as if the far end were unplugged: the device's interface has no
carrier, and the device's addresses and routes stay. In the core the kernel drops the route and the
neighbour together with the interface. Until both are back a black hole replaces the route, so that
nothing answers for the device: an ICMP message from the core would be traffic on the server's link.

A cut leaves links up: rules of the core's routing drop the packets between a device and the server, in
both directions and without an ICMP error.

TCP retransmits what it had sent, at intervals that double while there is no answer: after an outage a
connection may stay idle for as long again as the outage lasted.
"""

from pyroute2 import IPRoute

from testbed.network.addresses import PREFIX_LENGTH, Link
from testbed.network.star import DEVICE_INDEX, add_neighbour

_LOWEST_PREFERENCE = 1000
"""Metric of a black hole, which is used only while no interface has a route."""
_BEFORE_MAIN_TABLE = 100
"""Priority of a cut's rules: before that of the main routing table."""


def set_link(link: Link, *, up: bool) -> None:
    """Take a device's link down, which must be up, or up again; the current namespace is the core."""
    interface = DEVICE_INDEX + link.index
    prefix = f"{link.core_address}/{PREFIX_LENGTH}"
    with IPRoute() as core:
        if not up:
            core.route("add", dst=prefix, type="blackhole", priority=_LOWEST_PREFERENCE)
            core.link("set", index=interface, state="down")
            return
        # Before the link is up: otherwise a packet on its way would make the kernel send ARP requests.
        add_neighbour(core, interface, link.device_address, link.device_mac)
        core.link("set", index=interface, state="up")
        core.route("del", dst=prefix, type="blackhole", priority=_LOWEST_PREFERENCE)


def set_cut(device: str, server: str, *, cut: bool) -> None:
    """Begin or stop dropping all packets between two addresses; the current namespace is the core."""
    with IPRoute() as core:
        for source, destination in ((device, server), (server, device)):
            core.rule(
                "add" if cut else "del",
                src=source,
                src_len=32,
                dst=destination,
                dst_len=32,
                action="FR_ACT_BLACKHOLE",
                priority=_BEFORE_MAIN_TABLE,
            )

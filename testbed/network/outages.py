"""Links that fail, and whole sets of devices cut off, in a star that stands already.

Everything happens in the core's network namespace, so that a device notices no more than a real one
would. A link that is down is one whose far side has lost its plug: the device's interface has no
carrier, and its own addresses and routes stay. In the core the kernel forgets the route and the
neighbour with the interface; until both are back a black hole stands in their place, so that nothing
answers for the device: an ICMP message of the core's would be traffic of the server's link.

A cut leaves links up: packets between a device and the server are dropped by rules of the core's
routing, in both directions, without a word to anybody.

What TCP had sent is sent again when it is due, and its intervals double while nobody answers: after an
outage a connection may stand still for as long again as the outage lasted.
"""

from pyroute2 import IPRoute

from testbed.network.addresses import PREFIX_LENGTH, Link
from testbed.network.star import DEVICE_INDEX, add_neighbour

_BEHIND = 1000
"""Metric of a black hole: it counts only while there is no route of an interface."""
_BEFORE = 100
"""Priority of a cut's rules: before all tables."""


def set_link(link: Link, *, up: bool) -> None:
    """Take a device's link down, which must be up, or up again, from inside the core."""
    interface = DEVICE_INDEX + link.index
    prefix = f"{link.core_address}/{PREFIX_LENGTH}"
    with IPRoute() as core:
        if not up:
            core.route("add", dst=prefix, type="blackhole", priority=_BEHIND)
            core.link("set", index=interface, state="down")
            return
        # Before the link is up: a packet that is on its way would have the kernel ask for it.
        add_neighbour(core, interface, link.device_address, link.device_mac)
        core.link("set", index=interface, state="up")
        core.route("del", dst=prefix, type="blackhole", priority=_BEHIND)


def set_cut(device: str, server: str, *, cut: bool) -> None:
    """Drop, or drop no longer, everything between two addresses, from inside the core."""
    with IPRoute() as core:
        for source, destination in ((device, server), (server, device)):
            core.rule(
                "add" if cut else "del",
                src=source,
                src_len=32,
                dst=destination,
                dst_len=32,
                action="FR_ACT_BLACKHOLE",
                priority=_BEFORE,
            )

"""Links that fail, and devices that are cut off from the server, in a network that is already built.

Everything happens in the namespace of the device's router, so that a device notices no more than a real
one would. A link that is down looks as if the far end were unplugged: the device's interface has no
carrier, and the device's addresses and routes stay. In the router the kernel drops the routes and the
neighbour together with the interface. Until they are back a black hole replaces the route, so that
nothing answers for the device: an ICMP message from the router would be traffic on the server's link.
Where the device is on another host, the carrier is taken away there.

A cut leaves links up: rules of the router's routing drop the packets between a device and the server,
in both directions and without an ICMP error. Where a trace's rate is 0, a rule drops what passes in one
direction; packets that the router has queued for the device already still leave.

TCP retransmits what it had sent, at intervals that double while there is no answer: after an outage a
connection may stay idle for as long again as the outage lasted.
"""

import contextlib
from collections.abc import Sequence

from pyroute2 import IPRoute

from testbed.network.building import DEVICE_INDEX
from testbed.network.links import PREFIX_LENGTH, Link
from testbed.network.netlink import Requests

_LOWEST_PREFERENCE = 1000
"""Metric of a black hole, which is used only while no interface has a route."""
_BEFORE_MAIN_TABLE = 100
"""Priority of a cut's rules: before that of the main routing table."""


def set_link(link: Link, *, up: bool, mtu: int | None = None, beyond: Sequence[str] = ()) -> None:
    """Take a device's link down, which must be up, or up again; to be called inside its router.

    Args:
        mtu: of the route to the device, if the link crosses hosts (``Requests.add_neighbours_route``).
        beyond: addresses of the devices to which its node is a router, if it is a machine.
    """
    interface = DEVICE_INDEX + link.index
    behind = [f"{link.router_address}/{PREFIX_LENGTH}", *(f"{address}/32" for address in beyond)]
    with IPRoute() as router:
        if not up:
            for prefix in behind:
                router.route("add", dst=prefix, type="blackhole", priority=_LOWEST_PREFERENCE)
            router.link("set", index=interface, state="down")
            return
        with contextlib.closing(Requests()) as requests:
            # First: otherwise a packet on its way would make the kernel send ARP requests.
            requests.add_neighbour(interface, link.address, link.mac)
            requests.set_up(interface)
            if mtu is not None:
                requests.add_neighbours_route(link.address, interface, mtu)
            for address in beyond:
                requests.add_route(link.address, address)
            requests.carry_out()
        for prefix in behind:
            router.route("del", dst=prefix, type="blackhole", priority=_LOWEST_PREFERENCE)


def set_carrier(*, there: bool) -> None:
    """Take away the carrier of a device whose router is on another host, or give it back.

    To be called inside the device. On one host the kernel does it when the router's end is down.
    """
    with IPRoute() as device:
        device.link("set", index=DEVICE_INDEX, proto_down=int(not there))


def drop(*, add: bool, source: str | None = None, destination: str | None = None) -> None:
    """Start or stop dropping all packets from an address, or to one; to be called inside a router."""
    ends = {end: one for end, one in (("src", source), ("dst", destination)) if one is not None}
    with IPRoute() as router:
        router.rule(
            "add" if add else "del",
            **ends,
            **{f"{end}_len": 32 for end in ends},
            action="FR_ACT_BLACKHOLE",
            priority=_BEFORE_MAIN_TABLE,
        )

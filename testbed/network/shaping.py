"""Rate, delay and loss by the kernel's queueing disciplines, and the classes that count bytes.

A rate is an HTB class: it charges every packet for its bytes on a link of MTU 1,500, headers of each
frame included, although segmentation offload hands it up to 64 KiB at once. It may go into debt by one
such packet, so that the long-term rate is exact. Delay, loss and damage are a netem below it.

Traffic to the parameter server (or to a peer) is counted by the same kind of class on the core's end of
its link: one class for the workers, with the downlink's rate if it has one, and one without a limit
for the devices that only observe.

``building`` builds links with the requests of ``packed_egress``; ``Egress`` changes a link later.
"""

import contextlib
import functools
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from pyroute2 import IPBatch, IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTM_NEWQDISC
from pyroute2.netlink.rtnl.tcmsg import sched_netem, tcmsg

from testbed.network.links import Shape

ROOT = 0x0001_0000
"""Handle 1:, the HTB at the root of an interface's egress."""
COUNTED = 0x0001_0010
"""Class 1:10, for all traffic that no filter sends elsewhere."""
UNCOUNTED = 0x0001_0020
"""Class 1:20, for the traffic of devices that only observe."""
_NETEM = 0x0010_0000
"""Handle 10:, the network emulator below a class."""
_CERTAIN = 2**32 - 1
"""A probability of 1 in netem's units."""
_ETHERTYPE_IPV4 = 0x0800
UNLIMITED = 125_000_000_000
"""Bytes per second, 1 tbit/s: HTB has no "unlimited"."""
_FRAME = 1514
SOURCE, DESTINATION = 12, 16
"""Offsets of the addresses in an IPv4 header."""
_How: TypeAlias = Literal["add", "change"]


def shape_egress(netlink: IPRoute, interface: int, shape: Shape) -> None:
    """Shape an interface's egress; nothing is installed if ``shape`` asks for nothing."""
    if not shape.shapes:
        return
    add_root(netlink, interface)
    set_class(netlink, "add", interface, COUNTED, shape.rate)
    if shape.needs_netem:
        set_netem(netlink, "add", interface, shape)


@functools.cache
def packed_egress(shape: Shape) -> bytes:
    """Return the requests of ``shape_egress`` for any interface, for ``requests.Requests.shape``."""
    if not shape.shapes:
        return b""
    with IPBatch() as packed:
        add_root(packed, 0)
        set_class(packed, "add", 0, COUNTED, shape.rate)
        requests = bytes(packed.batch)
    if shape.needs_netem:
        message = _netem("add", 0, shape)
        message.encode()
        requests += bytes(message.data)
    return requests


class Egress:
    """The egress of an interface whose shape changes while it sends.

    A change drops no packet. An interface that was shaped once keeps its discipline, so that packets
    that wait in it are sent; without a rate the discipline lets everything pass.
    """

    def __init__(self, interface: int, shape: Shape) -> None:
        """Take over an interface that has this shape: the star was built with it."""
        self._interface = interface
        self._shape = shape
        self._disciplined, self._emulated = shape.shapes, shape.needs_netem

    @property
    def shape(self) -> Shape:
        """The present shape."""
        return self._shape

    def change(self, netlink: IPRoute, shape: Shape) -> None:
        """Change the shape of the egress from now on."""
        before, self._shape = self._shape, shape
        if before == shape:
            return
        if not self._disciplined:
            shape_egress(netlink, self._interface, shape)
        else:
            if before.rate != shape.rate:
                set_class(netlink, "change", self._interface, COUNTED, shape.rate)
            if self._emulated or shape.needs_netem:
                how: _How = "change" if self._emulated else "add"
                set_netem(netlink, how, self._interface, shape)
        self._disciplined = self._disciplined or shape.shapes
        self._emulated = self._emulated or shape.needs_netem


def count_ingress(
    netlink: IPRoute, interface: int, uncounted: Iterable[str], rate: int | None = None
) -> None:
    """Count what a router's interface sends to a device, except from some IPv4 source addresses.

    Args:
        uncounted: these addresses, whose traffic goes to ``UNCOUNTED``.
        rate: limit for the counted traffic in bit/s; None for no limit.
    """
    _count(netlink, interface, uncounted, SOURCE, rate)


def count_egress(netlink: IPRoute, interface: int, uncounted: Iterable[str]) -> None:
    """Count what a device's interface sends, except to some IPv4 destination addresses."""
    _count(netlink, interface, uncounted, DESTINATION, None)


def _count(
    netlink: IPRoute, interface: int, uncounted: Iterable[str], place: int, rate: int | None
) -> None:
    add_root(netlink, interface)
    set_class(netlink, "add", interface, COUNTED, rate)
    set_class(netlink, "add", interface, UNCOUNTED, None)
    for address in uncounted:
        add_filter(netlink, interface, UNCOUNTED, {place: address})


def add_filter(netlink: IPRoute, interface: int, target: int, addresses: Mapping[int, str]) -> None:
    """Send the packets with some IPv4 addresses to a class.

    Args:
        target: the class's handle.
        addresses: by ``SOURCE`` or ``DESTINATION``; with both, both have to match.
    """
    netlink.tc(
        "add-filter",
        "u32",
        interface,
        parent=ROOT,
        prio=1,
        protocol=_ETHERTYPE_IPV4,
        target=target,
        keys=[
            f"{int(ipaddress.IPv4Address(address)):#010x}/0xffffffff+{place}"
            for place, address in addresses.items()
        ],
    )


def bucket(rate: int | None) -> int:
    """Return the bytes that may pass at once after a pause: 5 ms of the rate, two frames at least."""
    return max(2 * _FRAME, (rate // 8 if rate else UNLIMITED) // 200)


def missing_disciplines() -> dict[str, str]:
    """Return which of ``htb``, ``u32`` and ``netem`` the kernel lacks, with its error messages.

    They are tried on the current network namespace's loopback interface and removed again.
    """
    missing = {}
    with IPRoute() as netlink:
        for name, discipline, attempt in (
            ("htb", "htb", lambda: add_root(netlink, 1)),
            ("u32", "htb", lambda: count_ingress(netlink, 1, ["127.0.0.1"])),
            ("netem", "netem", lambda: netlink.tc("add", "netem", 1, ROOT, delay=1000)),
        ):
            try:
                attempt()
            except NetlinkError as error:
                missing[name] = str(error.args[-1])
            with contextlib.suppress(NetlinkError):
                netlink.tc("del", discipline, 1, ROOT)
    return missing


def add_root(netlink: IPRoute, interface: int, default: int = COUNTED) -> None:
    """Add an HTB to an interface; ``default`` is the class of what no filter sends elsewhere."""
    netlink.tc("add", "htb", interface, ROOT, default=default & 0xFFFF)


def set_class(netlink: IPRoute, how: _How, interface: int, handle: int, rate: int | None) -> None:
    """Add or change an HTB class; ``rate`` in bit/s, None for no limit."""
    most = rate // 8 if rate else UNLIMITED
    most_at_once = bucket(rate)
    netlink.tc(
        f"{how}-class",
        "htb",
        interface,
        handle,
        parent=ROOT,
        rate=most,
        ceil=most,
        burst=most_at_once,
        cburst=most_at_once,
        quantum=200_000,  # matters only between classes that share a parent's rate: none do
    )


def set_netem(
    netlink: IPRoute,
    how: _How,
    interface: int,
    shape: Shape,
    below: tuple[int, int] = (COUNTED, _NETEM),
) -> None:
    """Add or change a network emulator; ``below`` are its class and its own handle."""
    netlink.nlm_request_batch([_netem(how, interface, shape, below)])


def _netem(
    how: _How, interface: int, shape: Shape, below: tuple[int, int] = (COUNTED, _NETEM)
) -> tcmsg:
    """Return the request to add or change the network emulator of a class.

    The message is made by hand: pyroute2 leaves out a share of 0, and a change keeps every setting
    that is not in the message, so that damage would never end.
    """
    options = sched_netem.get_parameters(
        {"delay": round(shape.delay * 1e6), "loss": shape.loss * 100, "limit": 100_000}
    )
    share = {"prob_corrupt": round(shape.corrupt * _CERTAIN), "corr_corrupt": 0}
    options["attrs"].append(["TCA_NETEM_CORRUPT", share])
    message = tcmsg()
    message["index"], (message["parent"], message["handle"]) = interface, below
    message["attrs"] = [["TCA_KIND", "netem"], ["TCA_OPTIONS", options]]
    flags = NLM_F_REQUEST | NLM_F_ACK
    flags |= NLM_F_CREATE | NLM_F_EXCL if how == "add" else NLM_F_REPLACE
    message["header"] = {"type": RTM_NEWQDISC, "flags": flags}
    return message

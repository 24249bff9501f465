"""Rate, delay and loss by the kernel's queueing disciplines, and the classes that count bytes.

A rate is an HTB class: it charges every packet for its bytes on a link of MTU 1,500, headers of each
frame included, although segmentation offload hands it up to 64 KiB at once, a super-frame. It may go
into debt by one of them, so that the long-term rate is exact. Delay, jitter, loss and damage are a
netem below it. The length of a queue is that of a bfifo, which counts bytes. It is below netem, if
there is one: netem holds what is delayed, bfifo what waits for the rate.

Trap: netem and bfifo take a super-frame for one packet, so that a loss would be of up to 45 frames in a
row. A limit of the sender's device would not do: super-frames of other senders are forwarded whole, and
the kernel splits them after the queue. So a TBF (token bucket filter) stands between the class and what
is below it: it splits each packet that is larger than its burst, and hands on the frames. Its rate is
such that it delays nothing. It counts as dropped every frame that netem or the queue has dropped, where
the class above it counts once what was handed over at once.

Every direction of a link has such a class, with or without a rate, since it counts what passes as
frames of an MTU of 1,500. On the way of devices that only observe there are two: one for all others,
with the rate if there is one, and one without a limit for theirs.

``building`` builds links with the requests of ``packed_egress``; ``Egress`` changes a link later.
"""

import contextlib
import functools
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from pyroute2 import IPBatch, IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTM_NEWQDISC, TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import sched_netem, sched_template, tcmsg

from testbed.network.address_filters import ROOT, SOURCE, packed_filters
from testbed.network.links import Shape
from testbed.network.netlink import Requests

COUNTED = 0x0001_0010
"""Class 1:10, for all traffic that no filter sends elsewhere."""
UNCOUNTED = 0x0001_0020
"""Class 1:20, for the traffic of devices that only observe."""
FROM_ABOVE = 0x0001_0030
"""The class of what an aggregator is sent by its server: counted, but no ingress from devices."""
SPLITTER = 0x0030_0000
"""Handle 30:, the TBF below a class."""
_NETEM = 0x0010_0000
"""Handle 10:, the network emulator below the TBF."""
_QUEUE = 0x0020_0000
"""Handle 20:, the queue below the network emulator."""
_HANDLES = SPLITTER, _NETEM, _QUEUE
Handles: TypeAlias = tuple[int, int, int]
"""The handles of the TBF, the network emulator and the queue below a class."""
_IN_ORDER = 2**32 - 1
"""Bytes per second, 34 Gbit/s. A netem with a rate keeps packets in order, whatever their jitter."""
_CERTAIN = 2**32 - 1
"""A probability of 1 in netem's units."""
UNLIMITED = 125_000_000_000
"""Bytes per second, 1 tbit/s: HTB has no "unlimited"."""
_FRAME = 1514
_SMALLEST_FRAME = 60
_SUPER_FRAME = 1 << 20
"""More bytes than any super-frame has, the headers of each of its frames included."""
_AT_ONCE = 10**15
"""Bytes per second: even a super-frame takes less than the nanosecond that a TBF can tell."""
_MOST = 2**32 - 1
_WAITING = 100_000
"""Packets that may wait for the rate in a netem without a queue of a length."""
How: TypeAlias = Literal["add", "change"]
_AS_IT_IS = Shape()


class _WithBytes(tcmsg):  # type: ignore[misc]  # pyroute2 has no types
    """A request whose options are packed already."""

    def get_plugin(self, plug: str, *_: object, **__: object) -> object:
        """Return what pyroute2 has for disciplines that it does not know."""
        return getattr(sched_template, plug)


@functools.cache
def packed_egress(shape: Shape) -> bytes:
    """Return the requests that shape an interface's egress and count it, for ``Requests.shape``."""
    with IPBatch() as packed:
        add_root(packed, 0)
        set_class(packed, "add", 0, COUNTED, shape.rate)
        requests = bytes(packed.batch)
    return requests + packed_leaves(shape)


def packed_leaves(shape: Shape, below: int = COUNTED, handles: Handles = _HANDLES) -> bytes:
    """Return the requests to add what holds the packets of a class, for ``Requests.shape``."""
    return _packed(_leaves(0, shape, below, handles))


@functools.lru_cache(maxsize=4096)
def _packed_rate(rate: int) -> bytes:
    """Return the request that changes the rate of a shaped interface, for ``Requests.shape``."""
    with IPBatch() as packed:
        set_class(packed, "change", 0, COUNTED, rate)
        return bytes(packed.batch)


@functools.lru_cache(maxsize=4096)
def _packed_netems(shape: Shape, places: tuple[tuple[int, Handles], ...]) -> bytes:
    """Return the requests that change the network emulators below some classes."""
    return _packed(_netem("change", 0, shape, (own[0] | 1, own[1])) for _, own in places)


def _packed(messages: Iterable[tcmsg]) -> bytes:
    requests = b""
    for message in messages:
        message.encode()
        requests += bytes(message.data)
    return requests


class Egress:
    """The egress of an interface whose shape changes while it sends.

    A change drops no packet, but for those that wait as the interface gets its first netem. The
    interface keeps its discipline, so that packets that wait in it are sent, and goes on counting;
    without a rate the discipline lets everything pass. The length of the queue does not change.
    """

    def __init__(self, interface: int, shape: Shape) -> None:
        """Take over an interface that has this shape: the star was built with it."""
        self._interface = interface
        self._shape = shape
        self._emulated = shape.needs_netem
        self._splits = shape.holds_packets

    @property
    def shape(self) -> Shape:
        """The present shape."""
        return self._shape

    def add_rate(self, requests: Requests, rate: int) -> None:
        """Add the change of the rate of an interface that has one to requests, which are quick."""
        if self._shape.rate not in (None, rate):
            self._shape = replace(self._shape, rate=rate)
            requests.shape(self._interface, self._packed_rate(rate))
            if self._emulated and self._shape.delay:
                requests.shape(self._interface, _packed_netems(self._shape, self._places))

    def _packed_rate(self, rate: int) -> bytes:
        """Return the request that changes the rate, for ``Requests.shape``."""
        return _packed_rate(rate)

    def _set_rate(self, netlink: IPRoute, rate: int | None) -> None:
        set_class(netlink, "change", self._interface, COUNTED, rate)

    @property
    def _places(self) -> tuple[tuple[int, Handles], ...]:
        """The classes that packets wait in, with the handles of what is below each."""
        return ((COUNTED, _HANDLES),)

    def change(self, netlink: IPRoute, shape: Shape) -> None:
        """Change the shape of the egress from now on."""
        before, self._shape = self._shape, shape
        if before == shape:
            return
        if before.rate != shape.rate:
            self._set_rate(netlink, shape.rate)
        messages: list[tcmsg] = []
        for below, handles in self._places:
            splitter, netem, _ = handles
            if self._emulated:
                if before.by_frame is not shape.by_frame:
                    messages.append(_splitter("change", self._interface, shape, (below, splitter)))
                messages.append(_netem("change", self._interface, shape, (splitter | 1, netem)))
            elif shape.needs_netem:
                leaves = _leaves(self._interface, shape, below, handles)
                messages += leaves[1:] if self._splits else leaves
        if messages:
            netlink.nlm_request_batch(messages)
        self._emulated = self._emulated or shape.needs_netem
        self._splits = self._splits or shape.needs_netem


def packed_counting(shape: Shape, filters: Mapping[tuple[int, str], int]) -> bytes:
    """Return the requests that shape an interface's egress and count it by addresses.

    Args:
        shape: of what is counted in ``COUNTED``.
        filters: handles of the classes that count an address's traffic apart from that, by ``SOURCE``
            or ``DESTINATION`` and the address; ``UNCOUNTED`` is there without any.

    Returns:
        The requests for any interface, for ``Requests.shape``.
    """
    with IPBatch() as packed:
        for handle in dict.fromkeys((UNCOUNTED, *filters.values())):
            set_class(packed, "add", 0, handle, None)
        classes = bytes(packed.batch)
    return packed_egress(shape) + classes + packed_filters({}, filters)


def bucket(rate: int | None) -> int:
    """Return the bytes that may pass at once after a pause: 5 ms of the rate, two frames at least."""
    return max(2 * _FRAME, (rate // 8 if rate else UNLIMITED) // 200)


def missing_disciplines() -> dict[str, str]:
    """Return which of ``htb``, ``u32``, ``tbf`` and ``netem`` the kernel lacks, with its errors.

    They are tried on the current network namespace's loopback interface and removed again.
    """
    at_root = (TC_H_ROOT, ROOT)
    attempts = {
        "htb": packed_egress(_AS_IT_IS),
        "u32": packed_counting(_AS_IT_IS, {(SOURCE, "127.0.0.1"): UNCOUNTED}),
        "tbf": _packed([_splitter("add", 1, _AS_IT_IS, at_root)]),
        "netem": _packed([_netem("add", 1, Shape(delay=0.001), at_root)]),
    }
    missing = {}
    with IPRoute() as netlink, contextlib.closing(Requests()) as requests:
        for name, attempt in attempts.items():
            requests.shape(1, attempt)
            try:
                requests.carry_out()
            except OSError as error:
                missing[name] = os.strerror(error.errno or 0)
            with contextlib.suppress(NetlinkError):
                netlink.tc("del", None, 1, ROOT, parent=TC_H_ROOT)
    return missing


def add_root(netlink: IPRoute, interface: int, default: int = COUNTED) -> None:
    """Add an HTB to an interface; ``default`` is the class of what no filter sends elsewhere."""
    netlink.tc("add", "htb", interface, ROOT, default=default & 0xFFFF)


def set_class(netlink: IPRoute, how: How, interface: int, handle: int, rate: int | None) -> None:
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


def _leaves(interface: int, shape: Shape, below: int, handles: Handles) -> list[tcmsg]:
    """Return the requests to add what holds the packets of a class; the TBF's is the first."""
    splitter, netem, queue = handles
    if not shape.holds_packets:
        return []
    messages = [_splitter("add", interface, shape, (below, splitter))]
    if shape.needs_netem:
        # A discipline's handle with a 1 is its only class.
        messages.append(_netem("add", interface, shape, (splitter | 1, netem)))
        if shape.queue is not None:
            options = struct.pack("=I", shape.queue)
            messages.append(_discipline("add", "bfifo", interface, (netem | 1, queue), options))
    return messages


def _splitter(how: How, interface: int, shape: Shape, place: tuple[int, int]) -> tcmsg:
    """Return the request to add or change the TBF of a class, which has a bfifo until it gets a netem.

    Its options are packed here: pyroute2 knows neither rates above 34 Gbit/s nor a burst in bytes.
    """
    ethernet = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, _MOST)
    limit = _MOST if shape.queue is None else shape.queue
    parameters = ethernet + bytes(len(ethernet)) + struct.pack("=III", limit, 0, 0)
    burst = struct.pack("=I", _FRAME if shape.by_frame else _SUPER_FRAME)
    attributes = (1, parameters), (4, struct.pack("=Q", _AT_ONCE)), (6, burst)
    options = b"".join(struct.pack("=HH", 4 + len(one), kind) + one for kind, one in attributes)
    return _discipline(how, "tbf", interface, place, options)


def _netem(how: How, interface: int, shape: Shape, below: tuple[int, int]) -> tcmsg:
    """Return the request to add or change the network emulator of a class.

    The message is made by hand: pyroute2 leaves out a share of 0, and a change keeps every setting
    that is not in the message, so that damage would never end.
    """
    options = sched_netem.get_parameters(
        {
            "delay": round(shape.delay * 1e6),
            "jitter": round(shape.jitter * 1e6),
            "loss": shape.loss * 100,
            "limit": _netem_limit(shape),
        }
    )
    share = {"prob_corrupt": round(shape.corrupt * _CERTAIN), "corr_corrupt": 0}
    options["attrs"].append(["TCA_NETEM_CORRUPT", share])
    if shape.jitter:
        rate = {"rate": _IN_ORDER, "packet_overhead": 0, "cell_size": 0, "cell_overhead": 0}
        options["attrs"].append(["TCA_NETEM_RATE", rate])
    return _discipline(how, "netem", interface, below, options)


def _netem_limit(shape: Shape) -> int:
    """Return how many packets a netem holds: none is dropped for want of room, however small it is.

    On the way there is what passes at the rate in the longest delay; what waits for the rate waits
    there as well, if it has no queue of its own.
    """
    most = shape.rate / 8 if shape.rate else UNLIMITED
    on_the_way = math.ceil(most * (shape.delay + shape.jitter) / _SMALLEST_FRAME)
    return min(_MOST, on_the_way + _WAITING)


def _discipline(
    how: How, kind: str, interface: int, below: tuple[int, int], options: object
) -> tcmsg:
    message = _WithBytes() if isinstance(options, bytes) else tcmsg()
    message["index"], (message["parent"], message["handle"]) = interface, below
    message["attrs"] = [["TCA_KIND", kind], ["TCA_OPTIONS", options]]
    flags = NLM_F_REQUEST | NLM_F_ACK
    flags |= NLM_F_CREATE | NLM_F_EXCL if how == "add" else NLM_F_REPLACE
    message["header"] = {"type": RTM_NEWQDISC, "flags": flags}
    return message

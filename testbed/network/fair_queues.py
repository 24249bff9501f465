"""Queues for a link that several connections share, which give each an equal share of its rate.

One HTB class for each pair of addresses stands below a class with the link's rate. Of the classes that
have something to send, the kernel serves one after the other, each with the same number of bytes
(deficit round robin), so that rates are max-min fair, as the virtual clock computes them
(``testbed.clock.flows``). In a single queue it is the sender whose packets come first that is served
first: `make links` measures both.

Segmentation offload hands a link up to 64 KiB at once, which is as much as many a message has. So
devices that send over slow shared links have smaller super-frames (``super_frame``).
"""

import functools
from collections.abc import Sequence

from pyroute2 import IPBatch, IPRoute

from testbed.network.address_filters import DESTINATION, SOURCE, packed_filters
from testbed.network.links import MOST_PAIRS, Shape
from testbed.network.shaping import (
    COUNTED,
    UNCOUNTED,
    UNLIMITED,
    Egress,
    Handles,
    How,
    add_root,
    packed_leaves,
    set_class,
)

_LEAST_SUPER_FRAME = 16_000
"""Bytes of a super-frame on its way to a slow shared link, at most.

With up to 64 KiB, flows of 212 kB took up to 46 % more or less time than with exactly fair shares; with
this, up to 12 %.
"""
LARGEST_SUPER_FRAME = 65_536
"""The kernel's own limit."""
_LONGEST = 1.28e-3
"""Seconds for which a super-frame above the least may occupy a link.

A host that emulates hundreds of devices wakes its processes no more exactly than that, so that a
smaller share of the time would not be seen; each super-frame costs the same, however small.
"""
_LONGEST_BURST = 274
"""Seconds for which a class may owe its burst: HTB keeps them in 32 bits of 64 ns."""
FIRST = 0x0001_1000
"""The class of what belongs to no pair; those of the pairs follow."""
_FIRST_SPLITTER, _FIRST_NETEM, _FIRST_QUEUE = 0x2000_0000, 0x1000_0000, 0x4000_0000
_NEXT = 0x0001_0000


def super_frame(rate: int | None) -> int:
    """Return the bytes of a super-frame on its way to a shared link, at most.

    Args:
        rate: of the link in bit/s, None for no limit.
    """
    if rate is None:
        return LARGEST_SUPER_FRAME
    return min(LARGEST_SUPER_FRAME, max(_LEAST_SUPER_FRAME, int(rate / 8 * _LONGEST)))


def most_pairs(rate: int | None) -> int:
    """Return the most pairs that can share a direction of a rate in bit/s (None: no limit).

    Each has at least a rate at which its burst is paid within ``_LONGEST_BURST``.
    """
    if rate is None:
        return MOST_PAIRS
    least = -(-super_frame(rate) // _LONGEST_BURST)
    return min(MOST_PAIRS, max(0, rate // 8 // least - 1))


def packed_fair_egress(
    shape: Shape, pairs: Sequence[tuple[str, str]], apart: Sequence[str] = ()
) -> bytes:
    """Return the requests that have pairs of addresses share an interface's rate fairly.

    What belongs to no pair has a share of its own. ``COUNTED`` counts what all pairs send.

    Args:
        shape: its rate is shared; each pair has a queue of its length. Delay, jitter and loss need the
            kernel's netem.
        pairs: source and destination of the connections, IPv4, at most ``MOST_PAIRS``.
        apart: addresses from which and to which everything passes without a limit, as ``UNCOUNTED``.

    Returns:
        The requests for any interface, for ``Requests.shape``.

    Raises:
        ValueError: there are too many pairs.
    """
    if len(pairs) > MOST_PAIRS:
        raise ValueError(f"{len(pairs):,} pairs share a link: {MOST_PAIRS:,} at most can")
    targets = {pair: FIRST + number for number, pair in enumerate(pairs, 1)}
    first = {(place, one): UNCOUNTED for one in apart for place in (SOURCE, DESTINATION)}
    return _packed_queues(shape, len(pairs), bool(apart)) + packed_filters(targets, first)


class FairEgress(Egress):
    """The egress of an interface that pairs share, whose shape changes while it sends."""

    def __init__(self, interface: int, shape: Shape, pairs: int) -> None:
        """Take over an interface that so many pairs of addresses share."""
        super().__init__(interface, shape)
        self._pairs = pairs

    def _packed_rate(self, rate: int) -> bytes:
        return _packed_shares(rate, self._pairs)

    def _set_rate(self, netlink: IPRoute, rate: int | None) -> None:
        super()._set_rate(netlink, rate)
        _set_shares(netlink, "change", self._interface, rate, self._pairs)

    @property
    def _places(self) -> tuple[tuple[int, Handles], ...]:
        return _places(self._pairs)


def splitters_of(pairs: int) -> Sequence[int]:
    """Return the handles of what splits super-frames where so many pairs share a direction."""
    return [splitter for _, (splitter, _, _) in _places(pairs)]


@functools.lru_cache(maxsize=64)
def _packed_queues(shape: Shape, pairs: int, apart: bool) -> bytes:
    """Return the requests for an interface's classes, and for what is below them."""
    with IPBatch() as packed:
        add_root(packed, 0, default=FIRST)
        set_class(packed, "add", 0, COUNTED, shape.rate)
        if apart:
            set_class(packed, "add", 0, UNCOUNTED, None)
        _set_shares(packed, "add", 0, shape.rate, pairs)
        requests = bytes(packed.batch)
    return requests + b"".join(
        packed_leaves(shape, below, handles) for below, handles in _places(pairs)
    )


@functools.lru_cache(maxsize=4096)
def _packed_shares(rate: int, pairs: int) -> bytes:
    """Return the requests that change the rate of an interface that pairs share."""
    with IPBatch() as packed:
        set_class(packed, "change", 0, COUNTED, rate)
        _set_shares(packed, "change", 0, rate, pairs)
        return bytes(packed.batch)


def _set_shares(netlink: IPRoute, how: How, interface: int, rate: int | None, pairs: int) -> None:
    """Add or change the class of each pair, and of what belongs to none.

    The kernel lets a class have its ``rate`` whatever the class above it has, so all change together.
    """
    most = rate // 8 if rate else UNLIMITED
    at_once = super_frame(rate)
    for number in range(pairs + 1):
        netlink.tc(
            f"{how}-class",
            "htb",
            interface,
            FIRST + number,
            parent=COUNTED,
            rate=max(1, most // (pairs + 1)),
            ceil=most,
            # A class alone may send as much at once as the link, and no more than the others may.
            burst=at_once,
            cburst=at_once,
            quantum=at_once,
        )


def _places(pairs: int) -> tuple[tuple[int, Handles], ...]:
    """Return the classes, with the handles of what is below each."""
    return tuple(
        (
            FIRST + number,
            (
                _FIRST_SPLITTER + number * _NEXT,
                _FIRST_NETEM + number * _NEXT,
                _FIRST_QUEUE + number * _NEXT,
            ),
        )
        for number in range(pairs + 1)
    )

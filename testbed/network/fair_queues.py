"""Queues for a link that several connections share, which give each an equal share of its rate.

One HTB class for each pair of addresses stands below a class with the link's rate. Of the classes that
have something to send, the kernel serves one after the other, each with the same number of bytes
(deficit round robin), so that rates are max-min fair, as the virtual clock computes them
(``testbed.clock.flows``). In a single queue it is the sender whose packets come first that is served
first: `make links` measures both.

Segmentation offload hands a link up to 64 KiB at once, which is as much as many a message has. So
devices that send over shared links have smaller super-frames (``SUPER_FRAME``).
"""

from collections.abc import Sequence

from pyroute2 import IPRoute

from testbed.network.links import MOST_PAIRS, Shape
from testbed.network.shaping import (
    COUNTED,
    DESTINATION,
    SOURCE,
    UNCOUNTED,
    UNLIMITED,
    add_filter,
    add_root,
    set_class,
    set_netem,
)

SUPER_FRAME = 16_000
"""Bytes of a super-frame on its way to a shared link, at most.

With up to 64 KiB, flows of 212 kB took up to 46 % more or less time than with exactly fair shares; with
this, up to 12 %.
"""
_FIRST = 0x0001_1000
_FIRST_NETEM = 0x1000_0000
_NEXT_NETEM = 0x0001_0000


def share_fairly(
    netlink: IPRoute,
    interface: int,
    shape: Shape,
    pairs: Sequence[tuple[str, str]],
    apart: Sequence[str] = (),
) -> None:
    """Shape the egress of an interface, and have pairs of addresses share its rate fairly.

    What belongs to no pair has a share of its own. The kernel compares a packet with one pair after the
    other. ``COUNTED`` counts what all pairs send.

    Args:
        interface: has no discipline of its own yet.
        shape: its rate is shared; delay and loss need the kernel's netem.
        pairs: source and destination of the connections, IPv4, at most ``MOST_PAIRS``.
        apart: addresses from which and to which everything passes without a limit, as ``UNCOUNTED``.

    Raises:
        ValueError: there are too many pairs.
    """
    if len(pairs) > MOST_PAIRS:
        raise ValueError(f"{len(pairs):,} pairs share a link: {MOST_PAIRS:,} at most can")
    add_root(netlink, interface, default=_FIRST)
    set_class(netlink, "add", interface, COUNTED, shape.rate)
    if apart:
        set_class(netlink, "add", interface, UNCOUNTED, None)
    for address in apart:
        for place in (SOURCE, DESTINATION):
            add_filter(netlink, interface, UNCOUNTED, {place: address})
    most = shape.rate // 8 if shape.rate else UNLIMITED
    each = max(1, most // (len(pairs) + 1))
    for number in range(len(pairs) + 1):
        netlink.tc(
            "add-class",
            "htb",
            interface,
            _FIRST + number,
            parent=COUNTED,
            rate=each,
            ceil=most,
            # A class alone may send as much at once as the link, and no more than the others may.
            burst=SUPER_FRAME,
            cburst=SUPER_FRAME,
            quantum=SUPER_FRAME,
        )
        if shape.needs_netem:
            below = _FIRST + number, _FIRST_NETEM + number * _NEXT_NETEM
            set_netem(netlink, "add", interface, shape, below)
    for number, (source, destination) in enumerate(pairs, 1):
        addresses = {SOURCE: source, DESTINATION: destination}
        add_filter(netlink, interface, _FIRST + number, addresses)

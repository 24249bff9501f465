"""Reading the kernel's class counters.

A class of a queueing discipline counts a segmentation-offload packet of up to 64 KiB as the frames
of at most MTU bytes that it stands for, with the headers of each. That is what an ordinary link
would carry; the interface's own counters see the large packet once.
"""

import time
from dataclasses import dataclass

from pyroute2 import IPRoute


@dataclass(frozen=True, slots=True)
class ClassCount:
    """What one class has sent since it was made.

    Attributes:
        time: when it was read, seconds of CLOCK_MONOTONIC.
        bytes: Ethernet frames without their checksum, headers included.
        frames: how many frames that was.
        dropped: packets the class's queue had no room for.
    """

    time: float
    bytes: int
    frames: int
    dropped: int


class ClassCounter:
    """A counter of one class; opened in, and bound to, the current network namespace."""

    def __init__(self, interface: str, handle: int) -> None:
        self._netlink = IPRoute()
        (self._interface,) = self._netlink.link_lookup(ifname=interface)
        self._handle = handle

    def read(self) -> ClassCount:
        """Read the counter.

        Raises:
            LookupError: the interface has no such class any more.
        """
        for message in self._netlink.get_classes(self._interface):
            if message["handle"] == self._handle:
                now = time.monotonic()
                statistics = message.get_attr("TCA_STATS2")
                basic = statistics.get_attr("TCA_STATS_BASIC")
                queue = statistics.get_attr("TCA_STATS_QUEUE")
                return ClassCount(now, basic["bytes"], basic["packets"], queue["drops"])
        raise LookupError(f"interface {self._interface} has no class {self._handle:#x}")

    def close(self) -> None:
        """Close the netlink socket."""
        self._netlink.close()

"""The links of a network, and their addresses: every link is a /31 of its own.

A /31 has two addresses, the router's (even) and the node's (odd), so that link i owns the addresses
BASE + 2i and BASE + 2i + 1. The MAC addresses contain the same numbers. All of them exist only in the
run's own namespaces, so that they cannot clash with the host's networks or another run's.
"""

import ipaddress
from dataclasses import dataclass

BASE = int(ipaddress.IPv4Address("10.77.0.0"))
MOST_LINKS = 32_768
"""The number of /31 links in 10.77.0.0/16."""
PREFIX_LENGTH = 31
MOST_PAIRS = 0xFFF
"""The most pairs of devices for which a shared direction of a link has a fair queue each."""
CORE = "core"
"""The name of the router that every network has."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The rate, delay, loss, queue and damage of one direction of a link.

    Attributes:
        rate: bit/s, or None for as fast as the host can.
        delay: seconds added to every packet; needs the kernel's netem.
        loss: fraction of packets lost, 0 to 1; needs the kernel's netem.
        corrupt: fraction of packets in which a bit is flipped, 0 to 1; needs netem, too.
        jitter: seconds by which a packet's delay is longer or shorter, at most ``delay``; uniform, and
            packets stay in order. Needs netem, too.
        queue: bytes of frames that wait for the rate, beyond which packets are dropped; None: the
            kernel's own limit, 1,000 packets.
    """

    rate: int | None = None
    delay: float = 0.0
    loss: float = 0.0
    corrupt: float = 0.0
    jitter: float = 0.0
    queue: int | None = None

    @property
    def shapes(self) -> bool:
        """True if anything has to be set up."""
        return self.rate is not None or self.needs_netem

    @property
    def needs_netem(self) -> bool:
        """True if the kernel's network emulator, netem, is needed."""
        return self.delay > 0 or self.loss > 0 or self.corrupt > 0

    @property
    def holds_packets(self) -> bool:
        """True if packets wait for something else than the rate, or in a queue with a length."""
        return self.needs_netem or self.queue is not None

    @property
    def by_frame(self) -> bool:
        """True if what happens to a frame must not happen to those after it in the same super-frame.

        Super-frames of segmentation offload are split into frames before such a direction's queue.
        """
        return self.drops or self.corrupt > 0 or self.jitter > 0

    @property
    def drops(self) -> bool:
        """True if frames are to be dropped: a loss is asked for, or a queue with a length."""
        return self.loss > 0 or self.queue is not None


@dataclass(frozen=True, slots=True)
class Link:
    """The link between a node and a router.

    Attributes:
        node: the name of the node: a device, whose only link this is, or another router.
        index: the link's number in the network, 0 or more.
        uplink: applied at the node's end, to what it sends.
        downlink: applied at the router's end, to what the node receives.
        router: the name of the router.
    """

    node: str
    index: int
    uplink: Shape = Shape()
    downlink: Shape = Shape()
    router: str = CORE

    @property
    def needs_netem(self) -> bool:
        """True if the kernel's network emulator is needed for one of its directions."""
        return self.uplink.needs_netem or self.downlink.needs_netem

    @property
    def router_address(self) -> str:
        """The IPv4 address of the router's end."""
        return str(ipaddress.IPv4Address(BASE + 2 * self.index))

    @property
    def address(self) -> str:
        """The IPv4 address of the node's end."""
        return str(ipaddress.IPv4Address(BASE + 2 * self.index + 1))

    @property
    def router_mac(self) -> str:
        """The MAC address of the router's end (locally administered)."""
        return _mac(2 * self.index)

    @property
    def mac(self) -> str:
        """The MAC address of the node's end (locally administered)."""
        return _mac(2 * self.index + 1)

    @property
    def interface(self) -> str:
        """The name of the interface in a router; a kernel name has at most 15 bytes."""
        return f"link{self.index}"


def _mac(number: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x7B, *number.to_bytes(4, "big")))

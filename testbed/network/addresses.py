"""The addresses of the devices: every device is one /31 link away from the core.

A /31 has two addresses, the core's (even) and the device's (odd), so that link i of the star owns
the addresses BASE + 2i and BASE + 2i + 1. The MAC addresses contain the same numbers. All of them
exist only in the run's own namespaces, so that they cannot clash with the host's networks or another
run's.
"""

import ipaddress
from dataclasses import dataclass

BASE = int(ipaddress.IPv4Address("10.77.0.0"))
MOST_LINKS = 32_768
"""The number of /31 links in 10.77.0.0/16."""
PREFIX_LENGTH = 31


@dataclass(frozen=True, slots=True)
class Shape:
    """The rate, delay, loss and damage of one direction of a link.

    Attributes:
        rate: bit/s, or None for as fast as the host can.
        delay: seconds added to every packet; needs the kernel's netem.
        loss: fraction of packets lost, 0 to 1; needs the kernel's netem.
        corrupt: fraction of packets in which a bit is flipped, 0 to 1; needs netem, too.
    """

    rate: int | None = None
    delay: float = 0.0
    loss: float = 0.0
    corrupt: float = 0.0

    @property
    def shapes(self) -> bool:
        """True if anything has to be set up."""
        return self.rate is not None or self.needs_netem

    @property
    def needs_netem(self) -> bool:
        """True if the kernel's network emulator, netem, is needed."""
        return self.delay > 0 or self.loss > 0 or self.corrupt > 0


@dataclass(frozen=True, slots=True)
class Link:
    """One device's link to the core.

    Attributes:
        device: the device's name.
        index: the link's number in the star, 0 or more.
        uplink: applied at the device's end, to what it sends.
        downlink: applied at the core's end, to what it receives.
    """

    device: str
    index: int
    uplink: Shape = Shape()
    downlink: Shape = Shape()

    @property
    def core_address(self) -> str:
        """The IPv4 address of the core's end."""
        return str(ipaddress.IPv4Address(BASE + 2 * self.index))

    @property
    def device_address(self) -> str:
        """The IPv4 address of the device's end."""
        return str(ipaddress.IPv4Address(BASE + 2 * self.index + 1))

    @property
    def core_mac(self) -> str:
        """The MAC address of the core's end (locally administered)."""
        return _mac(2 * self.index)

    @property
    def device_mac(self) -> str:
        """The MAC address of the device's end (locally administered)."""
        return _mac(2 * self.index + 1)

    @property
    def core_interface(self) -> str:
        """The name of the interface at the core's end; a kernel name has at most 15 bytes."""
        return f"link{self.index}"


def _mac(number: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x7B, *number.to_bytes(4, "big")))

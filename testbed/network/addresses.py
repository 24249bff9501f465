"""Who has which address: every device is one /31 link away from the core.

A /31 has two addresses, the core's (even) and the device's (odd), so that link i of the star owns
the addresses BASE + 2i and BASE + 2i + 1. The same numbers stand in the MAC addresses. They live in
namespaces of the run's own, so that they cannot meet the host's networks or another run's.
"""

import ipaddress
from dataclasses import dataclass

BASE = int(ipaddress.IPv4Address("10.77.0.0"))
MOST_LINKS = 32_768
"""10.77.0.0/16 holds this many /31 links."""
PREFIX_LENGTH = 31


@dataclass(frozen=True, slots=True)
class Shape:
    """What one direction of a link does to its traffic.

    Attributes:
        rate: bit/s, or None for as fast as the host goes.
        delay: seconds added to every packet; needs the kernel's netem.
        loss: fraction of packets lost, 0 to 1; needs the kernel's netem.
        corrupt: fraction of packets of which a bit is turned over, 0 to 1; needs it, too.
    """

    rate: int | None = None
    delay: float = 0.0
    loss: float = 0.0
    corrupt: float = 0.0

    @property
    def shapes(self) -> bool:
        """Whether anything has to be set up at all."""
        return self.rate is not None or self.needs_netem

    @property
    def needs_netem(self) -> bool:
        """Whether the kernel's network emulator is needed."""
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
        """IPv4 address of the core's end."""
        return str(ipaddress.IPv4Address(BASE + 2 * self.index))

    @property
    def device_address(self) -> str:
        """IPv4 address of the device's end."""
        return str(ipaddress.IPv4Address(BASE + 2 * self.index + 1))

    @property
    def core_mac(self) -> str:
        """MAC address of the core's end (locally administered)."""
        return _mac(2 * self.index)

    @property
    def device_mac(self) -> str:
        """MAC address of the device's end (locally administered)."""
        return _mac(2 * self.index + 1)

    @property
    def core_interface(self) -> str:
        """Name of the interface at the core's end; a kernel name has at most 15 bytes."""
        return f"link{self.index}"


def _mac(number: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x7B, *number.to_bytes(4, "big")))

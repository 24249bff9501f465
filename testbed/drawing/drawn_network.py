"""The content of a network's drawing: links, the nodes at their ends, the values of each direction.

It is made of a plan (``cli``) or of a run directory (``results``), so it has values of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from testbed.device_names import EVALUATOR_NAME, SERVER_NAME

ROOT = "core"
"""The router from which a drawing begins."""


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a link.

    Attributes:
        rate: bit/s; None if it is not limited.
        delay: seconds.
        bytes: what passed; None before a run.
        utilisation: the mean share of the rate in use; None before a run, or without a rate.
        conversations: the number of pairs of devices whose route it is part of; None if not known.
        limits: the number of conversations whose bottleneck it is.
    """

    rate: float | None = None
    delay: float = 0.0
    bytes: int | None = None
    utilisation: float | None = None
    conversations: int | None = None
    limits: int = 0


@dataclass(frozen=True, slots=True)
class Wire:
    """A link.

    Attributes:
        node: its end that is a device, or another router.
        router: its other end.
        device: True if the node is a device.
        up: the direction from the node to the router.
        down: the other direction.
    """

    node: str
    router: str
    device: bool
    up: Way = Way()
    down: Way = Way()


@dataclass(frozen=True)
class Picture:
    """A network to draw; its routers are connected, and one of them is ``ROOT``.

    Attributes:
        title: of the drawing, for readers that do not see it.
        wires: all links.
        classes: the class of each device that has one, by the device's name.
        positions: of routers, x to the east and y to the north in any one unit; empty if not known.
        notes: sentences below the drawing.
    """

    title: str
    wires: Sequence[Wire]
    classes: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def routers(self) -> tuple[str, ...]:
        """The names of the routers, in the order of their links."""
        names = [ROOT, *(wire.router for wire in self.wires)]
        return tuple(dict.fromkeys([*names, *(wire.node for wire in self.between)]))

    @property
    def between(self) -> tuple[Wire, ...]:
        """The links between routers."""
        return tuple(wire for wire in self.wires if not wire.device)

    @property
    def devices(self) -> tuple[Wire, ...]:
        """The links of devices."""
        return tuple(wire for wire in self.wires if wire.device)

    @property
    def drawn_routers(self) -> tuple[str, ...]:
        """The routers that a map shows: not the root, which is beside a router."""
        return tuple(router for router in self.routers if router != ROOT)

    @property
    def drawn_links(self) -> tuple[Wire, ...]:
        """The links between the routers that a map shows."""
        return tuple(wire for wire in self.between if ROOT not in (wire.node, wire.router))

    @cached_property
    def hosts(self) -> Counter[str]:
        """The number of devices at each router, but for the server and the evaluator."""
        return Counter(wire.router for wire in self.devices if not is_special(wire.node))

    @cached_property
    def homes(self) -> set[str]:
        """The routers of a map that have the server."""
        found = {wire.router for wire in self.devices if wire.node == SERVER_NAME}
        if ROOT in found:
            found |= {wire.node for wire in self.between if wire.router == ROOT}
        return found

    @property
    def counted(self) -> bool:
        """True if it is known what passed the links."""
        return any(wire.up.bytes is not None for wire in self.wires)


def is_special(device: str) -> bool:
    """Return True for the server and the evaluator, which are drawn apart."""
    return device in (SERVER_NAME, EVALUATOR_NAME)


def kind(node: str) -> str:
    """Return what devices have in common that are shown together: ``worker``, ``aggregator``.

    Of a device that is shown by itself it is its name.
    """
    return node if is_special(node) else node.rpartition("-")[0]

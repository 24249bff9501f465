"""The roles of a run: which parts they have, and the devices that they are made of.

A *role* is one of the programs of a run, and its *part* is what it does. An algorithm says which parts
there are and which roles talk to each other (``testbed.algorithms.interface``); everything else about
the shape of a run follows from that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Part: TypeAlias = Literal["server", "aggregator", "worker", "peer"]
"""The parts of roles.

server: holds a slice of the parameters, applies updates to it and sends it to callers; aggregator:
combines the updates of a cluster for the servers, or the aggregator, that it calls itself; worker:
computes gradients of the parameters that it is sent; peer: has parameters of its own, and exchanges
updates.
"""


@dataclass(frozen=True, slots=True)
class Role:
    """One role: its part, and its index among the roles of this part, from 0."""

    part: Part
    index: int


@dataclass(frozen=True, slots=True)
class Population:
    """The devices that an experiment asks for, which are given roles.

    Attributes:
        devices: the number of workers or peers.
        servers: the number of servers, if the algorithm has any.
        aggregator_of: the aggregator, from 0, of each device and then of each aggregator; -1: it talks
            to the servers. Empty without aggregators.
    """

    devices: int
    servers: int = 1
    aggregator_of: Sequence[int] = ()

    def count(self, part: Part) -> int:
        """Return the number of roles of a part."""
        match part:
            case "server":
                return self.servers
            case "aggregator":
                return max(0, len(self.aggregator_of) - self.devices)
            case _:
                return self.devices

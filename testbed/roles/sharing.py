"""What the roles of one run share on their host by descriptor, beside the emulated network.

Forked roles inherit it. Roles that are started in processes of their own are handed the descriptors,
by somebody who makes them without loading any of the libraries that roles compute with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from testbed.nodes.turns import Turns
from testbed.roles.leave import Leaves

_CLOCKS = ("server", "coordinator")
_DEVICES = ("worker", "peer")


@dataclass(frozen=True, slots=True)
class Shared:
    """What is shared.

    Attributes:
        turns: at computing; None where each device has processors of its own.
        leaves: the channels by which the virtual clock, or the coordinator of peers, says what has
            happened; None where devices act by themselves.
    """

    turns: Turns | None
    leaves: Leaves | None

    @classmethod
    def make(cls, arguments: Mapping[str, Any]) -> Self:
        """Make what a run's roles share; ``arguments`` are its ``Settings`` as a mapping."""
        turns = None if arguments["own_processors"] else Turns()
        return cls(turns, Leaves(arguments["workers"]) if _has_leaves(arguments) else None)

    def descriptors(self, role: Mapping[str, Any]) -> Sequence[int]:
        """Those that a role is to have."""
        found = [] if self.turns is None else list(self.turns.descriptors)
        if self.leaves is not None and role["role"] in _CLOCKS:
            found += self.leaves.clock_descriptors
        elif self.leaves is not None and role["role"] in _DEVICES:
            found.append(self.leaves.device_descriptor(int(role["number"])))
        return found

    @classmethod
    def handed(
        cls, arguments: Mapping[str, Any], role: Mapping[str, Any], descriptors: Sequence[int]
    ) -> Self:
        """What somebody else made, in the process of a role that got its ``descriptors``."""
        rest = list(descriptors)
        turns = None
        if not arguments["own_processors"]:
            turns, rest = Turns.handed(rest[:3]), rest[3:]
        if not _has_leaves(arguments):
            return cls(turns, None)
        if role["role"] in _DEVICES:
            return cls(turns, Leaves.handed(theirs={int(role["number"]): rest[0]}))
        return cls(turns, Leaves.handed(ours=rest))


def _has_leaves(arguments: Mapping[str, Any]) -> bool:
    # Peers have a coordinator under either clock.
    return arguments["clock"] == "virtual" or bool(arguments["peer_addresses"])

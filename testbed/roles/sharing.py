"""What the roles of one run share on their host by descriptor, beside the emulated network.

Forked roles inherit it. Roles that are started in processes of their own are handed the descriptors,
by somebody who makes them without loading any of the libraries that roles compute with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from testbed.nodes.turns import Turns
from testbed.roles.orders import OrderChannels
from testbed.roles.pace import Paces
from testbed.telemetry.board import Board, lines_of

BOARD = "board"
"""Key of the board's descriptor among a run's settings, if there is a board that somebody reads."""
PACES = "paces"
"""Key of the descriptor of the devices' paces, if somebody may change them."""
CHECKPOINTS = "checkpoints"
"""Key of the descriptors of the server's checkpoints, both, if it writes some; and of how often."""
EVERY = "checkpoint_every"
SPILL = "spill"
"""Key of the descriptor of the file for snapshots that wait for the evaluator, if there is one."""
NO_SETTINGS = frozenset({BOARD, PACES, CHECKPOINTS, EVERY, SPILL})
"""Keys of what is no part of a run's settings."""
_CLOCKS = ("server", "coordinator")
_DEVICES = ("worker", "peer")
_EVALUATED = ("server", "peer")


@dataclass(frozen=True, slots=True)
class Shared:
    """What is shared.

    Attributes:
        turns: at computing; None where each device has processors of its own.
        leaves: the channels by which the virtual clock, or the coordinator of peers, says what has
            happened; None where devices act by themselves.
        board: on which devices write how they stand.
        paces: how much slower than planned each is.
        checkpoints: descriptors of the files of the server's checkpoints; none if it writes none.
        spill: descriptor of the file for what waits for the evaluator; None: there is none.
    """

    turns: Turns | None
    leaves: OrderChannels | None
    board: Board
    paces: Paces
    checkpoints: Sequence[int] = ()
    spill: int | None = None

    @classmethod
    def make(cls, arguments: Mapping[str, Any]) -> Self:
        """Make what a run's roles share; ``arguments`` are its ``Settings`` as a mapping."""
        turns = None if arguments["own_processors"] else Turns()
        leaves = OrderChannels(arguments["workers"]) if _has_leaves(arguments) else None
        descriptor = arguments.get(BOARD)
        if descriptor is None:
            board = Board.private(lines_of(arguments["workers"]))
        else:
            board = Board.open(descriptor)
        paces = Paces(arguments.get(PACES), arguments["workers"])
        checkpoints, spill = arguments.get(CHECKPOINTS, ()), arguments.get(SPILL)
        return cls(turns, leaves, board, paces, checkpoints, spill)

    def descriptors(self, role: Mapping[str, Any]) -> Sequence[int]:
        """Those that a role is to have."""
        found = [] if self.board.descriptor is None else [self.board.descriptor]
        found += [] if self.paces.descriptor is None else [self.paces.descriptor]
        found += self.checkpoints if role["role"] == "server" else []
        if self.spill is not None and role["role"] in _EVALUATED:
            found.append(self.spill)
        found += [] if self.turns is None else list(self.turns.descriptors)
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
        if arguments.get(BOARD) is None:
            board = Board.private(lines_of(arguments["workers"]))
        else:
            board, rest = Board.open(rest[0]), rest[1:]
        if arguments.get(PACES) is None:
            paces = Paces(None, arguments["workers"])
        else:
            paces, rest = Paces(rest[0], arguments["workers"]), rest[1:]
        checkpoints: Sequence[int] = ()
        if arguments.get(CHECKPOINTS) and role["role"] == "server":
            checkpoints, rest = rest[:2], rest[2:]
        spill: int | None = None
        if arguments.get(SPILL) is not None and role["role"] in _EVALUATED:
            spill, rest = rest[0], rest[1:]
        if not arguments["own_processors"]:
            turns, rest = Turns.handed(rest[:3]), rest[3:]
        if not _has_leaves(arguments):
            return cls(turns, None, board, paces, checkpoints, spill)
        if role["role"] in _DEVICES:
            leaves = OrderChannels.handed(theirs={int(role["number"]): rest[0]})
            return cls(turns, leaves, board, paces, spill=spill)
        return cls(turns, OrderChannels.handed(ours=rest), board, paces, checkpoints, spill)


def _has_leaves(arguments: Mapping[str, Any]) -> bool:
    # Peers have a coordinator under either clock.
    return arguments["clock"] == "virtual" or bool(arguments["peer_addresses"])

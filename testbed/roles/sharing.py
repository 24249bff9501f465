"""Resources that the roles of one run share on their host, outside the emulated network.

Forked roles inherit them. A role that is started in a process of its own receives their descriptors,
from a process that makes them without loading any of the libraries that roles compute with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from testbed.nodes.turns import Turns
from testbed.roles.orders import OrderChannels
from testbed.roles.pace import Paces
from testbed.telemetry.board import Board, lines_of
from testbed.training.settings import Settings

SETTINGS = "settings"
"""Key, among the arguments of a run's roles, of the run's ``Settings`` as JSON."""
BOARD = "board"
"""Key of the board's descriptor, if metrics are exported."""
PACES = "paces"
"""Key of the descriptor of the devices' paces, if faults may change them."""
CHECKPOINTS = "checkpoints"
"""Key of the descriptors of the server's two checkpoint files, if it writes checkpoints."""
EVERY = "checkpoint_every"
"""Key of the number of updates between two checkpoints."""
SPILL = "spill"
"""Key of the descriptor of the file for snapshots that wait for the evaluator, if there is one."""
_CLOCKS = ("server", "coordinator")
_DEVICES = ("worker", "peer")
_EVALUATED = ("server", "peer")


@dataclass(frozen=True, slots=True)
class Shared:
    """The resources that a run's roles share.

    Attributes:
        turns: at computing; None where each device has processors of its own.
        orders: the channels over which the virtual clock, or the coordinator of peers, gives its
            orders; None where devices act by themselves.
        board: memory in which devices write their state.
        paces: how much slower than planned each device is.
        checkpoints: descriptors of the server's checkpoint files; empty if it writes no checkpoints.
        spill: descriptor of the file for snapshots that wait for the evaluator; None: there is none.
    """

    turns: Turns | None
    orders: OrderChannels | None
    board: Board
    paces: Paces
    checkpoints: Sequence[int] = ()
    spill: int | None = None

    @classmethod
    def make(cls, arguments: Mapping[str, Any]) -> Self:
        """Make the resources of a run; ``arguments`` has the keys of this module."""
        settings = Settings.from_json(arguments[SETTINGS])
        turns = None if settings.timing.own_processors else Turns()
        orders = OrderChannels(settings.workers) if _has_orders(settings) else None
        descriptor = arguments.get(BOARD)
        if descriptor is None:
            board = Board.private(lines_of(settings.workers))
        else:
            board = Board.open(descriptor)
        paces = Paces(arguments.get(PACES), settings.workers)
        checkpoints, spill = arguments.get(CHECKPOINTS, ()), arguments.get(SPILL)
        return cls(turns, orders, board, paces, checkpoints, spill)

    def descriptors(self, role: Mapping[str, Any]) -> Sequence[int]:
        """Return the descriptors that a role needs."""
        found = [] if self.board.descriptor is None else [self.board.descriptor]
        found += [] if self.paces.descriptor is None else [self.paces.descriptor]
        found += self.checkpoints if role["role"] == "server" else []
        if self.spill is not None and role["role"] in _EVALUATED:
            found.append(self.spill)
        found += [] if self.turns is None else list(self.turns.descriptors)
        if self.orders is not None and role["role"] in _CLOCKS:
            found += self.orders.clock_descriptors
        elif self.orders is not None and role["role"] in _DEVICES:
            found.append(self.orders.device_descriptor(int(role["number"])))
        return found

    @classmethod
    def handed(
        cls, arguments: Mapping[str, Any], role: Mapping[str, Any], descriptors: Sequence[int]
    ) -> Self:
        """Take over, in a role's own process, the ``descriptors`` that another process sent it."""
        settings = Settings.from_json(arguments[SETTINGS])
        rest = list(descriptors)
        turns = None
        if arguments.get(BOARD) is None:
            board = Board.private(lines_of(settings.workers))
        else:
            board, rest = Board.open(rest[0]), rest[1:]
        if arguments.get(PACES) is None:
            paces = Paces(None, settings.workers)
        else:
            paces, rest = Paces(rest[0], settings.workers), rest[1:]
        checkpoints: Sequence[int] = ()
        if arguments.get(CHECKPOINTS) and role["role"] == "server":
            checkpoints, rest = rest[:2], rest[2:]
        spill: int | None = None
        if arguments.get(SPILL) is not None and role["role"] in _EVALUATED:
            spill, rest = rest[0], rest[1:]
        if not settings.timing.own_processors:
            turns, rest = Turns.handed(rest[:3]), rest[3:]
        if not _has_orders(settings):
            return cls(turns, None, board, paces, checkpoints, spill)
        if role["role"] in _DEVICES:
            orders = OrderChannels.handed(theirs={int(role["number"]): rest[0]})
            return cls(turns, orders, board, paces, spill=spill)
        return cls(turns, OrderChannels.handed(ours=rest), board, paces, checkpoints, spill)


def _has_orders(settings: Settings) -> bool:
    # Peers have a coordinator under either clock.
    return settings.timing.clock == "virtual" or bool(settings.network.peer_addresses)

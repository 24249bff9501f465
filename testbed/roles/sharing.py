"""Resources that the roles of one run share on their host, outside the emulated network.

Forked roles inherit them, and keep the descriptors of their own only. A role that is started in a
process of its own receives these, from a process that makes them without loading any of the libraries
that roles compute with.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from testbed.device_names import server_index
from testbed.json_dataclasses import of_plain
from testbed.nodes.computing_turns import ComputingTurns
from testbed.roles.arguments import RoleArguments, RoleKind, RunArguments
from testbed.roles.orders import OrderChannels
from testbed.roles.pace import Paces
from testbed.telemetry.state_board import Board, lines_of
from testbed.training.run_devices import RunDevices

_CLOCKS = ("server", "coordinator")
_DEVICES = ("worker", "peer")
_EVALUATED = ("server", "peer")
_DRIVEN = ("server", "aggregator")


@dataclass(frozen=True, slots=True)
class SharedResources:
    """The resources that a run's roles share.

    Attributes:
        turns: at computing; None where each device has processors of its own.
        orders: the channels over which the virtual clock, or the coordinator of peers, gives its
            orders; None where devices act by themselves.
        servers: those between the virtual clock and each of several servers, or the server and its
            aggregators, by their indices.
        checkpoints, spills, states: as ``checkpoints``, ``spill`` and ``states`` of
            ``SharedArguments``; a role that was handed its descriptors has its own only.
    """

    turns: ComputingTurns | None
    orders: OrderChannels | None
    board: Board
    paces: Paces
    checkpoints: Sequence[int] = ()
    spills: Sequence[int] = ()
    servers: OrderChannels | None = None
    states: Sequence[int] = ()

    def spill(self, number: int) -> int | None:
        """Return the descriptor of the file for the snapshots of a server or peer, if there is one."""
        if len(self.spills) > 1:
            return self.spills[server_index(number)]
        return self.spills[0] if self.spills else None

    def checkpoints_of(self, number: int) -> Sequence[int]:
        """Return the descriptors of two checkpoint files: a server's, or the run's if there are two."""
        first = 2 * server_index(number) if len(self.checkpoints) > 2 else 0
        return self.checkpoints[first : first + 2]

    @classmethod
    def make(cls, arguments: RunArguments) -> Self:
        """Make the resources of a run."""
        settings = of_plain(RunDevices, arguments["settings"])
        turns = None if settings.timing.own_processors else ComputingTurns()
        handed = {int(number): end for number, end in arguments.get("orders", {}).items()}
        orders = OrderChannels(settings.workers, handed) if _has_orders(settings) else None
        descriptor = arguments.get("board")
        if descriptor is None:
            board = Board.private(lines_of(settings.workers, settings.serving))
        else:
            board = Board.open(descriptor)
        paces = Paces(arguments.get("paces"), settings.workers)
        checkpoints, spills = arguments.get("checkpoints", ()), arguments.get("spill", ())
        servers = OrderChannels(settings.serving) if _has_driven_servers(settings) else None
        states = arguments.get("states", ())
        return cls(turns, orders, board, paces, checkpoints, spills, servers, states)

    def descriptors(self, role: RoleArguments) -> Sequence[int]:
        """Return the descriptors that a role uses, in the order in which ``handed`` takes them."""
        found = [] if self.board.descriptor is None else [self.board.descriptor]
        found += [] if self.paces.descriptor is None else [self.paces.descriptor]
        if role["role"] == _saving(driven=self.servers is not None):
            found += self.checkpoints_of(role["number"])
        # Every server writes snapshots, but only one of the peers.
        spill = self.spill(role["number"]) if role["role"] in _EVALUATED else None
        found += [] if spill is None else [spill]
        found += [self.states[role["number"]]] if self.states and role["role"] in _DEVICES else []
        found += [] if self.turns is None else list(self.turns.descriptors)
        if self.servers is not None and role["role"] in _DRIVEN:
            found.append(self.servers.device_descriptor(server_index(role["number"])))
        elif self.orders is not None and role["role"] in _CLOCKS:
            found += self.orders.clock_descriptors
            found += [] if self.servers is None else self.servers.clock_descriptors
        elif self.orders is not None and role["role"] in _DEVICES:
            found.append(self.orders.device_descriptor(role["number"]))
        return found

    @classmethod
    def handed(
        cls,
        settings: RunDevices,
        arguments: RunArguments,
        role: RoleArguments,
        descriptors: Sequence[int],
    ) -> Self:
        """Take over, in a role's own process, its ``descriptors``, in their order."""
        kind, number, rest = role["role"], role["number"], list(descriptors)

        def take(count: int, *, there: object) -> list[int]:
            """Take the next descriptors, if they are there."""
            taken = rest[:count] if there else []
            del rest[: len(taken)]
            return taken

        of_board = take(1, there=arguments.get("board") is not None)
        of_paces = take(1, there=arguments.get("paces") is not None)
        lines = lines_of(settings.workers, settings.serving)
        board = Board.open(of_board[0]) if of_board else Board.private(lines)
        paces = Paces(of_paces[0] if of_paces else None, settings.workers)
        driven = _has_driven_servers(settings)
        saves = kind == _saving(driven=driven)
        checkpoints = take(2, there=arguments.get("checkpoints") and saves)
        spills = take(1, there=arguments.get("spill") and kind in _EVALUATED)
        states = take(1, there=arguments.get("states") and kind in _DEVICES)
        turns = None
        if not settings.timing.own_processors:
            turns = ComputingTurns.handed(take(3, there=True))
        orders = servers = None
        if not _has_orders(settings):
            pass
        elif kind in _DEVICES:
            orders = OrderChannels.handed(theirs={number: rest[0]})
        elif driven and kind in _DRIVEN:
            orders = OrderChannels(0)
            servers = OrderChannels.handed(theirs={server_index(number): rest[0]})
        else:
            orders = OrderChannels.handed(ours=take(settings.workers, there=True))
            servers = OrderChannels.handed(ours=rest) if driven else None
        return cls(turns, orders, board, paces, checkpoints, spills, servers, states)


def _saving(*, driven: bool) -> RoleKind:
    return "coordinator" if driven else "server"


def _has_driven_servers(settings: RunDevices) -> bool:
    return settings.timing.clock == "virtual" and settings.serving > 1


def _has_orders(settings: RunDevices) -> bool:
    # Peers have a coordinator under either clock.
    return settings.timing.clock == "virtual" or bool(settings.network.peer_addresses)

"""The entry points of nodes: load what roles need, and run a role.

The fork server loads once for all nodes (``load``); a container that starts its own role loads for
itself (``load_alone``).
"""

import contextlib
import functools
import socket
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from testbed.algorithms.server_half import ServerHalf
from testbed.channel import Channel
from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.periodic_checkpoints import Checkpoints
from testbed.checkpoints.state_file import StateFile
from testbed.device_names import SERVER_NUMBER, server_index
from testbed.errors import TestbedError
from testbed.faults.schedule import Schedule
from testbed.learning.data import datasets
from testbed.learning.data.batches import Batches
from testbed.learning.learner import Learner
from testbed.messages.codec import send
from testbed.messages.reports import EventReported
from testbed.nodes.fork_server import Role
from testbed.nodes.linux import close_all_but
from testbed.plugins.names import said_with_place
from testbed.random_streams import stream
from testbed.roles.arguments import RoleArguments, RoleKind, RunArguments
from testbed.roles.evaluation.evaluator_process import evaluate
from testbed.roles.orders import OrderChannel, OrderChannels
from testbed.roles.pace import PacedTimes
from testbed.roles.peer.coordinator import Coordinator
from testbed.roles.peer.peer_connections import PeerConnections
from testbed.roles.peer.peer_process import OrderedPeer, PeerProcess
from testbed.roles.peer.wall_peer import WallPeer
from testbed.roles.reporting import RoleReporter
from testbed.roles.server.clock_of_servers import ClockOfServers, run_clock
from testbed.roles.server.driven_aggregator import DrivenAggregator
from testbed.roles.server.driven_server import DrivenServer, serve_driven
from testbed.roles.server.remote_servers import remote_servers
from testbed.roles.server.restart import STORED, Restart
from testbed.roles.server.server_inputs import ServerInputs
from testbed.roles.server.server_with_clock import ServerWithClock
from testbed.roles.server.wall_aggregator import WallAggregator
from testbed.roles.server.wall_server import WallServer
from testbed.roles.sharing import SharedResources
from testbed.roles.transport.greeting import Identity
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.roles.worker.worker_process import work
from testbed.telemetry.state_board import evaluator_line, hub_line
from testbed.training import computation
from testbed.training.objective import objective
from testbed.training.peer_computation import PeerCheckpoints, PeerComputation, codecs
from testbed.training.pushed_parts import PushedParts
from testbed.training.settings import Settings
from testbed.training.times import Times
from testbed.wire import WireError

_NONE = np.arange(0)
FAILED = 1
"""Exit status of a role that ended with an error; the error itself is in the run's events."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, data and learners that roles use; forked roles share them copy-on-write.

    Attributes:
        data: the whole dataset, for forked roles; for a role that is alone, the contents of which it
            takes its part.
        parts: for every device that computes, the indices of its training images.
        learner: has the initial parameters.
        pushed: how updates are cut for the servers.
        shared_learners: one per turn, in shared memory.
        checkpoint_every: updates between two checkpoints of the server; None: it writes none.
        workers_remember: True if workers write what they remember, for checkpoints.
    """

    settings: Settings
    data: datasets.Dataset | datasets.RawDataset
    parts: Sequence[npt.NDArray[np.int64]]
    learner: Learner
    pushed: PushedParts
    shared_learners: tuple[Learner, ...]
    times: Times
    checkpoint_every: int | None = None
    workers_remember: bool = False

    def warm_up(self) -> None:
        """Compute once, so that the libraries' set-up at first use is done once, for all nodes."""
        seed = self.settings.seed
        data = self.data
        # The contents of the images do not matter here.
        dataset = data if isinstance(data, datasets.Dataset) else data.part(_NONE, test=False)
        order = stream(seed, "warm-up").permutation(len(dataset.train_images))
        generator = stream(seed, "warm-up batches")
        batches = Batches(dataset, order, self.settings.training.batch_size, generator)
        for learner in (self.learner, *self.shared_learners):
            learner.gradient(*batches.next())
        # Both import modules, which a role that is forked into a container does not find there.
        computation.may_draw(self.settings, dataset.inputs)
        computation.import_modules(self.settings)
        # Python's first address look-up loads the tables of domain names: half of the pages that a
        # device wrote to before it was connected.
        socket.getaddrinfo("127.0.0.1", None)

    def run_forked(
        self,
        shared: SharedResources,
        of_run: RunArguments,
        arguments: RoleArguments,
        report: Channel,
    ) -> int:
        """Run a role in a process that has inherited everything; return the exit status."""
        own = shared.descriptors(arguments)
        close_all_but((*range(3), report.fileno(), *own))
        return self.run(of_run, arguments, report, own)

    def run(
        self,
        of_run: RunArguments,
        arguments: RoleArguments,
        report: Channel,
        descriptors: Sequence[int],
    ) -> int:
        """Run a role with its descriptors of what roles share, and return the node's exit status."""
        shared = SharedResources.handed(self.settings, of_run, arguments, descriptors)
        return _Role(self, shared, report).run(arguments)


@dataclass(frozen=True, slots=True)
class _Role:
    """A role in its own process."""

    loaded: Loaded
    shared: SharedResources
    report: Channel

    def run(self, arguments: RoleArguments) -> int:
        number = arguments["number"]
        roles: dict[RoleKind, Callable[[], None]] = {
            "server": lambda: self._serve(arguments),
            "aggregator": lambda: self._serve(arguments),
            "evaluator": self._evaluate,
            "worker": lambda: self._work(number, arguments),
            "peer": lambda: self._exchange(number, arguments),
            "coordinator": lambda: self._coordinate(arguments),
        }
        try:
            roles[arguments["role"]]()
        except BaseException as error:  # a plug-in may raise anything, or call sys.exit
            if not isinstance(error, OSError | WireError | TestbedError):
                traceback.print_exc()
            text = str(error) if isinstance(error, TestbedError) else said_with_place(error)
            with contextlib.suppress(OSError):  # the run has been ended: nobody asks why
                send(self.report, EventReported("error", text[:1000], number))
            return FAILED
        return 0

    def _half(self, index: int) -> ServerHalf:
        """Make the half of a server, or of an aggregator, with the initial parameters of its slice."""
        loaded, settings = self.loaded, self.loaded.settings
        if index >= settings.servers:
            return computation.aggregator_half(settings, loaded.learner.layout, index)
        own = loaded.pushed.cut[index]
        initial = own.take(loaded.learner.parameters).copy()
        return computation.server_half(settings, own.layout, initial)

    def _serve(self, arguments: RoleArguments) -> None:
        loaded, settings, orders = self.loaded, self.loaded.settings, self.shared.orders
        number, restart = arguments["number"], Restart.of_role(arguments)
        index, servers = server_index(number), self.shared.servers
        aggregates = index >= settings.servers
        layout = loaded.learner.layout if aggregates else loaded.pushed.cut[index].layout

        def serving(restart: Restart | None) -> ServerInputs:
            writes = not aggregates and servers is None
            return ServerInputs(
                settings,
                self._half(index),
                layout,
                self.report,
                self.shared.board,
                checkpoints=self._checkpoints(number) if writes else None,
                restart=restart,
                paces=self.shared.paces,
                spill=None if aggregates else self.shared.spill(number),
                index=index,
                is_saved=servers is not None and loaded.checkpoint_every is not None,
                workers_remember=loaded.workers_remember,
            )

        if orders is None:
            if aggregates:  # it holds nothing that lasts, and writes no checkpoints
                WallAggregator(serving(None), arguments.get("incarnation", 0)).serve()
            else:
                WallServer(serving(restart)).serve()
        elif servers is None:
            clock_ends = orders.of_clock(OrderChannel)
            ServerWithClock(serving(restart), times=loaded.times, channels=clock_ends).serve()
        else:
            orders.close()
            driven = DrivenAggregator if aggregates else DrivenServer
            clock = servers.of_device(index, Channel)
            serve_driven(lambda restart: driven(serving(restart)), clock, restart)

    def _checkpoints(self, number: int) -> Checkpoints | None:
        if self.loaded.checkpoint_every is None:
            return None
        even, odd = self.shared.checkpoints_of(number)
        files = CheckpointFiles((even, odd), STORED)
        return Checkpoints(self.loaded.checkpoint_every, files)

    def _coordinate(self, arguments: RoleArguments) -> None:
        assert self.shared.orders is not None
        settings, learner = self.loaded.settings, self.loaded.learner
        if self.shared.servers is not None:
            restart = Restart.of_role(arguments)
            self._drive(self.shared.orders, self.shared.servers, restart)
            return
        half = computation.peer_half(settings, learner.layout, learner.parameters, 0)
        Coordinator(
            settings,
            self.loaded.times,
            self.shared.orders.of_clock(OrderChannel),
            self.report,
            neighbours=computation.neighbours(settings),
            tells=half.paced or half.answers,
            line=self.shared.board.device(hub_line(settings.workers)),
            paces=self.shared.paces,
        ).run()

    def _drive(
        self, workers: OrderChannels, servers: OrderChannels, restart: Restart | None
    ) -> None:
        settings, layout = self.loaded.settings, self.loaded.learner.layout
        halves = map(self._half, range(settings.serving))
        driven = remote_servers(halves, servers.of_clock(Channel))
        orders = workers.of_clock(OrderChannel)
        checkpoints = self._checkpoints(SERVER_NUMBER)

        def clock(restart: Restart | None) -> ClockOfServers:
            return ClockOfServers(
                settings,
                layout,
                driven,
                self.loaded.times,
                workers=orders,
                report=self.report,
                checkpoints=checkpoints,
                remember=self.loaded.workers_remember,
                restart=restart,
            )

        run_clock(clock, restart)

    def _exchange(self, number: int, arguments: RoleArguments) -> None:
        assert self.shared.orders is not None
        settings, layout = self.loaded.settings, self.loaded.learner.layout
        leave = self.shared.orders.of_device(number, OrderChannel)
        incarnation = arguments.get("incarnation", 0)
        parameters, version = self.loaded.learner.parameters.copy(), 0
        checkpoints, every = None, settings.faults.steps_to_checkpoint(number)
        if every is not None:
            models = StateFile(self.shared.states[0])
            checkpoints = PeerCheckpoints(every, lambda *kept: models.add({"model": kept}))
            if (newest := models.newest()) is not None:
                version, parameters = newest["model"]
        half = computation.peer_half(settings, layout, parameters, number, version)
        computing = computation.computing(settings)
        part = self.loaded.parts[number] if number < computing else _NONE
        dataset = self.loaded.data.take(part, test=False)
        batches = times = None
        if number < computing:
            batches = computation.batches(settings, dataset, part, number, incarnation=incarnation)
            times = PacedTimes(self.loaded.times.of_device(number), self.shared.paces, number)
        both = codecs(settings.encoding, layout.sizes)
        neighbours = computation.neighbours(settings)[number]
        told = computation.diagnostics(settings)
        goal = objective(settings)
        mine = PeerComputation(half, batches, both, neighbours, goal, told, checkpoints)
        longest = max(codec.longest for codec in both)
        evaluated = number == settings.network.evaluated_peer
        spill = self.shared.spill(number) if evaluated else None
        report = RoleReporter(self.report)
        meeting = PeerConnections(
            *(settings, number, neighbours, layout.total, longest), report, spill, incarnation
        )
        line = self.shared.board.device(number)
        parts = settings, number, mine, self._learners(), leave, meeting, line
        at_wall = settings.timing.clock == "wall"
        peer: PeerProcess = WallPeer(*parts, times=times) if at_wall else OrderedPeer(*parts)
        peer.run(arguments["others"] if incarnation else None)

    def _evaluate(self) -> None:
        if self.shared.orders is not None:
            self.shared.orders.close()
        loaded = self.loaded
        line = self.shared.board.device(evaluator_line(loaded.settings.workers))
        dataset = loaded.data.take(_NONE, test=True)
        cut = loaded.pushed.cut
        evaluate(loaded.settings, dataset, loaded.learner, cut, self.report, line)

    def _work(self, number: int, arguments: RoleArguments) -> None:
        leaves, loaded = self.shared.orders, self.loaded
        leave = None if leaves is None else leaves.of_device(number, OrderChannel)
        line = self.shared.board.device(number)
        settings = loaded.settings
        part = loaded.parts[number]
        dataset = loaded.data.take(part, test=False)
        # Under the virtual clock, the clock itself makes the faults happen.
        faults = settings.faults.rules if settings.timing.clock == "wall" else ()
        schedule = Schedule(faults, settings.seed, settings.workers)
        pushes = arguments.get("pushes", 0)
        identity = Identity(number, arguments.get("incarnation", 0), arguments.get("kills", 0))
        report = RoleReporter(self.report)
        parking = FaultsAfterPushes(schedule, number, self.shared.paces, report.send, pushes)
        pushed = loaded.pushed
        if settings.calls_aggregator(number):
            pushed = PushedParts.of_caller(settings, loaded.learner.layout, number)
        both = pushed, loaded.times
        memory = StateFile(self.shared.states[0], STORED) if self.shared.states else None
        work(
            *(settings, identity, dataset, part, self._learners(), *both, leave, line, parking),
            states=memory,
        )

    def _learners(self) -> TurnTaking:
        return TurnTaking(self.loaded.learner, self.loaded.shared_learners, self.shared.turns)


def load(arguments: RunArguments) -> Role[RoleArguments]:
    """Load libraries, dataset and model, and return the function that runs a forked role with them."""
    shared = SharedResources.make(arguments)
    turns = 0 if shared.turns is None else shared.turns.count
    return functools.partial(_load(arguments, turns).run_forked, shared, arguments)


RoleAlone: TypeAlias = Callable[[RoleArguments, Channel, Sequence[int]], int]
"""A ``Role`` that also takes the descriptors of the resources that the run's roles share."""


def load_alone(arguments: RunArguments) -> RoleAlone:
    """Do the same as ``load``, for the only role of this process."""
    return functools.partial(_load(arguments, 0, alone=True).run, arguments)


def _load(arguments: RunArguments, turns: int, *, alone: bool = False) -> Loaded:
    torch.set_num_threads(1)
    settings = Settings.of_plain(arguments["settings"])
    of = settings.spec.dataset
    contents = datasets.contents(settings.dataset, of.scaling, of.train_images, settings.seed)
    parts = computation.parts(settings, contents.train[1])
    settings = computation.with_images(settings, parts)
    learner = computation.learner(settings, contents.inputs)
    learner.parameters[:] = computation.initial(settings, contents.inputs)
    shared = tuple(learner.twin() for _ in range(turns))
    for one in shared:
        one.share_memory()
    data = contents if alone else contents.whole()
    every = arguments.get("checkpoint_every")
    pushed = PushedParts.of_run(settings, learner.layout)
    times, remember = Times.of(settings), bool(arguments.get("states"))
    loaded = Loaded(settings, data, parts, learner, pushed, shared, times, every, remember)
    loaded.warm_up()
    return loaded

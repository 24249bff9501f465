"""What the fork server loads once and what it runs in every node."""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from testbed.channel import Channel
from testbed.learning import datasets
from testbed.learning.batches import Batches
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.nodes.fork_server import Role
from testbed.nodes.turns import Turns
from testbed.roles import computation
from testbed.roles.computation import Times
from testbed.roles.coordinator import Coordinator
from testbed.roles.evaluator import evaluate
from testbed.roles.leave import Leaves
from testbed.roles.meeting import Meeting
from testbed.roles.peer import Peer
from testbed.roles.peer_computation import PeerComputation, codecs
from testbed.roles.reporting import Report
from testbed.roles.server import Server
from testbed.roles.settings import Settings
from testbed.roles.turn_taking import TurnTaking
from testbed.roles.virtual_server import VirtualServer
from testbed.roles.worker import work
from testbed.streams import stream
from testbed.telemetry.board import Board, evaluator_line, hub_line, lines_of
from testbed.wire import WireError

FAILED = 1
"""Exit status of a role that ended with an error; the error itself went to the run's events."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What all nodes of a run share, copy-on-write or for good.

    ``leaves`` are the virtual clock's channels; None under the wall clock. On the ``board`` the nodes
    write how they stand.
    """

    settings: Settings
    dataset: datasets.Dataset
    learner: Learner
    shared_learners: tuple[Learner, ...]
    turns: Turns
    times: Times
    leaves: Leaves | None
    board: Board

    def warm_up(self) -> None:
        """Compute once: what the libraries set up at first use is set up once, for all nodes."""
        seed = self.settings.seed
        order = stream(seed, "warm-up").permutation(len(self.dataset.train_images))
        generator = stream(seed, "warm-up batches")
        batches = Batches(self.dataset, order, self.settings.batch_size, generator)
        for learner in (self.learner, *self.shared_learners):
            learner.gradient(*batches.next())

    def run(self, arguments: Mapping[str, Any], report: Channel) -> int:
        """Run a role in a node; returns the node's exit status."""
        number = int(arguments["number"])
        roles: dict[str, Callable[[], None]] = {
            "server": lambda: self._serve(report),
            "evaluator": lambda: self._evaluate(report),
            "worker": lambda: self._work(number),
            "peer": lambda: self._exchange(number, report),
            "coordinator": lambda: self._coordinate(report),
        }
        try:
            roles[arguments["role"]]()
        except Exception as error:
            if not isinstance(error, OSError | WireError):
                traceback.print_exc()
            text = f"{type(error).__name__}: {error}"[:1000]
            report.send({"event": text, "level": "error", "number": number})
            return FAILED
        return 0

    def _serve(self, report: Channel) -> None:
        settings, layout = self.settings, self.learner.layout
        half = computation.server_half(settings, layout, self.learner.parameters.copy())
        if self.leaves is None:
            Server(settings, half, layout, report, self.board).serve()
            return
        local_steps = computation.worker_half(settings, layout).local_steps
        VirtualServer(
            settings,
            half,
            layout,
            report,
            times=self.times,
            local_steps=local_steps,
            leaves=self.leaves.of_clock(),
            board=self.board,
        ).serve()

    def _coordinate(self, report: Channel) -> None:
        assert self.leaves is not None
        settings, layout = self.settings, self.learner.layout
        half = computation.peer_half(settings, layout, self.learner.parameters, 0)
        Coordinator(
            settings,
            self.times,
            self.leaves.of_clock(),
            report,
            computing=computation.computing(settings),
            tells=half.paced or half.answers,
            line=self.board.device(hub_line(settings.workers)),
        ).run()

    def _exchange(self, number: int, report: Channel) -> None:
        assert self.leaves is not None
        settings, layout = self.settings, self.learner.layout
        leave = self.leaves.of_device(number)
        initial = self.learner.parameters.copy()
        half = computation.peer_half(settings, layout, initial, number)
        computing = computation.computing(settings)
        batches = times = None
        if number < computing:
            shards = datasets.shards(len(self.dataset.train_images), computing, settings.seed)
            batches = computation.batches(settings, self.dataset, shards[number], number)
            times = self.times.of_device(number)
        both = codecs(settings.encoding, layout.sizes)
        learners = TurnTaking(self.learner, self.shared_learners, self.turns)
        mine = PeerComputation(half, batches, both)
        longest = max(codec.longest for codec in both)
        meeting = Meeting(settings, number, layout.total, longest, Report(report))
        line = self.board.device(number)
        Peer(settings, number, mine, learners, leave, meeting, line).run(times)

    def _evaluate(self, report: Channel) -> None:
        if self.leaves is not None:
            self.leaves.close()
        line = self.board.device(evaluator_line(self.settings.workers))
        evaluate(self.settings, self.dataset, self.learner, report, line)

    def _work(self, number: int) -> None:
        leave = None if self.leaves is None else self.leaves.of_device(number)
        learners = TurnTaking(self.learner, self.shared_learners, self.turns)
        line = self.board.device(number)
        work(self.settings, number, self.dataset, learners, self.times, leave, line)


def load(arguments: Mapping[str, Any]) -> Role:
    """Load libraries, dataset and model; returns the function that runs a role with them.

    Args:
        arguments: of ``Settings``, and ``board``, the descriptor of the board if there is one.
    """
    torch.set_num_threads(1)
    of_settings = dict(arguments)
    descriptor = of_settings.pop("board", None)
    settings = Settings(**of_settings)
    lines = lines_of(settings.workers)
    board = Board.private(lines) if descriptor is None else Board.open(descriptor)
    dataset = datasets.load(
        settings.dataset, settings.scaling, settings.train_images, settings.seed
    )
    learner = Learner(settings.model, settings.batch_size)
    learner.parameters[:] = initialise(
        settings.model, settings.initialisation, stream(settings.seed, "initial")
    )
    turns = Turns()
    shared = tuple(Learner(settings.model, settings.batch_size) for _ in range(turns.count))
    for one in shared:
        one.share_memory()
    # Peers have a coordinator under either clock.
    coordinated = settings.clock == "virtual" or bool(settings.peer_addresses)
    leaves = Leaves(settings.workers) if coordinated else None
    times = Times.of(settings)
    loaded = Loaded(settings, dataset, learner, shared, turns, times, leaves, board)
    loaded.warm_up()
    return loaded.run

"""The workers as the clock around servers sees them."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from testbed.algorithms.server_half import Protocol
from testbed.algorithms.worker_half import Leg
from testbed.clock import (
    background,
    rate_courses,
    server_processors,
    shared_transfers,
    usage_counters,
)
from testbed.clock.background import Background
from testbed.clock.conversations import Conversations, conversations
from testbed.clock.event_clock import TimedDevice
from testbed.clock.lines import lines
from testbed.clock.shared_transfers import SharedTransfers
from testbed.clock.stage import Arrived
from testbed.clock.traced_line import TracedLine
from testbed.clock.transfers import Line
from testbed.engine.events import Job, Opened, Received
from testbed.engine.overlapping_worker import OverlappingWorker, worker_of
from testbed.engine.server import Phase
from testbed.engine.worker import State, Worker
from testbed.experiment.sections.timing import CostsSpec
from testbed.training.gathering import Gathering
from testbed.training.parameter_service import Pushed
from testbed.training.settings import Settings
from testbed.training.silence import Silence
from testbed.updates import DenseUpdate, SparseUpdate


@dataclass(slots=True)
class TimedWorker(TimedDevice):
    """One worker and its links, as the clock sees them.

    ``role`` decides what it does. ``begun`` counts its computations; ``finished`` and ``ahead`` are
    about the last of them: whether the clock has reached its end, and whether the worker was told of it
    before. ``held_up`` are the seconds by which its end is late as a server on the same machine handled
    messages. ``waiting`` are its messages that were received and have not arrived, by server, and
    ``early`` those that were received before they were sent, by the clock. What an aggregator does its
    own role decides, and of this one only that it asks is of use.
    """

    role: Worker
    waiting: list[deque[Arrived]]
    early: list[deque[Arrived]]
    begun: int = 0
    finished: bool = False
    ahead: bool = False
    held_up: float = 0.0

    @classmethod
    def joining(cls, role: Worker, servers: int, up: Line, down: Line) -> Self:
        """Return the state of a worker that has joined ``servers`` servers, and asked where it asks."""
        for conversation in range(servers):
            deque(role.handle(Opened(conversation)), maxlen=0)
        waiting, early = ([deque[Arrived]() for _ in range(servers)] for _ in range(2))
        return cls(up, down, role, waiting, early)


STORED: tuple[type, ...] = (
    TimedWorker,
    Worker,
    OverlappingWorker,
    State,
    Phase,
    Job,
    Received,
    Gathering,
    *shared_transfers.STORED,
    *usage_counters.STORED,
    *server_processors.STORED,
    Line,
    TracedLine,
    *rate_courses.STORED,
    *background.STORED,
    Silence,
    Leg,
    Arrived,
    Pushed,
    DenseUpdate,
    SparseUpdate,
)
"""The classes in the states of a clock and its service, besides plain values and arrays."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The workers of a run, as its clock has to know them.

    Attributes:
        workers: their numbers; each has joined all services, and asked if that is the protocol.
        busy: returns the seconds that a worker computes, and those that it then waits, from a moment
            on, for a number of gradients; called once for each computation, in order.
        transfers: where workers share links, what passes them; the lines are not used then.
        background: the run's background traffic; None without.
        conversations: which worker talks to which server; None: each to all.
        costs: what messages cost the processors of servers; None: nothing.
        co_located: the number of workers, the first ones, that share the processor of a server.
    """

    workers: Sequence[int]
    role: Callable[[int], Worker]
    busy: Callable[[int, float, int], tuple[float, float]]
    lines: Callable[[int], tuple[Line, Line]]
    transfers: SharedTransfers | None = None
    background: Background | None = None
    conversations: Conversations | None = None
    costs: CostsSpec | None = None
    co_located: int = 0

    @classmethod
    def of(
        cls,
        settings: Settings,
        workers: Sequence[int],
        protocol: Protocol,
        busy: Callable[[int, float, int], tuple[float, float]],
    ) -> Self:
        """Return the workers of a run with servers, from its settings."""
        numbers, beside = conversations(settings), background.background(settings)
        return cls(
            workers,
            role=lambda one: worker_of(settings, protocol, len(numbers.of_worker(one)), one),
            busy=busy,
            lines=lambda worker: lines(settings, worker, numbers.of_worker(worker)[0], beside),
            transfers=shared_transfers.shared_transfers(settings, beside),
            background=beside,
            conversations=numbers,
            costs=settings.spec.costs,
            co_located=settings.network.co_located,
        )

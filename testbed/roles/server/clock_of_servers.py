"""The virtual clock of several servers, in a process of its own that drives them.

It has the state of every worker at every server; the servers have the parameters and the connections.
Devices get their orders as from the clock in a server's process.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.channel import Channel
from testbed.clock.conversations import Conversations
from testbed.clock.devices import devices
from testbed.clock.faults import star_clock
from testbed.clock.stage import Arrived
from testbed.clock.star import StarClock
from testbed.errors import RunError
from testbed.faults.active_faults import ActiveFaults
from testbed.faults.schedule import Schedule
from testbed.messages import driving
from testbed.messages.codec import send
from testbed.messages.driving import FROM_SERVER, Gathered, Outcome, Request
from testbed.messages.reports import (
    FaultReported,
    TrainingBegun,
    WorkerSuspected,
    WorkerWelcomed,
)
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.reporting import Report
from testbed.roles.server.connections import REPORT_PERIOD
from testbed.roles.server.virtual_server import STOPPING
from testbed.telemetry.records import UpdateRow
from testbed.training.parameter_service import ParameterService, Pushed
from testbed.training.settings import Settings
from testbed.training.slices import slices
from testbed.training.times import Times
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.updates import DenseUpdate, Layout, Update

_NOTHING = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class UpdateElsewhere(DenseUpdate):
    """Stands for an update that its server has; ``number`` is the server's own."""

    number: int = 0


class RemoteServer(ServerHalf):
    """A server in another process, as the clock's process sees it: the half of the algorithm."""

    def __init__(self, channel: Channel, protocol: Protocol, needed: int) -> None:
        super().__init__(_NOTHING)
        self.protocol, self.needed = protocol, needed
        self._channel = channel
        self.crowded = False

    def gathered(self) -> Gathered:
        """Wait until the server has all its workers."""
        told = FROM_SERVER.receive(self._channel)
        if not isinstance(told, Gathered):
            raise ConnectionResetError("a server is gone")
        return told

    def ask(self, request: Request) -> Any:
        """Have the server do something, and return the value that came of it.

        Raises:
            ValueError: a worker's message is invalid.
            ConnectionError: the server is gone.
        """
        send(self._channel, request)
        told = FROM_SERVER.receive(self._channel)
        if not isinstance(told, Outcome):
            raise ConnectionResetError("a server is gone")
        self.version = told.version
        if told.error is not None:
            raise ValueError(told.error)
        return told.value

    def end(self, request: driving.End) -> None:
        """Have the server end; it does not answer any more."""
        send(self._channel, request)

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        return self.version if self.ask(driving.Pull(worker, time)) else None

    def push(
        self,
        worker: int,
        update: Update,
        base_version: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        assert isinstance(update, UpdateElsewhere)
        delay: int | None = self.ask(driving.Apply(worker, update.number, base_version, loss, time))
        return delay

    def finished(self, worker: int, base_version: int, *, time: float = math.nan) -> None:
        self.ask(driving.Reported(worker, base_version, time))

    def diagnose(self) -> Mapping[str, float]:
        values: Mapping[str, float] = self.ask(driving.Diagnose())
        return values

    def joined(self, worker: int) -> None:
        self.ask(driving.Join(worker))

    def forget(self, worker: int) -> None:
        self.ask(driving.Forget(worker))

    def track_changes(self) -> None:
        """Do nothing: the server tracks them itself."""


class _Observer:
    """The observer of one server's service."""

    def __init__(self, server: RemoteServer, report: Report, clock: "ClockOfServers") -> None:
        self._server = server
        self.report = report
        self._clock = clock
        self.service: ParameterService

    def row(self, row: UpdateRow, version: int) -> None:
        self.report.row(row, version)

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        self.report.diagnosed(values, version)

    def evaluation_due(self) -> None:
        service = self.service
        # No evaluation is on record before the updates that led to it.
        self.report.flush()
        self._server.crowded = self._server.ask(
            driving.Evaluate(self._clock.now, service.ledger, service.finished)
        )

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        self.report.send(WorkerSuspected(worker, silent, time, version))

    def welcomed(self, worker: int, time: float, version: int) -> None:
        self.report.send(WorkerWelcomed(worker, time, version))


class ClockOfServers:
    """The clock of one run with several servers, and its stage."""

    def __init__(
        self,
        settings: Settings,
        layout: Layout,
        halves: Sequence[ServerHalf],
        times: Times,
        *,
        local_steps: int,
        servers: Sequence[Channel],
        workers: Sequence[OrderChannel],
        report: Channel,
    ) -> None:
        """Make the clock of a run.

        Args:
            halves: like those of the servers; they say how workers get parameters.
            local_steps: gradients in each computation.
            servers: to the servers, by their indices.
            workers: for the clock's orders, one per worker.
            report: to the orchestrator.
        """
        self._settings = settings
        self._orders = workers
        self._numbers = Conversations(settings.servers)
        self._protocol = WORKER_PROTOCOLS[halves[0].protocol]
        self._servers = [
            RemoteServer(channel, half.protocol, half.needed)
            for channel, half in zip(servers, halves, strict=True)
        ]
        self._observers = [
            _Observer(server, Report(report, index), self)
            for index, server in enumerate(self._servers)
        ]
        self._services = [
            ParameterService(server, one.layout, settings, observer, index=index)
            for index, (server, one, observer) in enumerate(
                zip(self._servers, slices(layout, settings.servers), self._observers, strict=True)
            )
        ]
        for observer, service in zip(self._observers, self._services, strict=True):
            observer.service = service
        self._busy = times.busy(local_steps)
        self._active_faults = ActiveFaults()
        self._stopped = [False] * settings.servers
        self._clock: StarClock | None = None
        self._began = self._reported = 0.0

    @property
    def now(self) -> float:
        """The virtual seconds since training began; 0 before that."""
        return self._clock.now if self._clock else 0.0

    def run(self) -> None:
        """Wait for the workers, run the clock to the end of training, and end the servers."""
        there = self._join()
        self._began = time.monotonic()
        for observer in self._observers:
            observer.report.send(TrainingBegun(self._began, observer.report.server))
        timed = devices(self._settings, there, self._protocol, self._busy)
        schedule = Schedule(
            self._settings.faults.rules, self._settings.seed, self._settings.workers
        )
        self._clock = clock = star_clock(self._services, self, timed, schedule)
        clock.run(self._between)
        if not clock.finished:
            self._report.event("error", clock.why_it_ended)
        clock.drain()
        unreachable = sorted(self._active_faults.under(STOPPING))
        for observer in self._observers:
            observer.report.flush()
        for server, service in zip(self._servers, self._services, strict=True):
            server.end(driving.End(service.ledger, unreachable))
        for channel in self._orders:
            channel.give(OrderKind.STOP)

    @property
    def _report(self) -> Report:
        return self._observers[0].report

    def _join(self) -> list[int]:
        """Let the workers that are connected to all servers join their services; return them."""
        gathered = [server.gathered() for server in self._servers]
        there = sorted(set.intersection(*(set(one.workers) for one in gathered)))
        if not there:
            raise RunError("no worker is connected to all servers")
        for service, one in zip(self._services, gathered, strict=True):
            sizes = dict(zip(one.workers, one.sizes, strict=True))
            for worker in there:
                service.join(worker)
                for size in sizes[worker]:
                    service.count(worker, size)
                if self._protocol.asks:
                    service.asked(worker)
        return there

    def _between(self) -> None:
        """Do what is due between two events of the clock."""
        for index, service in enumerate(self._services):
            if service.finished and not self._stopped[index]:
                self._stopped[index] = True
                self._servers[index].ask(driving.Stop())
        now = time.monotonic()
        if now - self._reported > REPORT_PERIOD:
            self._reported = now
            for observer in self._observers:
                observer.report.flush()
        while all(server.crowded for server in self._servers):
            time.sleep(0.01)
            for server in self._servers:
                server.crowded = server.ask(driving.LookAtEvaluator())

    def _server(self, conversation: int) -> tuple[int, int, RemoteServer]:
        """Return a conversation's worker, its server's index, and the server."""
        index = self._numbers.server(conversation)
        return self._numbers.worker(conversation), index, self._servers[index]

    # -- the clock's stage

    def answer(self, conversation: int) -> int:
        """Send a worker the parameters that it is due; return the message's bytes."""
        worker, index, server = self._server(conversation)
        sent = self._services[index].answered(worker)
        size: int = server.ask(driving.Answer(worker, sent))
        return size

    def arrived(self, conversation: int, version: int) -> None:
        """Do nothing: a worker that asks sees that itself, the others are told when they begin."""

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        """Tell a worker that is sent every version at which versions to compute now."""
        if self._protocol.asks:
            return
        for index, version in enumerate(versions):
            self._orders[worker].give(OrderKind.ARRIVED, version * len(versions) + index)
        self._orders[worker].give(OrderKind.BEGIN)

    def finish(self, worker: int, late: bool) -> None:
        """Tell a worker that its computation is over."""
        self._orders[worker].give(OrderKind.FINISHED, int(late))

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        """Wait for the message of a worker that has finished, and return it; None if it is gone."""
        worker, _, server = self._server(conversation)
        found = server.ask(driving.Receive(worker))
        if found is None:
            return None
        base_version, number, payload_bytes, loss, sizes = found
        update = None if number is None else UpdateElsewhere(_NOTHING, number)
        return Arrived(Pushed(base_version, update, payload_bytes, loss), tuple(sizes))

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began."""
        return time.monotonic() - self._began

    def refuse(self, conversation: int, error: ValueError) -> None:
        """Close the connections of a worker that sent what it must not."""
        worker = self._numbers.worker(conversation)
        for server in self._servers:
            server.ask(driving.Refuse(worker, f"{error}"))

    # -- faults

    def fault(self, record: dict[str, Any]) -> None:
        """Report the begin or end of a fault to the orchestrator, which carries it out."""
        self._active_faults.take(record)
        for observer in self._observers:
            observer.report.flush()
        self._report.send(FaultReported(record))

    def server_killed(self, number: int, begin: dict[str, Any], end: dict[str, Any]) -> None:
        """Raise an error: the experiment file's conflicts allow no such fault."""
        raise AssertionError("one of several servers cannot be killed")

    def lose(self, worker: int) -> None:
        """Do nothing: what a worker has is dropped with it."""

    def killed(self, worker: int) -> None:
        """Note that a worker is killed: what its connections still bring is ignored."""
        self._active_faults.killed(worker)
        for server in self._servers:
            server.ask(driving.Killed(worker))

    def returned(self, worker: int, incarnation: int) -> Sequence[int] | None:
        """Wait until a killed worker has greeted all servers and, where workers ask, has asked."""
        found = [server.ask(driving.Return(worker)) for server in self._servers]
        return None if any(one is None for one in found) else list(found[0])

"""The virtual clock of several servers, or of a server and aggregators, in a process of its own.

It drives them: it has the state of every worker at every server; the servers have the parameters and
the connections. Devices get their orders as from the clock in a server's process.
"""

import time
from collections.abc import Sequence
from typing import Any

from testbed.algorithms.aggregator_half import CombiningHalf
from testbed.algorithms.server_half import ServerHalf
from testbed.channel import Channel
from testbed.clock.aggregators import TimedAggregators
from testbed.clock.conversations import conversations
from testbed.clock.devices import devices
from testbed.clock.faults import star_clock
from testbed.clock.stage import Arrived
from testbed.clock.star import StarClock
from testbed.errors import RunError
from testbed.faults.active_faults import ActiveFaults
from testbed.faults.schedule import Schedule
from testbed.messages import driving
from testbed.messages.reports import FaultReported, TrainingBegun
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.reporting import Report
from testbed.roles.server.connections import REPORT_PERIOD
from testbed.roles.server.remote_servers import (
    NOTHING,
    Observer,
    ObserverOfAggregator,
    RemoteAggregator,
    RemoteServer,
    UpdateElsewhere,
)
from testbed.roles.server.virtual_server import STOPPING
from testbed.training.aggregator_service import AggregatorService
from testbed.training.parameter_service import ParameterService, Pushed
from testbed.training.settings import Settings
from testbed.training.slices import slices
from testbed.training.times import Times
from testbed.training.worker_protocols import WORKER_PROTOCOLS
from testbed.updates import Layout


class ClockOfServers:
    """The clock of one run with several servers or with aggregators, and its stage."""

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
            halves: like those of the servers and then of the aggregators; they say how workers get
                parameters.
            local_steps: gradients in each computation.
            servers: to the servers and aggregators, by their indices.
            workers: for the clock's orders, one per worker.
            report: to the orchestrator.
        """
        self._settings = settings
        self._orders = workers
        self._numbers = conversations(settings)
        self._protocol = WORKER_PROTOCOLS[halves[0].protocol]
        self._servers: list[RemoteServer] = []
        self._observers: list[Observer] = []
        self._services: list[ParameterService] = []
        self._aggregators: list[AggregatorService] = []
        layouts = [one.layout for one in slices(layout, settings.servers)]
        for index, (half, channel) in enumerate(zip(halves, servers, strict=True)):
            if isinstance(half, CombiningHalf):
                self._add_aggregator(half, channel, layout, Report(report, index))
            else:
                self._add_server(half, channel, layouts[index], Report(report, index))
        self._busy = times.busy(local_steps)
        self._active_faults = ActiveFaults()
        self._stopped = [False] * settings.serving
        self._clock: StarClock | None = None
        self._began = self._reported = 0.0

    def _add_server(
        self, half: ServerHalf, channel: Channel, layout: Layout, report: Report
    ) -> None:
        server = RemoteServer(channel, half.protocol, half.needed)
        observer = Observer(server, report, lambda: self.now)
        observer.service = ParameterService(
            server, layout, self._settings, observer, index=report.server
        )
        self._servers.append(server)
        self._observers.append(observer)
        self._services.append(observer.service)

    def _add_aggregator(
        self, half: ServerHalf, channel: Channel, layout: Layout, report: Report
    ) -> None:
        server = RemoteAggregator(channel, half.protocol, half.needed)
        observer = ObserverOfAggregator(server, report, lambda: self.now)
        service = AggregatorService(server, layout, self._settings, observer, index=report.server)
        self._servers.append(server)
        self._observers.append(observer)
        self._services.append(service)
        self._aggregators.append(service)

    @property
    def now(self) -> float:
        """The virtual seconds since training began; 0 before that."""
        return self._clock.now if self._clock else 0.0

    def run(self) -> None:
        """Wait for the workers, run the clock to the end of training, and end the servers."""
        there = self._join()
        self._began = time.monotonic()
        for observer in self._observers[: self._settings.servers]:
            observer.report.send(TrainingBegun(self._began, observer.report.server))
        timed = devices(self._settings, there, self._protocol, self._busy)
        schedule = Schedule(
            self._settings.faults.rules, self._settings.seed, self._settings.workers
        )
        self._clock = clock = star_clock(self._services, self, timed, schedule)
        if self._aggregators:
            clock.aggregators = TimedAggregators(clock, self._aggregators, self)
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
        """Let the workers that are connected to all their servers join these; return them."""
        numbers = self._numbers
        gathered = [server.gathered() for server in self._servers]
        sizes = [dict(zip(one.workers, one.sizes, strict=True)) for one in gathered]
        there = [
            worker
            for worker in range(self._settings.evaluator)
            if all(worker in sizes[numbers.server(one)] for one in numbers.of_worker(worker))
        ]
        if not there:
            raise RunError("no worker is connected to all servers")
        for worker in there:
            for one in numbers.of_worker(worker):
                index = numbers.server(one)
                service = self._services[index]
                service.join(worker)
                for size in sizes[index][worker]:
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
        evaluated = self._servers[: self._settings.servers]
        while all(server.crowded for server in evaluated):
            time.sleep(0.01)
            for server in evaluated:
                server.crowded = server.ask(driving.LookAtEvaluator())

    def _server(self, conversation: int) -> tuple[int, int, RemoteServer]:
        """Return a conversation's worker, its server's index, and the server."""
        index = self._numbers.server(conversation)
        return self._numbers.worker(conversation), index, self._servers[index]

    def _called(self, worker: int) -> list[RemoteServer]:
        """Return the servers, or the aggregator, that a worker talks to."""
        numbers = self._numbers.of_worker(worker)
        return [self._servers[self._numbers.server(number)] for number in numbers]

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

    def adopt(self, worker: int, version: int, time: float) -> None:
        """Make an aggregator serve the parameters that it was sent."""
        index = self._numbers.below(worker)
        assert index is not None
        self._aggregators[index - 1].adopt(NOTHING, version, time)

    def ask(self, worker: int) -> int:
        """Let an aggregator that rested ask its server; return the message's bytes."""
        index = self._numbers.below(worker)
        assert index is not None
        size: int = self._servers[index].ask(driving.Ask())
        return size

    def finish(self, worker: int, late: bool) -> None:
        """Tell a worker that its computation is over, or an aggregator to push what it has combined."""
        index = self._numbers.below(worker)
        if index is not None:
            self._servers[index].ask(driving.Combine())
            return
        self._orders[worker].give(OrderKind.FINISHED, int(late))

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        """Wait for the message of a worker that has finished, and return it; None if it is gone."""
        worker, _, server = self._server(conversation)
        found = server.ask(driving.Receive(worker))
        if found is None:
            return None
        base_version, number, payload_bytes, loss, count, sizes = found
        update = None if number is None else UpdateElsewhere(NOTHING, number)
        return Arrived(Pushed(base_version, update, payload_bytes, loss, count), tuple(sizes))

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began."""
        return time.monotonic() - self._began

    def refuse(self, conversation: int, error: ValueError) -> None:
        """Close the connections of a worker that sent what it must not."""
        worker = self._numbers.worker(conversation)
        for server in self._called(worker):
            server.ask(driving.Refuse(worker, f"{error}"))

    # -- faults

    def fault(self, record: dict[str, Any]) -> None:
        """Report the begin or end of a fault to the orchestrator, which carries it out."""
        self._active_faults.take(record)
        for observer in self._observers:
            observer.report.flush()
        self._report.send(FaultReported(record))

    def server_killed(
        self, server: int, number: int, begin: dict[str, Any], end: dict[str, Any]
    ) -> None:
        """Raise an error: the experiment file's conflicts allow no such fault."""
        raise AssertionError("one of several servers cannot be killed")

    def lose(self, worker: int) -> None:
        """Do nothing: what a worker has is dropped with it."""

    def killed(self, worker: int) -> None:
        """Note that a worker is killed: what its connections still bring is ignored."""
        self._active_faults.killed(worker)
        for server in self._called(worker):
            server.ask(driving.Killed(worker))

    def returned(self, worker: int, incarnation: int) -> Sequence[int] | None:
        """Wait until a killed worker has greeted all servers and, where workers ask, has asked."""
        found = [server.ask(driving.Return(worker)) for server in self._called(worker)]
        return None if any(one is None for one in found) else list(found[0])

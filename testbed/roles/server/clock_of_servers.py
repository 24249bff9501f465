"""The virtual clock of a run with servers: in the process of an only one, or in one of its own.

It drives them: it has the state of every worker at every server; the servers have the parameters and
the connections. Devices get their orders from it.

A checkpoint is one of the whole run, between two events: the clock's process asks every server for its
state, and writes all of it. If a server is killed, everything goes back: the others end their
connections, and a new clock gives every server its state back, the killed one as soon as its process is
made anew.
"""

import time
from collections.abc import Callable, Collection, Sequence

from testbed.algorithms.aggregator_half import Combined
from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.channel import Channel
from testbed.checkpoints.periodic_checkpoints import Checkpoints
from testbed.clock import device_use
from testbed.clock.conversations import conversations
from testbed.clock.stage import Arrived, ServerKilledError
from testbed.clock.star import StarClock
from testbed.clock.timed_workers import Devices
from testbed.clock.worker_faults import star_clock
from testbed.engine.server import too_few
from testbed.errors import RunError
from testbed.faults.active_faults import ActiveFaults
from testbed.messages import clock_requests
from testbed.messages.fault_changes import UNREACHABLE, FaultChange
from testbed.messages.reports import (
    CheckpointBegun,
    FaultReported,
    FaultRestored,
    ServerKillDue,
    ServerRestored,
    TrainingBegun,
)
from testbed.roles.orders import OrderChannel, OrderKind
from testbed.roles.server.driven_roles import DrivenRoles
from testbed.roles.server.kept_states import KeptStates
from testbed.roles.server.outstanding_work import OutstandingWork, orders_to_begin, orders_to_finish
from testbed.roles.server.remote_servers import NOTHING, DrivenHalf, UpdateElsewhere
from testbed.roles.server.restart import Restart, cannot_be_written
from testbed.roles.server.server_connections import REPORT_PERIOD
from testbed.training import computation
from testbed.training.parameter_service import Pushed
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings
from testbed.training.times import Times
from testbed.updates import Layout


class ClockOfServers:
    """The clock of one run with servers, and its stage."""

    def __init__(
        self,
        settings: Settings,
        layout: Layout,
        servers: Sequence[DrivenHalf],
        times: Times,
        *,
        workers: Sequence[OrderChannel],
        report: Channel,
        checkpoints: Checkpoints | None,
        remember: bool,
        restart: Restart | None,
        look_after: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the clock of a run.

        Args:
            workers: for the clock's orders, one per worker.
            remember: True if workers write what they remember, for checkpoints.
            look_after: has a server in this process handle what its kernel reports.
        """
        self._settings = settings
        self._orders = workers
        self._numbers = conversations(settings)
        self._protocol = servers[0].protocol
        overlaps = computation.overlaps(settings)
        self._tells_versions = self._protocol != "pull" or overlaps
        self._roles = roles = DrivenRoles(
            settings,
            layout,
            servers,
            report=report,
            now=lambda: self.now,
            evaluates=self._report_use,
        )
        self._servers, self._services = roles.servers, roles.services
        self._report = roles.report
        self._checkpoints, self._restart = checkpoints, restart
        self._kept = KeptStates(remember=remember)
        self._look_after = look_after
        self._busy = times.busy()
        # A worker that does not ask after each computation goes on at what it was sent before.
        again = overlaps or not all(leg.asks for leg in computation.legs(settings, 0))
        self._outstanding = OutstandingWork(self._numbers, settings.evaluator, again=again)
        self._active_faults = ActiveFaults()
        self._incarnations = [0] * settings.workers
        self._stopped = [False] * settings.serving
        self._clock: StarClock | None = None
        self._began = self._reported = 0.0

    @property
    def now(self) -> float:
        """The virtual seconds since training began; 0 before that."""
        return self._clock.now if self._clock else 0.0

    def run(self) -> None:
        """Wait for the workers, run the clock to the end of training, and end the servers.

        Raises:
            ServerKilledError: a server is to be killed, and everything goes back to a checkpoint.
        """
        if self._restart is None:
            clock = self._make_clock(self._join())
            self._begin(time.monotonic())
            if self._checkpoints is not None:
                self._write_checkpoint(clock, self._checkpoints)
        else:
            clock = self._go_on(self._restart)
        with self._roles.reported():
            clock.run(self._between)
        self._report.send(device_use.report(clock, self._settings))
        if not clock.finished:
            few = too_few(self._services[0])
            self._report.event("error", clock.why_it_ended if few is None else few.text)
        clock.drain()
        unreachable = self._unreachable()
        for server, service in zip(self._servers, self._services, strict=True):
            server.ask(clock_requests.EndTraining(service.ledger, unreachable))
        for channel in self._orders:
            channel.give(OrderKind.STOP)

    def _unreachable(self) -> list[int]:
        """Return the workers from which nothing arrives now.

        A machine's link that a server has as well stays up for real: the clock alone holds what crosses
        it, as the server has to answer meanwhile. So do aggregators.
        """
        co_located = self._settings.network.co_located
        cut_off = self._active_faults.under(UNREACHABLE)
        frozen = self._active_faults.under({"freeze"})
        found = frozen | {worker for worker in cut_off if worker >= co_located}
        return sorted(worker for worker in found if worker < self._settings.workers)

    def _report_use(self) -> None:
        """Report what devices have done until a version is to be evaluated, if that has an energy."""
        if self._clock is not None and self._settings.is_metered:
            used = device_use.report(self._clock, self._settings, at_evaluation=True)
            self._report.send(used)

    def kill(self, killed: ServerKilledError) -> Restart:
        """Have a server killed, and the others end their connections; return what follows."""
        self._roles.go_back(killed.server, killed.number)
        self.report_kill(killed)
        return Restart(killed.number, self._began, server=killed.server)

    def report_kill(self, killed: ServerKilledError) -> None:
        self._report.send(ServerKillDue(killed.number, killed.begin))

    def _begin(self, began: float) -> None:
        """Report that training begins at a moment of CLOCK_MONOTONIC, or goes on in a resumed run."""
        self._began = began
        for server in range(self._settings.servers):
            self._report.send(TrainingBegun(began, server))

    def _make_clock(self, there: Sequence[int]) -> StarClock:
        settings = self._settings
        timed = Devices.of(settings, there, self._protocol, self._busy)
        schedule = settings.schedule()
        self._clock = clock = star_clock(self._services, self, timed, schedule)
        return clock

    # -- checkpoints

    def _write_checkpoint(self, clock: StarClock, checkpoints: Checkpoints) -> None:
        """Write a checkpoint of the whole run, between two events.

        Raises:
            RunError: it cannot be written.
        """
        numbers, outstanding, version = self._numbers, self._outstanding, self._roles.version

        def needed(index: int) -> list[tuple[int, Sequence[int] | None]]:
            return [
                (worker, outstanding.needed(numbers.between(worker, index)))
                for worker in self._settings.callers(index)
            ]

        self._roles.flush()
        self._report.send(CheckpointBegun(version, time.monotonic()))
        unread = {
            index: outstanding.unread(worker)
            for worker in range(self._settings.workers, self._settings.evaluator)
            if (index := numbers.below(worker)) is not None
        }
        there, of_roles = self._roles.save(needed, unread)
        workers = [worker for worker in there if worker < self._settings.workers]
        self._kept.add({one: outstanding.remembered(one) for one in workers}, self._incarnations)
        try:
            checkpoints.write(
                version,
                {
                    "version": version,
                    "time": clock.now,
                    "there": workers,
                    "clock": clock.state(),
                    "busy": self._busy.state(),
                    "outstanding": outstanding.state(),
                    "active_faults": self._active_faults.state(),
                    "incarnations": self._incarnations,
                    "stopped": self._stopped,
                    "kept": self._kept.each,
                    **of_roles,
                },
            )
        except OSError as error:
            raise cannot_be_written(version, error) from error
        for worker, order in self._kept.orders_to_keep():
            self._orders[worker].give(*order)

    def _go_on(self, restart: Restart) -> StarClock:
        """Restore the last checkpoint, and wait until the workers are connected again."""
        assert self._checkpoints is not None
        state = self._checkpoints.newest()
        self._roles.restore(state)
        clock = self._make_clock(range(self._settings.evaluator))
        clock.restore(state["clock"])
        self._busy.restore(state["busy"])
        self._outstanding.restore(state["outstanding"])
        self._active_faults.restore(state["active_faults"])
        self._incarnations, self._stopped = state["incarnations"], state["stopped"]
        self._kept.each = state["kept"]
        self._began = restart.began()
        there = state["there"]
        told = (state["version"], there, state["counts"], self._incarnations, restart.server)
        self._report.send(ServerRestored(*told))
        # When all are back at the server that was killed, none of them is killed any more.
        self._servers[restart.server].ask(clock_requests.Gather())
        for server in self._servers:
            server.ask(clock_requests.Gather())
        for worker in there:
            kept = self._kept.orders_to_go_on(worker)
            self._orders[worker].give_all([*kept, *self._outstanding.orders(worker)])
        if restart.training is None:
            self._begin(restart.began())
        for record in self._active_faults:
            self._report.send(FaultRestored(record))
        return clock

    def _join(self) -> list[int]:
        """Have each server join the workers that are connected to all of theirs; return these."""
        numbers = self._numbers
        gathered = [server.ask(clock_requests.Gather()) for server in self._servers]
        sizes = list(map(dict, gathered))
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
                if self._protocol == "pull":
                    service.asked(worker)
        return there

    def _between(self) -> None:
        assert self._clock is not None
        if self._checkpoints is not None and self._checkpoints.due(self._roles.version):
            self._write_checkpoint(self._clock, self._checkpoints)
        for index, service in enumerate(self._services):
            if service.finished and not self._stopped[index]:
                self._stopped[index] = True
                self._servers[index].ask(clock_requests.StopWorkers())
        now = time.monotonic()
        if now - self._reported > REPORT_PERIOD:
            self._reported = now
            self._roles.flush()
            self._report.send(device_use.report(self._clock, self._settings))
            self._look_after()
        evaluated = self._servers[: self._settings.servers]
        while all(server.crowded for server in evaluated):
            time.sleep(0.01)
            for server in evaluated:
                server.crowded = server.ask(clock_requests.LookAtEvaluator())

    def _server(self, conversation: int) -> tuple[int, int, DrivenHalf]:
        index = self._numbers.server(conversation)
        return self._numbers.worker(conversation), index, self._servers[index]

    def _called(self, worker: int) -> list[DrivenHalf]:
        numbers = self._numbers.of_worker(worker)
        return [self._servers[self._numbers.server(number)] for number in numbers]

    # -- the clock's stage

    def answer(self, conversation: int) -> int:
        worker, index, server = self._server(conversation)
        service = self._services[index]
        sent, dealt = service.answered(worker), service.deal()
        needed = self._outstanding.needed(conversation) if self._checkpoints else None
        size = server.ask(clock_requests.Answer(worker, sent, needed, dealt))
        self._outstanding.sent(conversation, server.version)
        return size

    def arrived(self, conversation: int, version: int) -> None:
        """Record it: a worker that waits for it sees that itself, others are told when they begin."""
        if not self._outstanding.is_lost(self._numbers.worker(conversation)):
            self._outstanding.arrived(conversation, version)

    def compute(self, worker: int, versions: Sequence[int]) -> None:
        """Tell a worker that cannot know it by itself at which versions to compute now."""
        self._outstanding.begun(worker, versions)
        if self._tells_versions:
            self._orders[worker].give_all(orders_to_begin(versions))

    def adopt(self, worker: int, versions: Sequence[int], time: float) -> None:
        self._outstanding.begun(worker, versions)
        aggregator = worker - self._settings.workers
        self._roles.aggregators[aggregator].adopt(NOTHING, versions, time)

    def push(self, worker: int, combined: Combined | None) -> None:
        """Record that an aggregator pushes; it did so when it took what it had combined."""
        self._outstanding.told(worker, ())

    def ask(self, conversation: int) -> int:
        worker, _, server = self._server(conversation)
        index = self._numbers.below(worker)
        assert index is not None
        place = self._numbers.place(conversation)
        size = self._servers[index].ask(clock_requests.Ask(place))
        server.ask(clock_requests.Hear(worker))
        return size

    def finish(self, worker: int, reports: Collection[int]) -> None:
        self._outstanding.told(worker, reports)
        remembered = self._outstanding.remembered(worker)
        self._orders[worker].give_all(orders_to_finish(reports, remembered))

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        worker, _, server = self._server(conversation)
        found = server.ask(clock_requests.Receive(worker, keep))
        if found is None:
            return None
        self._outstanding.received(conversation)
        sizes = tuple(found.sizes)
        if found.base_version is None:
            return Arrived(None, sizes)
        update = None if found.update is None else UpdateElsewhere(NOTHING, found.update)
        push = Pushed(found.base_version, update, found.payload_bytes, found.loss, found.summed)
        return Arrived(push, sizes)

    def host_time(self) -> float:
        return time.monotonic() - self._began

    def record(self, server: int, entries: Sequence[Entry]) -> None:
        self._roles.record(server, entries)

    def refuse(self, conversation: int, error: UnexpectedMessageError) -> None:
        worker = self._numbers.worker(conversation)
        for server in self._called(worker):
            server.ask(clock_requests.Refuse(worker, f"{error}"))

    # -- faults

    def fault(self, record: FaultChange) -> None:
        self._roles.counts["faults"] += 1
        self._active_faults.take(record)
        self._roles.flush()
        self._report.send(FaultReported(record))

    def server_killed(self, server: int, number: int, begin: FaultChange, end: FaultChange) -> None:
        """Raise ServerKilledError, unless the run has come back from this kill already."""
        if self._restart is None or number > self._restart.kills:
            raise ServerKilledError(server, number, begin)
        self.fault(begin)
        self.fault(end)

    def lose(self, worker: int) -> None:
        """Expect nothing more of a worker that is frozen or cut off for good."""
        self._outstanding.lose(worker)

    def killed(self, worker: int) -> None:
        self._active_faults.killed(worker)
        self._incarnations[worker] += 1
        self.lose(worker)
        for server in self._called(worker):
            server.ask(clock_requests.Killed(worker))

    def returned(self, worker: int, incarnation: int) -> Sequence[int] | None:
        found = [server.ask(clock_requests.Return(worker)) for server in self._called(worker)]
        if found[0] is None or any(one is None for one in found):
            return None
        self._outstanding.returned(worker)
        self._orders[worker].give_all(self._kept.orders_to_begin(worker))
        return list(found[0])


def run_clock(make: Callable[[Restart | None], ClockOfServers], restart: Restart | None) -> None:
    """Run the clock of several servers, and a new one after each kill of a server."""
    while True:
        clock = make(restart)
        try:
            clock.run()
            return
        except ServerKilledError as killed:
            restart = clock.kill(killed)

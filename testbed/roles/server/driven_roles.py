"""The servers and aggregators that one virtual clock drives, each with its service and its recorder."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from testbed.channel import Channel
from testbed.checkpoints.stateful import State
from testbed.messages import clock_requests
from testbed.messages.reports import Suspected, Welcomed, counted, no_reports
from testbed.roles.recorder import Recorder
from testbed.roles.reporting import RoleReporter
from testbed.roles.server.remote_servers import DrivenHalf
from testbed.training.aggregator_service import AggregatorService, service_of
from testbed.training.parameter_service import ParameterService
from testbed.training.service_entries import Entry, EvaluationPoint, UpdateEntry
from testbed.training.settings import Settings
from testbed.training.slices import slices_of
from testbed.updates import Layout

_COUNTED = {
    UpdateEntry: "updates",
    EvaluationPoint: "evaluations",
    Suspected: "suspicions",
    Welcomed: "suspicions",
}


class DrivenRoles:
    """All roles that serve in one run, by index: the servers and then the aggregators."""

    def __init__(
        self,
        settings: Settings,
        layout: Layout,
        servers: Sequence[DrivenHalf],
        *,
        report: Channel,
        now: Callable[[], float],
        evaluates: Callable[[], None],
    ) -> None:
        """Start with roles that have no workers yet.

        Args:
            evaluates: is called when all servers have a version that is to be evaluated, at that time,
                once.
        """
        self.counts = no_reports(settings.servers)
        self.servers = list(servers)
        self.services: list[ParameterService] = []
        self.aggregators: list[AggregatorService] = []
        self._settings = settings
        self._recorders: list[Recorder] = []
        self._now, self._evaluates = now, evaluates
        self._evaluated = -1
        layouts = [one.layout for one in slices_of(settings, layout)]
        for index, server in enumerate(servers):
            own = RoleReporter(report, index)
            of_slice = layouts[index] if index < settings.servers else layout
            service = service_of(server, of_slice, settings, index=index)
            self.services.append(service)
            if isinstance(service, AggregatorService):
                self.aggregators.append(service)
            evaluate = partial(self._evaluate, server, own)
            self._recorders.append(Recorder(own, evaluate))

    def record(self, index: int, entries: Sequence[Entry]) -> None:
        """Report what a role's service has returned, and count it for checkpoints."""
        for entry in entries:
            if (kind := _COUNTED.get(type(entry))) is not None:
                self.counts[counted(kind, index)] += 1
        self._recorders[index].record(entries)

    def _evaluate(self, server: DrivenHalf, report: RoleReporter, due: EvaluationPoint) -> None:
        report.flush()  # no evaluation is on record before the updates that led to it
        if self.version >= due.version > self._evaluated:
            self._evaluated = due.version
            self._evaluates()
        evaluate = clock_requests.Evaluate(self._now(), due.ledger, due.last)
        server.crowded = server.ask(evaluate)

    @property
    def report(self) -> RoleReporter:
        """To the orchestrator, as the first server."""
        return self._recorders[0].report

    def flush(self) -> None:
        for recorder in self._recorders:
            recorder.report.flush()

    @contextlib.contextmanager
    def reported(self) -> Iterator[None]:
        """Report all rows, also if an error ends what the caller does."""
        with contextlib.ExitStack() as reports:
            for recorder in self._recorders:
                reports.enter_context(recorder.report.reported())
            yield

    @property
    def version(self) -> int:
        """The number of updates that all servers have made."""
        return min(server.version for server in self.servers[: self._settings.servers])

    def save(
        self,
        needed: Callable[[int], Sequence[tuple[int, Sequence[int] | None]]],
        unread: Mapping[int, Sequence[int]],
    ) -> tuple[list[int], dict[str, object]]:
        """Return the workers and aggregators that are connected everywhere, and the roles' state.

        Args:
            needed: returns what the workers of a role, by its index, would have to be sent again.
            unread: by the aggregators' indices, how many of its messages those that it calls have not
                read.
        """
        saved = [
            server.ask(clock_requests.Save(needed(index), unread.get(index, ())))
            for index, server in enumerate(self.servers)
        ]
        there = [
            worker
            for worker in range(self._settings.evaluator)
            if all(
                worker in one.there
                for index, one in enumerate(saved)
                if worker in self._settings.callers(index)
            )
        ]
        state = {
            "roles": [np.frombuffer(one.raw, np.uint8) for one in saved],
            "services": [service.state() for service in self.services],
            "counts": dict(self.counts),
        }
        return there, state

    def restore(self, state: State) -> None:
        """Give every role its state back; one that is killed takes it as soon as it is made anew."""
        for server, raw in zip(self.servers, state["roles"], strict=True):
            server.ask(clock_requests.Restore(raw.tobytes()))
        for service, saved in zip(self.services, state["services"], strict=True):
            service.restore(saved)
        self.counts.update(state["counts"])

    def go_back(self, killed: int, kills: int) -> None:
        """Have all roles end their connections, but for the one that is to be killed."""
        for index, server in enumerate(self.servers):
            server.ask(
                clock_requests.AwaitKill() if index == killed else clock_requests.GoBack(kills)
            )

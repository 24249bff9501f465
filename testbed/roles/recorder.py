"""The reports of what the services of servers, aggregators and peers return."""

from collections.abc import Callable, Sequence

from testbed.device_names import server_number
from testbed.faults.schedule import Schedule
from testbed.messages.reports import (
    DevicesConnected,
    FaultVersionReached,
    Suspected,
    Welcomed,
)
from testbed.roles.reporting import RoleReporter
from testbed.training.service_entries import (
    Connected,
    Diagnosed,
    Entry,
    EvaluationPoint,
    Remark,
    UpdateEntry,
)


class Recorder:
    """Reports entries to the orchestrator, and has versions evaluated."""

    def __init__(
        self,
        report: RoleReporter,
        evaluate: Callable[[EvaluationPoint], None],
        schedule: Schedule | None = None,
    ) -> None:
        """Start with nothing reported.

        Args:
            evaluate: has the current version evaluated, and the ledger's totals reported.
            schedule: the faults at versions, which are reported when they are due; None: the virtual
                clock makes them happen.
        """
        self.report = report
        self._evaluate = evaluate
        self._schedule = schedule
        self._next_fault = schedule.next_iteration(0) if schedule else None

    def go_on(self, version: int) -> None:
        """Report only the faults that are due after ``version``."""
        self._next_fault = self._schedule.next_iteration(version) if self._schedule else None

    def record(self, entries: Sequence[Entry]) -> None:
        """Report entries, in their order."""
        for entry in entries:
            match entry:
                case UpdateEntry(row, version):
                    self.report.row(row, version)
                    self.tell_reached(version)
                case Diagnosed(values, version):
                    self.report.diagnosed(values, version)
                case EvaluationPoint():
                    self._evaluate(entry)
                case Suspected() | Welcomed():
                    self.report.send(entry)
                case Connected(there):
                    self.report.send(DevicesConnected(there, self.report.server))
                case Remark(text, is_error, of_role):
                    whose = server_number(self.report.server) if of_role else None
                    self.report.event("error" if is_error else "warning", text, whose)

    def tell_reached(self, version: int) -> None:
        """Report the versions reached at which faults are due."""
        while self._next_fault is not None and version >= self._next_fault:
            assert self._schedule is not None
            self.report.flush()
            self.report.send(FaultVersionReached(self._next_fault))
            self._next_fault = self._schedule.next_iteration(self._next_fault)

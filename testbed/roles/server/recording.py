"""The reports of what the service of a server, or of an aggregator, does."""

from collections.abc import Callable, Sequence

from testbed.faults.schedule import Schedule
from testbed.messages.counted import no_reports
from testbed.messages.reports import FaultVersionReached, WorkerSuspected, WorkerWelcomed
from testbed.roles.evaluation.pending import Asked
from testbed.roles.reporting import Report
from testbed.roles.server.evaluator import Evaluator
from testbed.telemetry.records import UpdateRow
from testbed.training.parameter_service import ParameterService
from testbed.updates import as_bytes


class Recorder:
    """Reports what the service does, and has versions evaluated; a ``ServerObserver``.

    Attributes:
        counts: the number of reports so far, by the names of ``messages.counted``.
    """

    def __init__(
        self,
        report: Report,
        evaluator: Evaluator,
        now: Callable[[], float],
        schedule: Schedule | None,
    ) -> None:
        """Begin with nothing reported.

        Args:
            now: returns the seconds since training began, by the run's clock.
            schedule: the faults at versions, which are reported when they are due; None: the virtual
                clock makes them happen.
        """
        self.counts = no_reports(1)
        self._report = report
        self._evaluator = evaluator
        self._now = now
        self._schedule = schedule
        self._next_fault = schedule.next_iteration(0) if schedule else None
        self._service: ParameterService

    def observe(self, service: ParameterService) -> None:
        """Take the service that this observer was made for."""
        self._service = service

    def go_on(self, version: int) -> None:
        """Report only the faults that are due after ``version``."""
        self._next_fault = self._schedule.next_iteration(version) if self._schedule else None

    def row(self, row: UpdateRow, version: int) -> None:
        """Record a push that was taken in and led to ``version``."""
        self.counts["updates"] += 1
        self._report.row(row, version)
        self.tell_reached()

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        """Report the algorithm's diagnostics at the update that made ``version``."""
        self._report.diagnosed(values, version)

    def tell_reached(self) -> None:
        """Report the versions reached at which faults are due."""
        while self._next_fault is not None and self._service.half.version >= self._next_fault:
            assert self._schedule is not None
            self._report.flush()
            self._report.send(FaultVersionReached(self._next_fault))
            self._next_fault = self._schedule.next_iteration(self._next_fault)

    def suspected(self, worker: int, silent: float, time: float, version: int) -> None:
        """Report that a worker, silent for ``silent`` seconds, is left out from now on."""
        self.counts["suspicions"] += 1
        self._report.send(WorkerSuspected(worker, silent, time, version))

    def welcomed(self, worker: int, time: float, version: int) -> None:
        """Report that a suspected worker has sent something, and takes part again."""
        self.counts["suspicions"] += 1
        self._report.send(WorkerWelcomed(worker, time, version))

    def evaluation_due(self) -> None:
        """Handle an evaluation point: report the ledgers' totals, and have this version evaluated."""
        self.counts["evaluations"] += 1
        service, half = self._service, self._service.half
        asked = Asked(half.version, self._now(), *service.ledger)
        self._evaluator.ask(asked, as_bytes(half.parameters), last=service.finished)


class RecorderOfAggregator(Recorder):
    """The reports of what an aggregator's service does: its updates are none of the server's."""

    def row(self, row: UpdateRow, version: int) -> None:
        """Do nothing: the server's rows are those of the run."""

    def diagnosed(self, values: Sequence[float], version: int) -> None:
        """Do nothing: an aggregator has no diagnostics."""

    def evaluation_due(self) -> None:
        """Do nothing: the server has versions evaluated."""

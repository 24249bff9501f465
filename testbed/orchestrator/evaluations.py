"""The evaluations of one run: which are due, what is known of each, and when one is complete."""

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.checkpoints.checkpoint_marks import Mark, latest
from testbed.device_names import EVALUATOR_NAME
from testbed.messages.reports import EvaluationDue, EvaluationLeftOut
from testbed.orchestrator.ingress_of_servers import IngressOfServers, sum_of
from testbed.orchestrator.server_ingress import ServerIngress
from testbed.orchestrator.training_records import TrainingRecords
from testbed.run_endings import is_complete
from testbed.runs.left_out_evaluations import LeftOutEvaluations
from testbed.telemetry.entries import EvaluationMade

FIRST_WARNING = 50
"""Waiting evaluations at which the first warning is due; the next ones follow at each doubling."""


class Backlog:
    """Decides when to warn that evaluations pile up, long before the run's end has to wait for them."""

    def __init__(self) -> None:
        self._next = FIRST_WARNING

    def warning(self, waiting: int) -> str | None:
        """Return the text of a warning if ``waiting`` has reached the next threshold, else None."""
        if waiting < self._next:
            return None
        while self._next <= waiting:
            self._next *= 2
        return (
            f"{waiting:,} evaluations wait: it cannot follow, and the run ends when it has made them; "
            "a greater evaluation.every or fewer evaluation.images give it less to do"
        )


class Evaluations:
    """The evaluations of one run; complete ones are written to its records.

    Attributes:
        ingress: the servers' ingress, at each evaluation and at the end.
        left_out: the evaluations that were due and will not be made.
        missing: the versions whose results the evaluator owes, once it has ended.
    """

    def __init__(self, records: TrainingRecords, marks: Sequence[Mark], servers: int = 1) -> None:
        """Start without evaluations, or with those of the checkpoints that marks belong to.

        Args:
            marks: of each server or of all, if the run is resumed.
            servers: the number of servers; 1 among peers.
        """
        self._records = records
        each = [
            ServerIngress(wire_bytes, forgotten)
            for mark in marks
            for wire_bytes, forgotten in zip(mark.wire_bytes, mark.forgotten, strict=True)
        ]
        self.ingress = IngressOfServers(each or [ServerIngress() for _ in range(servers)])
        self.left_out = LeftOutEvaluations(latest(marks).left_out if marks else ())
        self.missing: list[int] = []
        self._backlog = Backlog()

    def expect(self, report: EvaluationDue) -> None:
        """Expect the evaluation of a version, which is due."""
        ledger: dict[str, Any] = {
            "run_time": report.run_time + self._records.servers.lateness(report.server),
            "payload_bytes": report.payload_bytes,
            "message_bytes": report.message_bytes,
            **self._records.local_bytes(report),
        }
        self.ingress.evaluation_due(
            report.server, report.version, report.host_time, ledger, again=report.after_restoration
        )

    def leave_out(self, report: EvaluationLeftOut) -> None:
        """Record that an evaluation that was due is left out."""
        expected = self.ingress.left_out(report.version)
        if expected and (warning := self.left_out.add(report.version, report.reason)):
            self._records.event("warning", warning, EVALUATOR_NAME)

    def write_complete(self) -> None:
        """Write the evaluations of which everything is known by now, and warn if many wait."""
        records = self._records
        for row in self.ingress.complete():
            records.log.take(EvaluationMade(row | {"time": row["run_time"]}))
        records.progress.evaluations_due = self.ingress.due
        if warning := self._backlog.warning(self.ingress.due):
            records.event("warning", warning, EVALUATOR_NAME)

    def go_back(
        self, server: int, version: int, since: float, forgotten: Mapping[str, int]
    ) -> None:
        """Go back to a server's checkpoint; see ``ServerIngress.go_back`` for the arguments."""
        if len(self.ingress.each) == 1:
            self.left_out.go_back(version)
        self.ingress.go_back(server, version, since, forgotten)

    def give_up(self) -> None:
        """Expect no further result: the evaluator has ended."""
        self.missing = self.ingress.give_up()

    def ingress_of_updates(self) -> dict[str, int]:
        """Return the ingress at the last update; of a run that was cut short, what is known."""
        return sum_of(self.ingress_of_servers())

    def ingress_of_servers(self) -> list[dict[str, int]]:
        """Return the part of each server in ``ingress_of_updates``, by index."""
        records = self._records
        if is_complete(records.outcome.ended):
            return self.ingress.at_last_evaluation_of_each()
        (first, *_), servers = self.ingress.each, records.servers
        if (of_peers := records.ingress_of_peers) is not None:
            return [first.so_far(of_peers, of_peers["message_bytes"])]
        known = zip(self.ingress.each, servers.pushed, servers.over_links, strict=True)
        return [one.so_far(pushed, over_links) for one, pushed, over_links in known]

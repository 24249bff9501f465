"""The evaluations of one run: which are due, what is known of each, and the ingress at each.

Each server reports its own ledger at an evaluation point. The first one's report is here before the
evaluator has the version; that of a further server, from another host, may be overtaken by the
evaluator's result, which then waits for it.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from testbed.messages.reports import (
    EvaluationDue,
    EvaluationLeftOut,
    ServerFinished,
    VersionEvaluated,
)
from testbed.orchestrator.ingress_of_servers import IngressOfServers
from testbed.orchestrator.server_ingress import ServerIngress
from testbed.orchestrator.server_reports import Servers
from testbed.runs.left_out_evaluations import LeftOutEvaluations

LEDGER = ("payload_bytes", "message_bytes")
"""The bytes of a server's ledger; there are no wire bytes, because nothing is captured."""


class PendingEvaluations:
    """The evaluations of one run.

    Attributes:
        left_out: those that were due and will not be made.
        missing: the number of those whose result will not come, once nothing comes any more.
    """

    def __init__(self, servers: Servers) -> None:
        """Start without evaluations."""
        self.left_out = LeftOutEvaluations()
        self.missing = 0
        self._servers = servers
        self._ingress = IngressOfServers([ServerIngress() for _ in range(servers.count)])
        # What the kernel's counters say of any moment is known from the beginning: nothing is counted.
        self._ingress.counted(math.inf, [0] * servers.count)
        self._awaited: set[int] = set()
        self._results: dict[int, VersionEvaluated] = {}

    def due(self, report: EvaluationDue) -> None:
        """Expect the result of a version that a server has reached."""
        server, version = report.server, report.version
        ledger: dict[str, Any] = {key: getattr(report, key) for key in LEDGER}
        ledger["run_time"] = report.run_time + self._servers.lateness(server)
        self._ingress.evaluation_due(server, version, report.host_time, ledger, again=False)
        if server == 0:
            self._awaited.add(version)
        if version in self._results:
            self.evaluated(self._results[version])

    def evaluated(self, report: VersionEvaluated) -> None:
        """Record the evaluator's result; ignore one that is not due."""
        if report.version in self._awaited:
            self._results[report.version] = report
            self._ingress.evaluated(report)

    def leave_out(self, report: EvaluationLeftOut) -> str | None:
        """Drop an evaluation that will not be made; return a warning's text if it is the first."""
        self._awaited.discard(report.version)
        self._ingress.left_out(report.version)
        return self.left_out.add(report.version, report.reason)

    def give_up(self) -> None:
        """Expect no further report: those that wait for an earlier one are complete now."""
        self.missing = len(self._ingress.give_up())

    def complete(self) -> Iterator[dict[str, Any]]:
        """Yield, once, the evaluations of which the evaluator and all servers have reported their part.

        The time of each is in seconds since training began.
        """
        for row in self._ingress.complete():
            self._awaited.discard(row["iteration"])
            self._results.pop(row["iteration"], None)
            yield row | {"time": row["run_time"]}

    def finish(self, report: ServerFinished) -> None:
        """Record the ledger of a server whose connections are all closed."""
        self._ingress.each[report.server].total = {key: getattr(report, key) for key in LEDGER}

    @property
    def ingress(self) -> dict[str, int]:
        """The ledger of all servers at the last evaluation point."""
        return _ledger(self._ingress.at_last_evaluation())

    @property
    def ingress_of_each(self) -> list[dict[str, int]]:
        """That of each server."""
        return [_ledger(one) for one in self._ingress.at_last_evaluation_of_each()]

    @property
    def after_drain(self) -> dict[str, int] | None:
        """The ledger of all servers when every connection is closed; None before that."""
        found = self._ingress.after_drain()
        return None if found is None else _ledger(found)


def _ledger(found: Mapping[str, int]) -> dict[str, int]:
    return {key: found[key] for key in LEDGER}

"""Drop records that a restored server produces a second time.

Under the virtual clock they are the same records in the same order, so that it is enough to count them:
those of each server, as the reports of several reach the orchestrator in any order.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from testbed.messages.reports import (
    EvaluationDue,
    RoleReport,
    Suspected,
    UpdatesApplied,
    Welcomed,
    counted,
)
from testbed.telemetry.update_rows import UPDATE


class Deduplication:
    """Drops a run's repeated update rows, evaluations, suspicions and fault records, by counting."""

    def __init__(self, had: Mapping[str, int] | None = None) -> None:
        """Start to count.

        Args:
            had: the number of records of each kind so far, if the run is resumed.
        """
        self._recorded: Counter[str] = Counter(had or {})
        self._expected_again: Counter[str] = Counter()

    def back_to(self, counts: Mapping[str, int]) -> None:
        """Expect records again: the server went back to a checkpoint with ``counts`` of each kind."""
        self._expected_again = Counter(
            {name: self._recorded[name] - count for name, count in counts.items()}
        )

    def to_come_again(self, kind: str, servers: int = 1) -> int:
        """Return the number of records of a kind that are on record and will be produced once more."""
        names = {counted(kind, server) for server in range(servers)}
        return sum(self._expected_again[name] for name in names)

    def is_new(self, name: str) -> bool:
        """Count the next record of a kind; return True if it is not a repeated one."""
        if self._expected_again[name] > 0:
            self._expected_again[name] -= 1
            return False
        self._recorded[name] += 1
        return True

    def new(self, report: RoleReport) -> RoleReport | None:
        """Return the new part of a role's report, or None; faults pass, to be applied again."""
        match report:
            case UpdatesApplied():
                name = counted("updates", report.server)
                count = len(report.raw) // UPDATE.itemsize
                known = min(self._expected_again[name], count)
                self._expected_again[name] -= known
                self._recorded[name] += count - known
                if known == count:
                    return None
                return replace(report, raw=report.raw[known * UPDATE.itemsize :])
            case EvaluationDue(after_restoration=False):
                return report if self.is_new(counted("evaluations", report.server)) else None
            case Suspected() | Welcomed():
                return report if self.is_new("suspicions") else None
        return report


MANY = 50
"""The number of returns to one checkpoint that is reported."""


class Repetition:
    """The returns of one run to its checkpoints, to notice that it is slow because of them.

    Under the virtual clock each kill of a server takes the run back to the last checkpoint, and a kill
    that the run has come back from does not strike once more: the run always gets on, to the next kill.
    But what is between the checkpoint and the kill is done again each time, so that the time grows with
    the square of the number of kills.
    """

    def __init__(self) -> None:
        self._version = -1
        self._times = 0

    def back_to(self, version: int) -> str | None:
        """Count a return to the checkpoint of a version; return a warning if it is due."""
        self._times = self._times + 1 if version == self._version else 1
        self._version = version
        if self._times != MANY:
            return None
        return (
            f"it is the {MANY}th return to the checkpoint of update {version:,}, and after each all "
            "that came since is done again: a smaller `checkpoints: {every: …}` makes this faster"
        )

"""The runs that are running on this host, and their state: what ``testbed top`` and its page show."""

import time
from collections.abc import Sequence
from pathlib import Path

from testbed import number_text as q
from testbed.results.reading.journals import NoRunError
from testbed.results.reading.quality import ACCURACY
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.tables.table import Table
from testbed.runs.live_status import LiveStatus, Status
from testbed.runs.runs_on_host import running_runs
from testbed.untrusted_text import printable

SHOWN_AFTER_END = 30.0
"""Seconds for which a run that has ended is still shown."""
_EVALUATION = 6
"""The place of the last evaluation in the cells of a run."""
_HEADINGS = (
    "run",
    "state",
    "engine",
    "process",
    "updates",
    "host updates/s",
    "evaluation",
    "ingress/s",
    "alive",
    "faulted",
)


class FollowedRuns:
    """The runs that are running, and those that have ended a short while ago.

    Attributes:
        left_out: for each running run that cannot be read, why not; as of the last look.
    """

    def __init__(self) -> None:
        """Follow all runs of this host that this user may see."""
        self._followed: dict[Path, LiveStatus] = {}
        self._ended: dict[Path, tuple[float, Status]] = {}
        self.left_out: list[str] = []

    def look(self) -> list[Status]:
        """Return the state of each run that can be read, oldest first."""
        running = {run.directory: run for run in running_runs()}
        found = []
        self.left_out = []
        for directory in dict.fromkeys((*self._followed, *running)):
            try:
                found.append(self._look_at(directory, running.get(directory)))
            except NoRunError as error:
                self.left_out.append(printable(f"left out: {error}"))
                self._followed.pop(directory, None)
        return found

    def _look_at(self, directory: Path, run: RecordedRun | None) -> Status:
        """Return the state of a run; ``run`` is None if it is not running any more."""
        if run is not None:
            resumed = self._ended.pop(directory, None) is not None
            if resumed or directory not in self._followed:
                self._followed[directory] = LiveStatus(run)
            return self._followed[directory].look(running=True)
        now = time.monotonic()
        if directory not in self._ended:
            self._ended[directory] = now, self._followed[directory].look(running=False)
        since, status = self._ended[directory]
        if now - since > SHOWN_AFTER_END:
            del self._followed[directory], self._ended[directory]
        return status


def table_of(statuses: Sequence[Status]) -> Table:
    """Return a table with a row for each run."""
    headings, rows = list(_HEADINGS), [list(cells(status)) for status in statuses]
    if all(status.quality == ACCURACY for status in statuses):
        headings[_EVALUATION] = "accuracy %"
        for row, status in zip(rows, statuses, strict=True):
            row[_EVALUATION] = ACCURACY.text(status.value)
    return Table(headings, rows)


def cells(status: Status) -> Sequence[str]:
    """Return a run's row; its evaluation names what was measured."""
    manifest = status.run.manifest
    updates = q.as_count(status.updates)
    if status.all_updates is not None:
        updates += f" of {status.all_updates:,}"
    rate = status.update_rate
    return (
        status.run.id,
        status.phase,
        f"{'programs' if manifest.programs else manifest.engine}, {manifest.clock}",
        str(manifest.pid),
        updates,
        q.as_decimal(rate, 1 if rate is None or rate < 100 else 0),
        status.quality.words(status.value),
        q.as_bytes(status.ingress_rate),
        f"{status.alive:,} of {manifest.workers:,}",
        q.as_count(status.faulted),
    )

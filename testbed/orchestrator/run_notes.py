"""The events of a run, and the errors of the testbed itself, as they are logged and shown."""

import contextlib
import traceback
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, TypeVar

from testbed.errors import TestbedError
from testbed.runs.outcome import RunOutcome
from testbed.runs.watching import ProgramProgress, Progress, Watcher
from testbed.telemetry.entries import Noted
from testbed.telemetry.event_kinds import SENTENCES, EventKind
from testbed.telemetry.run_log import RunLog

P = TypeVar("P", Progress, ProgramProgress)


class RunNotes(ABC, Generic[P]):
    """The events of one run; the records of a run of algorithms or of programs add what it yields.

    Attributes:
        log: the run directory.
        outcome: how the run ended, and what it came to so far.
        processes_log: the file with the output of the run's own processes.
        progress: what watchers are shown.
    """

    progress: P

    def __init__(
        self,
        log: RunLog,
        outcome: RunOutcome,
        directory: Path,
        watcher: Watcher,
        command_began: float,
    ) -> None:
        """Start without events.

        Args:
            command_began: when the command began, in seconds of CLOCK_MONOTONIC.
        """
        self.log, self.outcome = log, outcome
        self.processes_log = directory / "processes.log"
        self._watcher, self._command_began = watcher, command_began

    @abstractmethod
    def show_progress(self) -> None:
        """Show the progress to watchers and metrics."""

    def event(
        self, level: str, text: str, device: str | None, kind: EventKind = EventKind.REMARK
    ) -> None:
        """Log an event."""
        self.log.take(Noted(level, text, device, kind))

    def moment(self, kind: EventKind, device: str | None = None) -> None:
        """Log an event that has always the same sentence."""
        self.event("info", SENTENCES[kind], device, kind)

    def fail(self, error: Exception) -> None:
        """Record that an error of the testbed itself ended the run, and keep its traceback."""
        self.trace(error)
        what = error if isinstance(error, TestbedError) else f"{type(error).__name__}: {error}"
        self.outcome.ended = "failed"
        self.outcome.reason = f"the orchestrator: {what}; see {self.processes_log}"

    def trace(self, error: Exception) -> None:
        """Keep the traceback of an error in the log of processes."""
        with contextlib.suppress(OSError), self.processes_log.open("a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)

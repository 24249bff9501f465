"""A run that is to be carried out: its plan, its directory, and those that watch it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from testbed.experiment.load import dump
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan
from testbed.runs.resuming import Resumption
from testbed.runs.watching import Watcher
from testbed.telemetry.entries import Noted, Reader
from testbed.telemetry.run_log import RunLog


class LiveMetrics(Reader, Protocol):
    """The state of a run under way that is exported as metrics."""

    def progress(self, progress: Any) -> None:
        """Take the run's progress; called a few times per second."""


A = TypeVar("A", bound=AnyPlan)
L = TypeVar("L", bound=LiveMetrics)


@dataclass(frozen=True, slots=True)
class PlannedRun(Generic[A, L]):
    """A run, emulated or simulated, of algorithms or of programs.

    Attributes:
        directory: the run directory to make; that of a run that is resumed is there.
        watcher: is called with progress and events.
        began: CLOCK_MONOTONIC in seconds when the command began, from which set-up is counted.
        metrics: receives the run's state, if metrics are exported.
        resumption: what is left of the run, if it is resumed.
    """

    plan: A
    directory: Path
    watcher: Watcher
    began: float
    metrics: L | None = None
    resumption: Resumption | None = None

    def open_log(self, manifest: dict[str, Any], *readers: Reader) -> RunLog:
        """Make the run directory, or continue it.

        Args:
            readers: are shown the log's entries, as the metrics are after them.

        Raises:
            OSError: the directory cannot be made or written to.
        """
        plan = self.plan
        log = RunLog(
            self.directory,
            dump(plan.spec),
            manifest,
            kept=self.resumption.kept if self.resumption else None,
            readers=(*readers, *((self.metrics,) if self.metrics else ())),
            show=self.watcher.event,
            name=plan.names.__getitem__ if isinstance(plan, Plan) else str,
            began=self.began,
        )
        if self.resumption and isinstance(plan, Plan):
            if others := self.resumption.kept.manifest.get("hosts"):
                text = "goes on on this host alone: until now it was spread over this host and "
                log.take(Noted("warning", text + ", ".join(others)))
            for one in plan.spec.plugins:
                if one.has_changed:
                    text = f"goes on with the code of {one.source.module}.py with which the run began: "
                    text += "the file has changed, and a new run has its code"
                    log.take(Noted("warning", text))
        return log

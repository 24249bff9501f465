"""The state of a run of programs under way, for its metrics.

Of programs only what the testbed sees from outside is known: how many run, the wire bytes into the
server, what they measure, and the faults.
"""

import threading

from testbed.metrics.initial import info_of
from testbed.metrics.state import RunState
from testbed.planning.program_plan import ProgramPlan
from testbed.results.reading.quality import Quality
from testbed.run_endings import Ended
from testbed.runs.class_records import device_classes
from testbed.runs.watching import ProgramProgress
from testbed.telemetry.entries import EvaluationMade, RunEntry

_PHASES = {"loading": "loading", "programs": "training", "finishing": "finishing"}


class LivePrograms:
    """One run of programs under way; a ``testbed.metrics.exporter.MetricsSource``."""

    def __init__(self, plan: ProgramPlan, execution: str) -> None:
        """Make the state of a planned run in an execution's directory."""
        self.lock = threading.Lock()
        spec, own = plan.spec, plan.spec.measure
        named = [spec.devices.classes[i].name for i in plan.class_of]
        workers = spec.devices.workers
        self._state = RunState(
            run=f"{spec.name}/{execution}",
            algorithm=plan.label,
            info=info_of(spec, workers, spec.devices.runtime),
            target=None,
            classes=device_classes({}, spec.seed, workers, named),
            worker_names=tuple(name for name in plan.devices if name.startswith("worker-")),
            ingress={"wire": 0},
            measure=Quality(own.name, own.unit, own.better) if own and own.name else None,
        )

    def read(self) -> RunState:
        """Return the present state; the caller holds the lock."""
        return self._state

    def progress(self, progress: ProgramProgress) -> None:
        """Take in how far the run is."""
        with self.lock:
            state = self._state
            state.phase = _PHASES[progress.phase]
            state.ingress = {"wire": progress.wire_bytes}
            state.programs = {name: running for name, (running, _) in progress.running.items()}
            state.training_seconds = progress.seconds

    def take(self, entry: RunEntry) -> None:
        """Take an entry of the run's log."""
        with self.lock:
            self._state.take(entry)
            if isinstance(entry, EvaluationMade):
                self._state.updates = entry.row["iteration"]  # programs tell of no other updates

    def ended(self, ended: Ended) -> None:
        """Take in how the run has ended."""
        with self.lock:
            self._state.phase = ended
            self._state.programs = dict.fromkeys(self._state.programs, 0)

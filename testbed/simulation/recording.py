"""The record of a simulation: its journals, its outcome, and its reports to watchers and metrics.

It receives everything that happens, and keeps it in the run directory, in order. What happens a
second time, because a server was killed and the run went back to a checkpoint, is on record already
and is left out.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from testbed.checkpoints.stateful import State
from testbed.device_names import peer_name
from testbed.learning.losses import Evaluated
from testbed.messages.fault_changes import FaultChange
from testbed.messages.reports import Suspected, Welcomed
from testbed.metrics.live import LiveRun
from testbed.planning.plan import Plan
from testbed.run_tables import DeviceUtilisation
from testbed.runs import energy
from testbed.runs.background_bytes import BackgroundBytes
from testbed.runs.deduplication import Deduplication, Repetition
from testbed.runs.energy import EnergyMeter
from testbed.runs.outcome import RunOutcome, goes_on_with, manifest
from testbed.runs.planned_run import PlannedRun
from testbed.runs.shared_images import record_images
from testbed.runs.strikes import Strikes
from testbed.runs.utilisation import by_clock
from testbed.simulation.system import System
from testbed.telemetry.entries import Diagnoses, EvaluationMade, Noted, Updates
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.update_rows import UPDATE, UpdateRow
from testbed.training.service_entries import Diagnosed, Entry, EvaluationPoint, UpdateEntry
from testbed.updates import FloatVector

_ROWS = 1500


class Recording:
    """The recording of one run; a ``testbed.simulation.system.Witness``.

    Attributes:
        system: the system that is simulated; to be set before anything happens in it.
        ingress: the ledger at the last evaluation.
        background: the bytes of background traffic when ``use`` was called last.
    """

    system: System

    def __init__(
        self,
        planned: PlannedRun[Plan, LiveRun],
        *,
        evaluate: Callable[[FloatVector], Evaluated],
        exact: Callable[[FloatVector], Mapping[str, float]],
    ) -> None:
        """Make the run directory.

        Args:
            exact: returns the exact values at parameters; empty if the run computes none.

        Raises:
            OSError: the run directory could not be made.
        """
        plan, resumption = planned.plan, planned.resumption
        counts = resumption.counts if resumption else {}
        self.outcome = RunOutcome()
        self.meter = EnergyMeter(plan)
        self.background = BackgroundBytes(plan.background, is_counted=False)
        self._plan = plan
        self.log = planned.open_log(manifest(plan), self.outcome, self.meter)
        record_images(plan, planned.directory)
        self.ingress = {"payload_bytes": 0, "message_bytes": 0, "wire_bytes": 0}
        self._began = planned.began
        self._before = resumption.host_seconds if resumption else 0.0
        self._training = 0.0
        self._metrics = planned.metrics
        self._evaluate = evaluate
        self._exact = exact
        self._deduplication = Deduplication(counts)
        self._repetition = Repetition()
        self._strikes = Strikes(
            self.log,
            lambda: self.host_seconds,
            self._deduplication,
            servers=plan.settings.servers if plan.served else 0,
            workers=plan.settings.workers,
        )
        self._rows = np.empty(_ROWS, UPDATE)
        self._count = self._version = 0
        self._diagnoses: list[Sequence[float]] = []
        self._diagnosed_version = 0

    # -- resuming

    def state(self) -> State:
        """Return what a checkpoint keeps of the recording, after writing everything so far."""
        self.flush()
        suspicions = [self.outcome.suspected, self.outcome.welcomed]
        return {"counts": self._counts(), "suspicions": suspicions, "ingress": self.ingress}

    def restore(self, state: State) -> None:
        """Go on from a checkpoint of another process, to which the journals were cut back."""
        self.outcome.suspected, self.outcome.welcomed = state["suspicions"]
        self.ingress = state["ingress"]
        self._version = self.system.version

    def back_to(self, state: State | None, server: str) -> None:
        """Record that a server is back, with the run at a checkpoint or, with None, at its start.

        All that is on record stays.
        """
        self._deduplication.back_to(state["counts"] if state else dict.fromkeys(self._counts(), 0))
        version = self.system.version
        text = f"back from the checkpoint of update {version:,}" if state else "begins anew"
        self.event("info", text, server)
        if warning := self._repetition.back_to(version):
            self.event("warning", warning, server)

    def _counts(self) -> dict[str, int]:
        outcome = self.outcome
        return self.log.counts | {"suspicions": outcome.suspected + outcome.welcomed}

    @property
    def repeats(self) -> bool:
        """True if something that is on record is still to happen once more."""
        return any(map(self._deduplication.to_come_again, self._counts()))

    # -- times of the host's clock

    def training_begins(self) -> None:
        """Count the seconds of training from now on, in addition to those of earlier sessions."""
        self._training = time.monotonic() - self._before
        self.outcome.set_up = self._training - self._began

    @property
    def host_seconds(self) -> float:
        """The seconds since training began, without the time between the run's sessions."""
        return time.monotonic() - self._training

    def event(
        self, level: str, text: str, device: str | None = None, kind: EventKind = EventKind.REMARK
    ) -> None:
        self.log.take(Noted(level, text, device, kind))

    # -- what happens

    def record(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            match entry:
                case UpdateEntry(row, version):
                    self._row(row, version)
                case Diagnosed(values, version):
                    self._diagnosed(values, version)
                case EvaluationPoint():
                    self._evaluate_now()
                case Suspected() | Welcomed() if self._deduplication.is_new("suspicions"):
                    self.log.take(entry)

    def _row(self, row: UpdateRow, version: int) -> None:
        self._version = version
        if not self._deduplication.is_new("updates"):
            return
        self._rows[self._count] = row
        self._count += 1
        if self._count == _ROWS:
            self.flush()

    def _diagnosed(self, values: Sequence[float], version: int) -> None:
        self._diagnoses.append(values)
        self._diagnosed_version = version
        if len(self._diagnoses) == _ROWS:
            self.flush()

    def fault(self, record: FaultChange) -> None:
        self._strikes.write(record)

    def returned(self, peer: int, version: int) -> None:
        self.event("info", goes_on_with(version), peer_name(peer), EventKind.RETURNED)

    def _evaluate_now(self) -> None:
        if not self._deduplication.is_new("evaluations"):
            return
        self.flush()
        evaluated = self.system.evaluated
        self.ingress = evaluated.ledger
        result = self._evaluate(evaluated.parameters)
        row = {
            "iteration": evaluated.version,
            "time": self.system.clock.now,
            **result._asdict(),
            **self.ingress,
            **self._exact(evaluated.parameters),
        }
        if self._plan.settings.is_metered:
            self.log.take(energy.used(self.use(), self.system.clock.now))
        self.log.take(EvaluationMade(row))

    def use(self) -> list[DeviceUtilisation]:
        """Return how busy devices were until now, with their energies; take what flows have sent."""
        if flows := self.system.clock.background_bytes():
            sent, received = zip(*flows, strict=True)
            self.background.take(received, sent)
        found = by_clock(self._plan, self.system.clock.now, self.system.device_use())
        return self.meter.metered(found)

    # -- writing and passing on

    def tell(self) -> None:
        """Tell the metrics, if they are exported, how far the simulation is."""
        if self._metrics:
            self._metrics.simulated(self.system.clock.now, self.system.ledger())
            self.flush()

    def flush(self) -> None:
        if self._count:
            if self._metrics:
                self._metrics.simulated(self.system.clock.now, self.system.ledger())
            self.log.take(Updates(self._rows[: self._count], self._version))
            self._count = 0
        if self._diagnoses:
            values = np.array(self._diagnoses, np.float64)
            self.log.take(Diagnoses(values, self._diagnosed_version))
            self._diagnoses.clear()

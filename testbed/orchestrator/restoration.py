"""The checkpoints of a run: note how far it is at each, and go back to one.

A server writes and restores its own state. The orchestrator keeps journals, ledgers and faults in
step with it: for a server that was killed, and for a whole run that is resumed.
"""

import time
from contextlib import ExitStack

import numpy as np

from testbed.checkpoints.checkpoint_marks import Mark, latest
from testbed.messages.reports import CheckpointBegun, ServerRestored
from testbed.messages.requests import ReadIngress
from testbed.network.segments import wire_bytes as on_the_wire
from testbed.orchestrator.checkpoint_store import CheckpointStores
from testbed.orchestrator.device_processes import DeviceProcesses
from testbed.orchestrator.evaluations import Evaluations
from testbed.orchestrator.injection.injection import Injection
from testbed.orchestrator.training_records import TrainingRecords
from testbed.roles.arguments import RestartArguments
from testbed.runs.deduplication import Repetition
from testbed.runs.resuming import Resumption
from testbed.telemetry.event_kinds import EventKind


class Restoration:
    """The checkpoints of one run, and what goes back to them."""

    def __init__(
        self,
        store: CheckpointStores,
        *,
        records: TrainingRecords,
        evaluations: Evaluations,
        devices: DeviceProcesses,
        injection: Injection,
    ) -> None:
        self._store = store
        self._records = records
        self._evaluations = evaluations
        self._devices = devices
        self._injection = injection
        self._repetition = Repetition()

    @property
    def resumed(self) -> bool:
        """True if the run goes on from a checkpoint of an earlier session."""
        return self._store.resumed

    def open(self, opened: ExitStack, resumption: Resumption | None) -> None:
        """Open the checkpoints' files; restore the state at the mark of a resumed run.

        Raises:
            OSError: the files cannot be opened or cut back.
        """
        self._store.open(opened)
        marks = self._store.marks
        if resumption is None or not marks:
            return
        kept = resumption.kept
        # Faults happen at the first server's versions, and after pushes to it.
        of_first = kept.updates[kept.updates["server"] == 0]
        elapsed = latest(marks).time
        self._injection.resume(of_first, kept.records, marks[0].version, elapsed)
        self._records.resume(kept, marks)
        self._evaluations.ingress.has(kept.evaluations)

    def arguments(self) -> RestartArguments:
        """Return the arguments of servers that go on from a checkpoint; empty if they begin."""
        if not self._store.marks:
            return {}
        return {
            "restore": True,
            "kills": self._injection.server_kills,
            "training": None,
            "elapsed": latest(self._store.marks).time,
        }

    def checkpoint_begun(self, report: CheckpointBegun) -> None:
        """Record what belongs to a checkpoint that a server is about to write."""
        now, records = time.monotonic(), self._records
        elapsed = 0.0 if records.training is None else now - records.training
        self._injection.turn(now)  # all faults due before the checkpoint have begun, no later one
        counts, outcome, deduplication = records.log.counts, records.outcome, records.deduplication
        store, servers = self._store.of(report.server)
        repeated = deduplication.to_come_again("updates", records.servers.count)
        mark = Mark(
            report.version,
            time=elapsed,
            updates=counts["updates"] - repeated,
            faults=counts["faults"] - deduplication.to_come_again("faults"),
            suspected=outcome.suspected,
            welcomed=outcome.welcomed,
            workers_lost=outcome.workers_lost,
            forgotten=[dict(self._evaluations.ingress.each[one].forgotten) for one in servers],
            # The least, until the counters are read.
            wire_bytes=[on_the_wire(records.servers.over_links[one]) for one in servers],
            left_out=list(self._evaluations.left_out),
        )
        store.begin(mark, report.host_time)
        self._devices.ask(ReadIngress())

    def server_restored(self, report: ServerRestored) -> None:
        """Go back to the checkpoint that a server was restored from."""
        version, records = report.version, self._records
        name = self._devices.hubs[report.server]
        text = f"back from the checkpoint of update {version:,}"
        if records.training is None:  # the whole run is resumed: its journals already end there
            records.event("info", text, name)
        elif report.counts is not None:
            records.event("info", text, name)
            records.deduplication.back_to(report.counts)
            if warning := self._repetition.back_to(version):
                records.event("warning", warning, name)
        else:
            self._go_back(report.server, version, text)
        self._injection.restored(report.server, version, report.connected, report.incarnations)

    def _go_back(self, server: int, version: int, text: str) -> None:
        """Go back to a checkpoint under the wall clock, where later updates are lost for good."""
        self._devices.liveness.clear_suspicions()
        store, _ = self._store.of(server)
        mark = store.of(version)
        lost = self._records.go_back(server, mark)
        text += f"; {np.count_nonzero(lost['applied']):,} later updates are lost"
        self._records.event("info", text, self._devices.hubs[server], EventKind.WENT_BACK)
        (before,) = mark.forgotten
        forgotten = {name: known + int(lost[name].sum()) for name, known in before.items()}
        since = self._injection.server_exited(server)
        self._evaluations.go_back(server, version, since, forgotten)

"""The records of one run: its log and journals, and the outcome and progress that they add up to."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from testbed.checkpoints.checkpoint_marks import Mark, latest
from testbed.device_names import server_names
from testbed.experiment.model_conflicts import layout_of
from testbed.messages.agent_reports import ProcessorTimesRead
from testbed.messages.reports import EvaluationDue, PeersReceived, ServerFinished
from testbed.metrics.live import LiveRun
from testbed.orchestrator.run_notes import RunNotes
from testbed.orchestrator.server_reports import Servers
from testbed.planning.plan import Plan
from testbed.run_tables import DeviceUtilisation
from testbed.runs.deduplication import Deduplication
from testbed.runs.energy import EnergyMeter
from testbed.runs.fidelity_readings import TrainingFidelity
from testbed.runs.ledgers.ledgers import Ledgers
from testbed.runs.outcome import RunOutcome, manifest
from testbed.runs.planned_run import PlannedRun
from testbed.runs.shared_images import record_images
from testbed.runs.utilisation import Processor
from testbed.runs.watching import Progress, progress_of
from testbed.telemetry.entries import Updates
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.run_log import Kept
from testbed.training.slices import slices_of


class ProcessorWindow:
    """The processor times of devices over the time of training, from readings of the agent.

    These are the first reading since training began, and the first one after the last update so far.
    """

    def __init__(self) -> None:
        self._begun = False
        self._first: ProcessorTimesRead | None = None
        self._last: ProcessorTimesRead | None = None
        self._last_update: float | None = None

    def begin(self) -> None:
        """Open the window, as training begins or goes on in a resumed run."""
        self._begun = True

    def take(self, reading: ProcessorTimesRead, last_update: float) -> None:
        """Take in a reading; one without an update since the reading before is not needed.

        Args:
            last_update: when the last update was made, by any clock.
        """
        if not self._begun:
            return
        if self._first is None:
            self._first = reading
        elif last_update != self._last_update:
            self._last, self._last_update = reading, last_update

    @property
    def used(self) -> Mapping[str, Processor]:
        """The processor time of each device between the two readings, by its name."""
        first, last = self._first, self._last
        if first is None or last is None:
            return {}
        window = last.host_time - first.host_time
        # A device that was not there at first began from nothing.
        return {
            device: Processor(last.source, window, seconds - first.seconds.get(device, 0.0))
            for device, seconds in last.seconds.items()
        }


class TrainingRecords(RunNotes[Progress]):
    """The records of one run, which everything that handles a message adds to.

    Attributes:
        ledgers: of the traffic: those of each server and aggregator by its index, or those of the
            observed peer.
        servers: what the servers have reported.
        deduplication: drops what a restored server reports again.
        why_it_ended: what the roles have last said about why no further update is possible.
        training: when training began, in seconds of CLOCK_MONOTONIC; None before.
        training_over: whether training has ended at all servers.
        finished: whether all servers have finished.
        peers: the ledgers of peers by name, from the coordinator's last report on.
        ingress_of_peers: payload and message bytes that their coordinator has last reported; None with
            a server.
        meter: the devices' energies.
        used: how busy each device was, by the virtual clock; empty under the wall clock.
        processors: the devices' processor times during training.
        fidelity: what tells if the host kept up; None under the virtual clock.
        sampled: of the last sample of counters, by device: its time, in seconds of CLOCK_MONOTONIC, and
            the bytes sent and received.
        earlier_seconds: the seconds of the run's clock that passed in earlier sessions.
    """

    def __init__(
        self,
        planned: PlannedRun[Plan, LiveRun],
        sampled: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Make the run directory, or continue it.

        Args:
            sampled: as ``SampledLinks`` takes it.

        Raises:
            OSError: the directory cannot be made or written to.
        """
        plan, resumption = planned.plan, planned.resumption
        settings = plan.settings
        if resumption is not None:
            resumption.put_traffic_aside(planned.directory)
        outcome, meter = RunOutcome(), EnergyMeter(plan)
        log = planned.open_log(manifest(plan), outcome, meter)
        record_images(plan, planned.directory)
        super().__init__(planned, log, outcome, sampled)
        self.meter = meter
        self.progress = progress_of(settings)
        several = len(plan.serving) > 1
        self.servers = Servers(
            slices_of(settings, layout_of(plan.spec)),
            settings.aggregators,
            {
                index: plan.workers[local]
                for index in range(settings.servers)
                if (local := _local(plan, index))
            },
        )
        self.ledgers = [
            Ledgers(
                address,
                {link.address: link.node for link in plan.links},
                plan.spec.traffic.capture,
                of=plan.serving[index] if several else None,
                local=plan.network.link(local).address if (local := _local(plan, index)) else None,
                background=self.background.into(
                    plan.serving[index] if plan.serving else plan.observed
                ),
            )
            for index, address in enumerate(map(settings.address, range(settings.serving)))
        ]
        self.deduplication = Deduplication(resumption.counts if resumption else None)
        self.why_it_ended = ""
        self.training: float | None = None
        self.training_over = self.finished = False
        self._virtual = plan.spec.clock == "virtual"
        self.last_loss: str | None = None
        self.peers: Mapping[str, dict[str, object]] = {}
        nothing = None if plan.served else asdict(PeersReceived(0, 0))
        self.ingress_of_peers: Mapping[str, int] | None = nothing
        self.used: list[DeviceUtilisation] = []
        self.processors = ProcessorWindow()
        self.fidelity = TrainingFidelity(plan) if plan.spec.clock == "wall" else None
        self.sampled: dict[str, tuple[float, int, int]] = {}
        self.earlier_seconds = 0.0
        self._just_restored: int | None = None
        if resumption is not None:
            self.event("info", resumption.told, None, EventKind.RESUMED)

    @property
    def training_now(self) -> bool:
        """True from the begin of training until it has ended."""
        return self.training is not None and not self.training_over

    def begin_training(self, when: float, hub: str) -> None:
        """Record the moment of CLOCK_MONOTONIC at which training began, as ``hub`` has reported."""
        self.training = when
        self.outcome.set_up = when - self._command_began
        for ledgers in self.ledgers:
            ledgers.began = when + time.time() - time.monotonic()
            ledgers.began_monotonic = when
        self.save_ledgers()
        self.processors.begin()
        self.moment(EventKind.TRAINING_BEGAN, hub)
        self.progress.phase = "training"

    def save_ledgers(self) -> None:
        """Write the ledgers as far as they are known."""
        for ledgers in self.ledgers:
            ledgers.save(self.log.traffic)

    def add_updates(self, rows: np.ndarray[Any, Any], version: int) -> None:
        """Add rows of ``UPDATE``, which led to ``version``."""
        self.log.take(Updates(rows, version))
        if self._just_restored is not None and (rows["server"] == self._just_restored).any():
            name = server_names(self.servers.count)[self._just_restored]
            self._just_restored = None
            self.event("info", "training goes on", name)
        self.progress.moved(self.outcome.host_seconds, version)

    def peers_received(self, report: PeersReceived) -> None:
        """Take in the ingress of all peers so far."""
        self.ingress_of_peers = asdict(report)

    def local_bytes(self, report: EvaluationDue | ServerFinished) -> dict[str, int]:
        """Return a co-located server's bytes that crossed no link; nothing of any other server."""
        if not self.ledgers[report.server].local:
            return {}
        return {
            "local_payload_bytes": report.local_payload_bytes,
            "local_message_bytes": report.local_message_bytes,
        }

    def disturb(self, device: str) -> None:
        """Record that a device was lost otherwise than by a fault, while it mattered to the result."""
        outcome = self.outcome
        over = self.training_over or self.finished
        if self._virtual and not over and outcome.disturbed is None:
            outcome.disturbed = f"{device} was lost after update {outcome.updates:,}"

    def finish(self, report: ServerFinished) -> None:
        """Take in a server's last report."""
        self.finished = self.servers.finishes(report)
        if self.finished:
            self.peers = report.peers
            self.outcome.updates = self.servers.version
            parameters = self.servers.parameters
            self.log.parameters(parameters)
            self.outcome.takes(parameters)

    def resume(self, kept: Kept, marks: Sequence[Mark]) -> None:
        """Restore the state of an interrupted run at the checkpoints of marks, by server or of all."""
        outcome, mark = self.outcome, latest(marks)
        for ledgers in self.ledgers:
            ledgers.earlier_updates = len(kept.updates)
        versions = [own.version for own in marks for _ in own.wire_bytes]
        for server, version in enumerate(versions):
            outcome.updates = self.servers.reached(server, version)
            self.servers.had(kept.updates[kept.updates["server"] == server], server)
        self.earlier_seconds = outcome.last_update
        outcome.suspected, outcome.welcomed = mark.suspected, mark.welcomed
        outcome.workers_lost = mark.workers_lost
        if self._virtual and mark.workers_lost:
            outcome.disturbed = "a device was lost before the run was resumed"

    def go_back(self, server: int, mark: Mark) -> np.ndarray[Any, Any]:
        """Go back with a server to the checkpoint of a mark; return the rows of updates that are lost.

        With several servers, evaluations stay: each is of slices as their servers had them then.
        """
        several = self.servers.count > 1
        of = server if several else None
        cut_back = self.log.go_back(mark.version, mark.updates, server=of)
        self.servers.restored(server)
        self.outcome.updates = self.servers.reached(server, mark.version)
        self._just_restored = server
        if not several:
            self.outcome.keeps(cut_back.evaluations)
        return cut_back.lost


def _local(plan: Plan, index: int) -> str | None:
    """Return the worker on the machine of a server; None if the server is on its own."""
    return plan.local.get(plan.serving[index]) if plan.servers else None

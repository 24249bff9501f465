"""Handle the reports of the roles: updates, evaluations, faults, checkpoints, the end of training."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testbed.clock import device_use
from testbed.device_names import EVALUATOR_NAME
from testbed.messages.reports import (
    CheckpointBegun,
    ConnectionClosed,
    DeviceMissed,
    DevicesConnected,
    DevicesUsed,
    DiagnosticsReported,
    EvaluationDue,
    EvaluationLeftOut,
    EventReported,
    FaultReported,
    FaultRestored,
    FaultVersionReached,
    FinalParameters,
    PeerReturned,
    PeersReceived,
    RoleReport,
    ServerFinished,
    ServerKillDue,
    ServerListening,
    ServerRestored,
    Suspected,
    TrainingBegun,
    TrainingEnded,
    UpdatesApplied,
    VersionEvaluated,
    Welcomed,
    WorkerStillConnected,
)
from testbed.messages.requests import ReadIngress, ReadProcessors, SendBackground
from testbed.metrics.live import LiveRun
from testbed.orchestrator.device_processes import DeviceProcesses
from testbed.orchestrator.evaluations import Evaluations
from testbed.orchestrator.injection.injection import Injection
from testbed.orchestrator.restoration import Restoration
from testbed.orchestrator.setup_progress import SetupProgress
from testbed.orchestrator.training_records import TrainingRecords
from testbed.planning.plan import Plan
from testbed.runs import energy, utilisation
from testbed.runs.ledgers.ledgers import ConnectionLedger
from testbed.runs.outcome import goes_on_with
from testbed.telemetry.entries import Diagnoses
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.update_rows import UPDATE

GRACE = 5.0
"""Seconds after the last STOP of several servers from which workers that stay are waited for."""


NOT_UNDERSTOOD = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""The errors of handling a report whose values no role of the testbed reports."""


@dataclass(slots=True)
class RunParts:
    """The parts of a run that both the events of agents and the reports of roles change."""

    plan: Plan
    records: TrainingRecords
    evaluations: Evaluations
    devices: DeviceProcesses
    injection: Injection
    restoration: Restoration
    setup: SetupProgress
    metrics: LiveRun | None


class RoleReports:
    """Handles the reports of one run's roles."""

    def __init__(self, parts: RunParts) -> None:
        """Make the table of handlers."""
        self._plan, self._records, self._devices = parts.plan, parts.records, parts.devices
        self._evaluations, self._injection = parts.evaluations, parts.injection
        self._restoration, self._setup = parts.restoration, parts.setup
        self._metrics = parts.metrics
        records, devices, injection = parts.records, parts.devices, parts.injection
        self._others_started = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            ServerListening: self._server_listening,
            DevicesConnected: self._devices_connected,
            TrainingBegun: self._training_begun,
            UpdatesApplied: self._updates_applied,
            DiagnosticsReported: self._diagnostics_reported,
            EvaluationDue: self._evaluation_due,
            EvaluationLeftOut: parts.evaluations.leave_out,
            VersionEvaluated: parts.evaluations.ingress.evaluated,
            EventReported: self._event_reported,
            DeviceMissed: lambda report: records.disturb(devices.name(report.device)),
            Suspected: self._worker_suspected,
            Welcomed: self._worker_welcomed,
            DevicesUsed: self._devices_used,
            ConnectionClosed: self._connection_closed,
            FaultVersionReached: lambda report: injection.reached(report.version),
            FaultReported: lambda report: injection.reported(report.record, report.spared),
            PeersReceived: records.peers_received,
            PeerReturned: self._peer_returned,
            FaultRestored: lambda report: injection.restore_fault(report.record),
            ServerKillDue: lambda report: injection.kill_server(report.kills, report.record),
            CheckpointBegun: parts.restoration.checkpoint_begun,
            ServerRestored: parts.restoration.server_restored,
            TrainingEnded: self._training_ended,
            WorkerStillConnected: lambda report: devices.liveness.suspect(
                devices.name(report.worker)
            ),
            FinalParameters: records.servers.add_parameters,
            ServerFinished: self._server_finished,
        }

    def handle(self, report: RoleReport) -> None:
        """Handle one report, unless a restored server has sent it before."""
        self._setup.step()
        new = self._records.deduplication.new(report)
        if new is None:
            return
        if self._metrics:
            self._metrics.from_role(new)
        self._handlers[type(new)](new)

    # -- set-up

    def _server_listening(self, report: ServerListening) -> None:
        self._records.event("info", "it is ready", self._devices.hubs[report.server])
        all_listen = self._records.servers.listens(report.server)
        if self._others_started or not all_listen:
            return  # this server replaces one that was killed, or another is still to come
        self._others_started = True
        self._devices.start_evaluator()
        if not self._restoration.resumed:  # a restored server reports which workers it expects
            self._devices.start_workers()

    def _devices_connected(self, report: DevicesConnected) -> None:
        servers = self._records.servers
        self._records.progress.devices = servers.connected(report.server, report.count)

    # -- training

    def _training_begun(self, report: TrainingBegun) -> None:
        hub, servers = self._devices.hubs[report.server], self._records.servers
        if report.server >= servers.count:
            self._injection.connected(self._plan.settings.as_worker(report.server))
            self._records.event("info", "training goes on", hub)
            return
        if not servers.begins(report):
            self._records.moment(EventKind.TRAINING_BEGAN, hub)
            return
        self._records.begin_training(report.host_time, hub)
        self._devices.ask(ReadProcessors())
        if self._plan.background:
            self._devices.ask(SendBackground(begin=True))
        self._injection.training(report.host_time)

    def _updates_applied(self, report: UpdatesApplied) -> None:
        servers = self._records.servers
        rows = servers.take(np.frombuffer(report.raw, UPDATE), report.server)
        version = servers.reached(report.server, report.version)
        self._records.add_updates(rows, version)
        if report.server == 0:  # a worker pushes to all servers at once
            self._injection.updates(rows, version)

    def _diagnostics_reported(self, report: DiagnosticsReported) -> None:
        values = np.frombuffer(report.raw).reshape(report.count, -1)
        if report.server == 0:
            self._records.log.take(Diagnoses(values, report.version))

    def _evaluation_due(self, report: EvaluationDue) -> None:
        self._evaluations.expect(report)
        self._devices.ask(ReadIngress())

    def _event_reported(self, report: EventReported) -> None:
        device = self._devices.name_in_event(report.device)
        if report.level == "error" and device:
            self._devices.complain(device, report.text)
            return
        if report.level == "error":
            self._records.why_it_ended = report.text
        expected = report.level == "warning" and self._injection.explains(device)
        self._records.event("info" if expected else report.level, report.text, device)

    def _worker_suspected(self, report: Suspected) -> None:
        self._devices.liveness.suspect(self._devices.name(report.worker))
        self._records.log.take(report)

    def _worker_welcomed(self, report: Welcomed) -> None:
        self._devices.liveness.welcome(self._devices.name(report.worker))
        self._records.log.take(report)

    def _peer_returned(self, report: PeerReturned) -> None:
        self._injection.connected(report.peer)
        device = self._devices.name(report.peer)
        self._records.event("info", goes_on_with(report.version), device, EventKind.RETURNED)

    def _devices_used(self, report: DevicesUsed) -> None:
        used = device_use.from_array(np.frombuffer(report.raw).reshape(-1, device_use.COLUMNS))
        found = utilisation.by_clock(self._plan, report.run_time, used)
        self._records.used = self._records.meter.metered(found)
        if report.background:
            sent, received = zip(*report.background, strict=True)
            self._records.background.take(received, sent)
        if report.at_evaluation:
            self._records.log.take(energy.used(self._records.used, report.run_time))

    def _connection_closed(self, report: ConnectionClosed) -> None:
        ledger = asdict(report)
        server, pushes = ledger.pop("server"), ledger.pop("pushes")
        round_trip = ledger.pop("round_trip")
        if server == self._devices.called(report.worker):
            # Rows tell how often a worker has pushed, but not those of an aggregator's devices.
            of_aggregator = server >= self._records.servers.count
            self._injection.closed(report.worker, pushes if of_aggregator else 0)
        number = ledger.pop("worker")
        device = None if number is None else self._devices.name(number)
        if device and self._records.fidelity and server == 0:
            self._records.fidelity.connected(device, round_trip)
        self._records.ledgers[server].connections.append(ConnectionLedger(device, **ledger))

    # -- the end

    def _training_ended(self, report: TrainingEnded) -> None:
        servers = self._records.servers
        self._injection.server_ended(report.server)
        over = servers.ends(report.server)
        if self._plan.aggregators and servers.have_ended:
            for aggregator in self._injection.release_aggregators():
                over = servers.give_up(aggregator)
        if not over:
            return  # workers train on with the other servers, or their aggregator has yet to hear
        self._records.training_over = True
        self._devices.ask(ReadProcessors())
        if self._plan.background:
            self._devices.ask(SendBackground(begin=False))
        self._devices.training_ended()
        self._injection.release()
        if servers.count > 1:
            self._devices.liveness.over(time.monotonic() + GRACE, (EVALUATOR_NAME,))

    def _server_finished(self, report: ServerFinished) -> None:
        if report.server < self._records.servers.count:
            self._evaluations.ingress.each[report.server].total = {
                "payload_bytes": report.payload_bytes,
                "message_bytes": report.message_bytes,
                **self._records.local_bytes(report),
            }
        self._records.finish(report)
        if self._records.finished:
            self._devices.liveness.over(time.monotonic())

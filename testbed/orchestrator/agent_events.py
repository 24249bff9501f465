"""Handle the events of the agent: the progress of set-up, exits of processes, and the traffic."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from testbed.channel import InvalidMessageError
from testbed.device_names import COORDINATOR_NAME, EVALUATOR_NAME, HOME_HOST
from testbed.messages.agent_reports import (
    CountersSampled,
    DeviceFrozen,
    DeviceThawed,
    Event,
    HomePartRead,
    HostLost,
    HostRead,
    IngressRead,
    LastSampleTaken,
    LibrariesLoaded,
    NetworkBuilt,
    OutputWritten,
    ProcessesSampled,
    ProcessExited,
    ProcessorTimesRead,
    ProcessStarted,
    RemainsFound,
    SocketsCounted,
    TrafficStopped,
    UplinksSampled,
)
from testbed.messages.requests import GiveUpDevices, KillDevice
from testbed.number_text import as_number
from testbed.orchestrator.role_reports import RunParts
from testbed.runs.ending import EndError
from testbed.telemetry.event_kinds import EventKind
from traffic.counters import COUNTS

_NO_PROGRESS = (
    IngressRead,
    CountersSampled,
    UplinksSampled,
    ProcessesSampled,
    ProcessorTimesRead,
    HostRead,
)
"""Events that come at regular intervals, and are no progress of the set-up."""
_FOR_OTHERS = (
    UplinksSampled,
    ProcessesSampled,
    DeviceFrozen,
    DeviceThawed,
    RemainsFound,
    SocketsCounted,
    OutputWritten,
    HomePartRead,
)
"""Events that only the metrics take, or ``AgentProcess.end``, or runs of programs."""


class AgentEvents:
    """Handles the events of one run's agent.

    Attributes:
        traffic_complete: whether the capture has ended and the last counters are logged.
    """

    def __init__(self, parts: RunParts, *, read_reports: Callable[[], None]) -> None:
        """Make the table of handlers.

        Args:
            read_reports: takes in every report of a role that has arrived.
        """
        self.traffic_complete = False
        self._plan, self._records, self._devices = parts.plan, parts.records, parts.devices
        self._evaluations, self._injection = parts.evaluations, parts.injection
        self._restoration, self._setup = parts.restoration, parts.setup
        self._metrics, self._read_reports = parts.metrics, read_reports
        self._counted_at_router = {*parts.plan.counted, *parts.plan.aggregators}
        self._host = HOME_HOST  # of the event that is handled
        self._handlers: dict[type, Callable[[Any], None]] = {
            **parts.records.handlers,
            HostLost: self._host_lost,
            ProcessStarted: parts.devices.started,
            ProcessExited: self._exited,
            LibrariesLoaded: self._loaded,
            NetworkBuilt: self._network_built,
            CountersSampled: self._counters_sampled,
            IngressRead: self._ingress_read,
            TrafficStopped: self._traffic_stopped,
            ProcessorTimesRead: lambda event: parts.records.processors.take(
                event, parts.records.outcome.host_seconds
            ),
            HostRead: self._host_read,
            LastSampleTaken: self._last_sample_taken,
            **dict.fromkeys(_FOR_OTHERS, lambda _: None),
        }

    def handle(self, event: Event | None, host: str = HOME_HOST) -> None:
        """Handle one event of a host's agent; None is the end of the agent.

        Raises:
            EndError: the run ends with this event.
        """
        if self._metrics and event is not None:
            self._metrics.from_agent(event, host)
        if not isinstance(event, _NO_PROGRESS):
            self._setup.step()
        self._host = host
        self._handlers[type(event)](event)

    # -- set-up

    def _loaded(self, _: LibrariesLoaded) -> None:
        self._setup.loaded = True
        self._records.event("info", "libraries and data are loaded", None)
        self._start_hub()

    def _network_built(self, _: NetworkBuilt) -> None:
        self._setup.built = True
        self._records.moment(EventKind.NETWORK_BUILT)
        self._start_hub()

    def _start_hub(self) -> None:
        """Start the server or the coordinator, once what it needs is there."""
        if not (self._setup.loaded and self._setup.built):
            return
        self._records.progress.phase = "devices"
        self._devices.start_hubs(self._restoration.arguments())

    # -- processes

    def _host_lost(self, event: HostLost) -> None:
        """Go on without a host, with which all its devices have died.

        Raises:
            EndError: the run cannot go on without it.
        """
        host, records, devices = self._host, self._records, self._devices
        lost, text = devices.agent.devices(host), f"host {host} is lost: {event.reason}"
        if records.training is None:
            raise EndError("failed", text)
        if self._plan.spec.clock == "virtual":
            raise EndError("failed", f"{text}; under the virtual clock no run outlives a host")
        if self._plan.observed in lost:
            what = f"{self._plan.observed}, whose model is evaluated, was there"
            raise EndError("failed", f"{text}; {what}")
        text = f"{text}; {as_number(len(lost), 'device')} died with it"
        records.event("warning", text, None, EventKind.HOST_LOST)
        self._read_reports()
        devices.ask(GiveUpDevices(lost))
        for device in lost:
            was_there = devices.liveness.is_alive(device) or records.training_now
            devices.liveness.exited(device)
            if self._injection.lose(device) and was_there:
                records.last_loss = f"its host {host} is lost"
                text = f"{device} died: {records.last_loss}"
                records.event("info", text, device, EventKind.DIED)

    def _exited(self, event: ProcessExited) -> None:
        self._read_reports()  # a process sent its last report before it exited
        device, records, devices = event.device, self._records, self._devices
        devices.liveness.exited(device)
        if event.status == 0:
            return
        orphan = self._injection.is_orphan(device)
        if self._injection.exited(device) or (orphan and device in devices.hubs):
            if device in devices.hubs:
                records.ledgers[devices.hubs.index(device)].server_kills += 1
            return
        how, log = devices.reason_of_exit(event), records.processes_log
        if device == COORDINATOR_NAME and self._plan.served:
            raise EndError("failed", f"the coordinator of the servers died: {how}; see {log}")
        if device in devices.hubs:
            what = "parameter server" if self._plan.served else "coordinator of the peers"
            which = f" {device}" if len(devices.hubs) > 1 else ""
            if device in self._plan.aggregators:
                what, which = "aggregator", f" {device}"
            raise EndError("failed", f"the {what}{which} died: {how}; see {log}")
        if device == self._plan.observed:
            raise EndError("failed", f"{device}, whose model is evaluated, died: {how}")
        if device == EVALUATOR_NAME:
            if not records.finished or self._evaluations.ingress.unheard:
                raise EndError("failed", f"the evaluator died: {how}; see {log}")
        else:
            records.last_loss = how
            records.disturb(device)
        records.event(
            "info" if orphan else "warning", f"{device} died: {how}", device, EventKind.DIED
        )

    def misreported(self, device: str, error: Exception) -> None:
        """End a role that has sent something else than a report of its own.

        Raises:
            EndError: the run cannot go on without it.
        """
        records, devices = self._records, self._devices
        if not isinstance(error, InvalidMessageError):
            records.trace(error)
        what = f"its report is not understood ({type(error).__name__}: {error})"
        if isinstance(error, InvalidMessageError):
            what = f"it has sent {error}"
        devices.agent.reports.end(device)
        if device in (*devices.hubs, COORDINATOR_NAME, EVALUATOR_NAME, self._plan.observed):
            raise EndError("failed", f"{device} is not to be believed: {what}")
        devices.complain(device, what)
        records.event("warning", f"{what}, and is killed", device)
        devices.ask(KillDevice(device))

    # -- traffic

    def _counters_sampled(self, event: CountersSampled) -> None:
        rows = np.frombuffer(event.raw, COUNTS)
        places = self._records.links.take(self._host, rows)
        for place, row in zip(places, rows, strict=True):
            self._sample(self._plan.links[place].node, row)
        records = self._records
        if self._metrics:
            self._metrics.sampled(places, rows)
        if records.fidelity and records.fidelity.links:
            records.fidelity.links.take(places, rows, training=records.training_now)

    def _host_read(self, event: HostRead) -> None:
        if self._records.fidelity:
            self._records.fidelity.host.take(event, training=self._records.training_now)

    def _sample(self, device: str, row: np.void) -> None:
        """Keep a device's bytes so far: those of frames where a class counts them."""
        sent = int(row["tx_bytes"] if row["class_bytes"] < 0 else row["class_bytes"])
        received = int(row["rx_bytes"])
        if device in self._counted_at_router:
            sent, received = received, sent
        self._records.sampled[device] = float(row["time"]), sent, received

    def _ingress_read(self, event: IngressRead) -> None:
        self._records.background.take(event.background)
        self._counted(event.ingress, event.of_each)

    def _counted(
        self, ingress: Mapping[str, float], of_each: Mapping[str, int] | None = None
    ) -> None:
        found = [of_each[server] for server in self._plan.servers] if of_each else None
        self._evaluations.ingress.counted(ingress["time"], found or [int(ingress["bytes"])])
        self._records.progress.wire_bytes = self._evaluations.ingress.newest

    def _traffic_stopped(self, event: TrafficStopped) -> None:
        background = self._records.background
        background.take(event.background, event.background_sent)
        first, *others = self._records.ledgers
        first.capture, first.counter = event.capture, event.counter
        first.background = background.into(self._plan.observed)
        for ledgers, server in zip(others, self._plan.serving[1:], strict=True):
            ledgers.capture = event.others[server]["capture"]
            ledgers.counter = event.others[server]["counter"]
            ledgers.background = background.into(server)
        self._counted(event.ingress, event.ingress_of_each if others else None)
        for device, peer in self._records.peers.items():
            peer["wire_bytes"] = event.ingress_of_each[device]

    def _last_sample_taken(self, _: LastSampleTaken) -> None:
        self.traffic_complete = True

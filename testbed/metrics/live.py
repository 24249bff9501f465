"""The state of a run under way, from the orchestrator's messages, the board and the run's summary.

The orchestrator passes on the messages that it receives anyway. Values that change all the time (the
devices' states, the server's counters, the rate) are looked up when the state is read.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import psutil

from testbed.device_names import EVALUATOR_NAME, SERVER_NAME
from testbed.messages.agent_reports import (
    CaptureReport,
    DeviceFrozen,
    DeviceThawed,
    Event,
    IngressRead,
    ProcessesSampled,
    ProcessExited,
    ProcessorTimesRead,
    TrafficStopped,
    UplinksSampled,
    summed,
)
from testbed.messages.reports import (
    EvaluationDue,
    PeersReceived,
    RoleReport,
    ServerFinished,
    TrainingBegun,
)
from testbed.metrics.initial import of_plan
from testbed.metrics.state import RunState
from testbed.metrics.uplinks import UplinkMeter
from testbed.planning.plan import Plan
from testbed.run_endings import SummaryContent
from testbed.runs.watching import Progress
from testbed.telemetry.entries import RunEntry, Updates
from testbed.telemetry.state_board import (
    Board,
    DeviceState,
    evaluator_line,
    further_lines,
    hub_line,
    lines_of,
)
from traffic.counters import COUNTS

MEMORY_PERIOD = 5.0
"""Seconds between two readings of the orchestrator's own memory."""


class LiveRun:
    """One run under way; a ``testbed.metrics.exporter.MetricsSource``.

    Attributes:
        lock: of the state.
        board: the memory that its devices write to; None for a simulation, which has none.
    """

    def __init__(self, plan: Plan, execution: str) -> None:
        """Make the state of a planned run in an execution's directory, and its board."""
        self.lock = threading.Lock()
        self._state = of_plan(plan, execution)
        self._plan = plan
        self._numbers = plan.workers
        emulated = plan.spec.engine == "emulation"
        workers = plan.settings.workers
        self.board = Board.create(lines_of(workers, plan.settings.serving)) if emulated else None
        self._training: float | None = None
        self._host_seconds = 0.0
        self._over = self._ended = False
        self._uplinks = self._uplink_meter() if emulated else None
        self._is_here = np.ones(workers, bool)
        # Of each link the number of the device that it is the uplink of; -1 of others.
        self._uplink_of = np.array([self._numbers.get(link.node, -1) for link in plan.links])
        # The peers by host, in the order in which its agent samples them, and whose turn it is there.
        self._peers = {"": [*self._numbers.values()]}
        self._next_peer = Counter[str]()
        self._itself = psutil.Process()
        self._cpu_before = _processor_seconds(self._itself)
        self._helpers: dict[str, float] = {}
        self._own_memory = self._helpers_memory = 0
        self._next_look = 0.0

    def _uplink_meter(self) -> UplinkMeter:
        # A rate that follows a trace is no capacity to measure against.
        traced = [bool(self._plan.settings.rate_traces(i)[0]) for i in self._numbers.values()]
        rates = [
            None if has_trace else self._plan.network.link(name).uplink.rate
            for name, has_trace in zip(self._numbers, traced, strict=True)
        ]
        return UplinkMeter(self._state.classes, rates)

    # -- calls by the orchestrator

    def spread(self, place: Mapping[str, str]) -> None:
        """Take in the hosts of workers or peers on others, which cannot write to the board."""
        with self.lock:
            self._is_here[[self._numbers[name] for name in place]] = False
            self._peers = {host: [] for host in ("", *place.values())}
            for name, number in self._numbers.items():
                self._peers[place.get(name, "")].append(number)

    def progress(self, progress: Progress) -> None:
        """Take the run's progress; called a few times per second."""
        with self.lock:
            if not self._ended:
                self._state.phase = progress.phase
                self._state.due = progress.evaluations_due

    def from_agent(self, event: Event, host: str = "") -> None:
        """Take an event of the agent of a host; an empty name is that of the orchestrator's own."""
        with self.lock:
            match event:
                case IngressRead(ingress, egress):
                    self._take_counters(ingress, egress)
                case TrafficStopped():
                    self._take_counters(event.ingress, event.egress)
                    others = {name: one["capture"] for name, one in event.others.items()}
                    self._take_capture(summed({SERVER_NAME: event.capture, **others}))
                case UplinksSampled(raw):
                    self._take_peers_samples(host, np.frombuffer(raw, COUNTS))
                case ProcessesSampled():
                    self._take_capture(event.capture)
                    memory = dict(event.memory)
                    self._helpers_memory = memory.pop("orchestrator", 0)
                    self._state.memory |= memory
                    self._helpers |= event.processor
                case ProcessorTimesRead():
                    self._state.device_processor |= event.seconds  # of one host's devices
                case ProcessExited(device) if device in self._numbers:
                    self._state.workers.exited[self._numbers[device]] = True
                case DeviceFrozen(device) if device in self._numbers:
                    self._state.workers.frozen[self._numbers[device]] = True
                case DeviceThawed(device) if device in self._numbers:
                    self._state.workers.frozen[self._numbers[device]] = False

    def sampled(self, places: Sequence[int], rows: npt.NDArray[np.void]) -> None:
        """Take samples of links by their places in the plan; links of peers are no uplinks."""
        if not self._plan.served:
            return
        devices = self._uplink_of[[*places]]
        is_uplink = devices >= 0
        with self.lock:
            self._take_uplink_samples(devices[is_uplink].tolist(), rows[is_uplink])

    def from_role(self, report: RoleReport) -> None:
        """Take a report of a role that is no entry of the log."""
        state = self._state
        with self.lock:
            match report:
                case EvaluationDue(after_restoration=False):
                    state.raise_ingress(payload=report.payload_bytes, message=report.message_bytes)
                    self._take_virtual_time(report.run_time)
                case TrainingBegun(host_time, server=0):
                    self._training = host_time
                case PeersReceived(payload, message):
                    state.raise_ingress(payload=payload, message=message)
                case ServerFinished(server=server) if server < self._plan.settings.servers:
                    # Aggregators have later indices, and their bytes are none of the servers'.
                    self._over = True
                    state.raise_ingress(payload=report.payload_bytes, message=report.message_bytes)

    def take(self, entry: RunEntry) -> None:
        """Take an entry of the run's log."""
        with self.lock:
            self._state.take(entry)
            if isinstance(entry, Updates):
                self._host_seconds = float(entry.rows["host_time"][-1])
                self._state.measure_rate(time.monotonic())

    def simulated(self, now: float, ledger: Mapping[str, int]) -> None:
        """Take the progress of a simulation.

        Args:
            now: seconds of the virtual clock.
            ledger: bytes by layer; those of the wire are modelled.
        """
        with self.lock:
            if self._training is None:
                self._training = time.monotonic()
            self._take_virtual_time(now)
            self._state.raise_to_ledger(ledger)

    def ended(self, summary: SummaryContent) -> None:
        """Take the final values of a run that is over, and close its board."""
        with self.lock:
            state = self.read()
            self._ended = self._over = True
            state.end(summary["ended"], summary["ingress_after_drain"] or summary["ingress"])
            self._mirror_ingress()
            if self._training is not None:
                state.training_seconds = summary["host_seconds"]
            if self.board is not None:
                self.board.close()

    # -- changes of the state

    def _take_virtual_time(self, now: float) -> None:
        if self._plan.spec.clock == "virtual":
            self._state.virtual_seconds = now

    def _take_counters(
        self, ingress: Mapping[str, float], egress: Mapping[str, float] | None
    ) -> None:
        self._state.raise_ingress(wire=int(ingress["bytes"]))
        self._state.packets = int(ingress["frames"])
        if egress is not None:
            self._state.egress["wire"] = int(egress["bytes"])

    def _take_capture(self, capture: CaptureReport | None) -> None:
        if capture and "records" in capture and "dropped" in capture:
            self._state.capture = (capture["records"], capture["dropped"])
            self._state.acknowledgements = capture.get("acknowledgements")

    def _take_peers_samples(self, host: str, rows: npt.NDArray[np.void]) -> None:
        """Take a part of a sample of the peers on a host."""
        own, first = self._peers[host], self._next_peer[host]
        self._next_peer[host] = (first + len(rows)) % len(own)
        self._take_uplink_samples(own[first : first + len(rows)], rows)

    def _take_uplink_samples(self, devices: Sequence[int], rows: npt.NDArray[np.void]) -> None:
        assert self._uplinks is not None
        uplinks = self._uplinks.add(devices, rows)
        if uplinks is not None:
            self._state.uplinks = uplinks

    # -- reading

    def read(self) -> RunState:
        """Return the present state; the caller holds the lock."""
        state = self._state
        if self._ended:
            return state
        now = time.monotonic()
        if self._training is not None:
            state.training_seconds = self._host_seconds if self._over else now - self._training
            if self._over:
                state.rate = 0.0
            else:
                state.measure_rate(now)
        state.devices = state.workers.counts(self._activities())
        own = _processor_seconds(self._itself) - self._cpu_before
        state.processor["orchestrator"] = own + sum(self._helpers.values())
        if now >= self._next_look:
            self._next_look = now + MEMORY_PERIOD
            self._own_memory = self._itself.memory_full_info().uss
        state.memory["orchestrator"] = self._own_memory + self._helpers_memory
        if self.board is not None:
            self._read_board(self.board)
        self._mirror_ingress()
        return state

    def _activities(self) -> npt.NDArray[np.int64]:
        """Return the activity of each worker, as it says itself or, if it cannot, as the run does."""
        workers = self._plan.settings.workers
        begun = self._training is not None
        states = np.full(workers, DeviceState.TRAINING if begun else DeviceState.STARTING, np.int64)
        if self.board is not None and self.board.shared:
            states[self._is_here] = self.board.states()[:workers][self._is_here]
        return states

    def _mirror_ingress(self) -> None:
        """Set the egress of peers, which is their ingress: each byte that one gets, another sent."""
        if not self._plan.served:
            self._state.egress |= self._state.ingress

    def _read_board(self, board: Board) -> None:
        state, workers = self._state, self._plan.settings.workers
        seconds = board.processor_seconds()
        state.processor["workers"] = float(seconds[:workers].sum())
        state.processor[EVALUATOR_NAME] = float(seconds[evaluator_line(workers)])
        servers = self._plan.settings.servers
        hub = float(sum(seconds[hub_line(workers, index)] for index in range(servers)))
        if not self._plan.served:
            state.processor["orchestrator"] += hub
            return
        state.processor[SERVER_NAME] = hub
        line = board.of_server(further_lines(workers, servers))
        state.queue = (line["queue"] / 1e9, line["queued"])
        state.apply = (line["apply"] / 1e9, line["applied"])
        state.egress |= {
            "payload": line["sent_payload_bytes"],
            "message": line["sent_message_bytes"],
        }


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)

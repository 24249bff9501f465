"""The state of a run under way, from the orchestrator's messages, the board and the run's summary.

The orchestrator passes on the messages that it receives anyway. Values that change all the time (the
devices' states, the server's counters, the rate) are looked up when the state is read.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from testbed.channel import Message
from testbed.device_names import EVALUATOR_NAME, SERVER_NAME
from testbed.metrics.initial import of_plan
from testbed.metrics.live_devices import LiveDevices
from testbed.metrics.state import RunState
from testbed.metrics.uplinks import UplinkMeter
from testbed.planning.plan import Plan
from testbed.runs.watching import Progress
from testbed.telemetry.board import Board, evaluator_line, hub_line, lines_of
from testbed.telemetry.records import UPDATE
from traffic.counters import COUNTS

MEMORY_PERIOD = 5.0
"""Seconds between two readings of the orchestrator's own memory."""


class LiveRun:
    """One run under way; a ``testbed.metrics.exporter.Source``.

    Attributes:
        lock: of the state.
        board: the memory that its devices write to; None for a simulation, which has none.
    """

    def __init__(self, plan: Plan, execution: str) -> None:
        """Make the state of a planned run, and its board.

        Args:
            execution: the name of the execution's directory.
        """
        self.lock = threading.Lock()
        self._state = of_plan(plan, execution)
        self._plan = plan
        self._numbers = plan.workers
        emulated = plan.spec.engine == "emulation"
        workers = plan.settings.workers
        self.board = Board.create(lines_of(workers)) if emulated else None
        self._devices = LiveDevices(self._state.classes, self.board)
        self._training: float | None = None
        self._host_seconds = 0.0
        self._over = self._ended = False
        self._uplinks = self._uplink_meter() if emulated else None
        self._links = [link.device for link in plan.links]
        self._next_link = 0
        self._itself = psutil.Process()
        self._cpu_before = _processor_seconds(self._itself)
        self._helpers: dict[str, float] = {}
        self._own_memory = self._helpers_memory = 0
        self._next_look = 0.0

    def _uplink_meter(self) -> UplinkMeter:
        links = {link.device: link for link in self._plan.links}
        rates = [links[name].uplink.rate for name in self._numbers]
        return UplinkMeter(self._state.classes, rates)

    # -- calls by the orchestrator

    def progress(self, progress: Progress) -> None:
        """Take the run's progress; called a few times per second."""
        with self.lock:
            if not self._ended:
                self._state.phase = progress.phase
                self._state.due = progress.evaluations_due

    def from_agent(self, message: Message) -> None:
        """Take a message from the agent."""
        with self.lock:
            match message.fields:
                case {"counter": counter, **rest}:
                    self._counted(counter)
                    if "egress" in rest:
                        self._state.egress["wire"] = int(rest["egress"]["bytes"])
                case {"traffic": seen, **rest}:
                    self._counted(seen["all"])
                    if "egress" in rest:
                        self._state.egress["wire"] = int(rest["egress"]["bytes"])
                    self._captured(seen["capture"])
                case {"sampled": "counters"}:
                    self._sampled(np.frombuffer(message.raw, COUNTS))
                case {"sampled": "uplinks"}:
                    self._sent(np.frombuffer(message.raw, COUNTS))
                case {"extras": extras}:
                    self._captured(extras["capture"])
                    memory = dict(extras["memory"])
                    self._helpers_memory = memory.pop("orchestrator", 0)
                    self._state.memory |= memory
                    self._helpers |= extras["processor"]
                case {"exited": device, "status": status} if device in self._numbers:
                    self._left(self._numbers[device], status)
                case {"frozen": device, "yes": frozen} if device in self._numbers:
                    self._devices.froze(self._numbers[device], yes=frozen)

    def from_role(self, message: Message) -> None:
        """Take a message from a role."""
        state = self._state
        with self.lock:
            match message.fields:
                case {"updates": _}:
                    self._took_in(np.frombuffer(message.raw, UPDATE))
                case {"checkpoint": _, "payload_bytes": payload, "message_bytes": size, **rest}:
                    state.came_in(payload=payload, message=size)
                    self._virtual(rest["run_time"])
                case {"training": when}:
                    self._training = when
                case {"finished": _, "payload_bytes": payload, "message_bytes": size}:
                    self._over = True
                    state.came_in(payload=payload, message=size)
                case {"suspected": number}:
                    self._suspect(number, yes=True)
                case {"welcomed": number}:
                    self._suspect(number, yes=False)
                case {"restored": _, **rest} if "counts" not in rest:
                    # Under the wall clock, a restored server suspects no worker yet.
                    self._suspect(slice(None), yes=False)

    def fault(self, record: Mapping[str, Any]) -> None:
        """Take a record of a fault, as the run log receives it."""
        with self.lock:
            self._lost(self._devices.struck(record))
            self._state.show_faults(self._devices.fault_effects)

    def suspected(self, number: int, *, yes: bool) -> None:
        """Note that a simulated worker is suspected, or no longer is."""
        with self.lock:
            self._suspect(number, yes=yes)

    def _suspect(self, number: int | slice, *, yes: bool) -> None:
        self._devices.fault_effects.suspected[number] = yes
        self._state.show_faults(self._devices.fault_effects)

    def simulated(self, rows: npt.NDArray[Any], now: float, ledger: Mapping[str, int]) -> None:
        """Take the progress of a simulation since the last call.

        Args:
            rows: of ``UPDATE``.
            now: seconds of the virtual clock.
            ledger: bytes by layer; those of the wire are modelled.
        """
        with self.lock:
            if self._training is None:
                self._training = time.monotonic()
            self._took_in(rows)
            self._virtual(now)
            self._state.came_in(
                **{name.removesuffix("_bytes"): size for name, size in ledger.items()}
            )

    def evaluated(self, row: Mapping[str, float]) -> None:
        """Take a complete evaluation."""
        with self.lock:
            self._state.evaluated(row)

    def ended(self, summary: Mapping[str, Any]) -> None:
        """Note that the run is over: take its final values and close its board."""
        with self.lock:
            self.read()
            state = self._state
            state.phase = summary["ended"]
            self._ended = self._over = True
            state.rate = 0.0
            state.due = 0 if summary["ended"] == "completed" else state.due
            after = summary["ingress_after_drain"] or summary["ingress"]
            state.came_in(**{name.removesuffix("_bytes"): size for name, size in after.items()})
            self._mirror()
            if self._training is not None:
                state.training_seconds = summary["host_seconds"]
            state.devices = self._devices.counts(
                begun=self._training is not None, ended=self._ended
            )
            if self.board is not None:
                self.board.close()

    # -- changes of the state

    def _took_in(self, rows: npt.NDArray[Any]) -> None:
        if len(rows):
            self._state.took_in(rows)
            self._host_seconds = float(rows["host_time"][-1])
            self._virtual(float(rows["time"][-1]))
            self._state.measure_rate(time.monotonic())

    def _virtual(self, now: float) -> None:
        if self._plan.spec.clock == "virtual":
            self._state.virtual_seconds = now

    def _counted(self, counter: Mapping[str, float]) -> None:
        self._state.came_in(wire=int(counter["bytes"]))
        self._state.packets = int(counter["frames"])

    def _captured(self, capture: Mapping[str, Any] | None) -> None:
        if capture and "records" in capture:
            self._state.capture = (capture["records"], capture["dropped"])
            self._state.acknowledgements = capture.get("acknowledgements")

    def _sampled(self, rows: npt.NDArray[np.void]) -> None:
        """Take the rows of all links, which come in order and in parts; a peer's is no uplink's."""
        first = self._next_link
        self._next_link = (first + len(rows)) % len(self._links)
        if self._plan.served:
            names = self._links[first : first + len(rows)]
            self._sent(rows[[name in self._numbers for name in names]])

    def _sent(self, rows: npt.NDArray[np.void]) -> None:
        assert self._uplinks is not None
        uplinks = self._uplinks.add(rows)
        if uplinks is not None:
            self._state.uplinks = uplinks

    def _left(self, number: int, status: int) -> None:
        if self._devices.left(number, status):
            self._lost(np.array([number]))

    def _lost(self, numbers: npt.NDArray[np.int64]) -> None:
        self._state.lost += self._state.classes.count(numbers)

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
        state.devices = self._devices.counts(begun=self._training is not None, ended=self._ended)
        own = _processor_seconds(self._itself) - self._cpu_before
        state.processor["orchestrator"] = own + sum(self._helpers.values())
        if now >= self._next_look:
            self._next_look = now + MEMORY_PERIOD
            self._own_memory = self._itself.memory_full_info().uss
        state.memory["orchestrator"] = self._own_memory + self._helpers_memory
        if self.board is not None:
            self._read_board(self.board)
        self._mirror()
        return state

    def _mirror(self) -> None:
        """Set the egress of peers, which is their ingress: each byte that one gets, another sent."""
        if not self._plan.served:
            self._state.egress |= self._state.ingress

    def _read_board(self, board: Board) -> None:
        state, workers = self._state, self._plan.settings.workers
        seconds = board.processor_seconds()
        state.processor["workers"] = float(seconds[:workers].sum())
        state.processor[EVALUATOR_NAME] = float(seconds[evaluator_line(workers)])
        hub = float(seconds[hub_line(workers)])
        if not self._plan.served:
            state.processor["orchestrator"] += hub
            return
        state.processor[SERVER_NAME] = hub
        line = board.of_server()
        state.queue = (line["queue"] / 1e9, line["queued"])
        state.apply = (line["apply"] / 1e9, line["applied"])
        state.egress |= {
            "payload": line["sent_payload_bytes"],
            "message": line["sent_message_bytes"],
        }


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)

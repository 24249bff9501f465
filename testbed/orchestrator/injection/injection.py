"""Fault injection by the orchestrator: begin, undo and record faults.

Which devices are struck and when is decided elsewhere (``testbed.faults.schedule``). Under the virtual
clock the server's records say when a fault begins and ends. Under the wall clock every end is timed
here, and a beginning comes from one of three: the schedule's times, which are also timed here; the
server, when it reaches a version that the schedule names; a worker, after a push that a fault follows.

A killed worker comes back as its next *incarnation*, when its fault has ended and its process is gone;
under the wall clock also when the server has reported its last connection, and with it every push that
arrived, or ``CLOSING_TIMEOUT`` has passed.

A killed server is started again: under the virtual clock at once, and its workers are put back to where
they were at its checkpoint; under the wall clock when its fault ends, and only the server goes back.

When training has ended, devices that could not receive the message (frozen, cut off, or only just
connected again, while TCP's retransmission timer is still long) are killed, with their links up: their
kernel then closes the connection at once, and no ledger has to wait for it.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from testbed.checkpoints.marks import Mark
from testbed.device_names import SERVER_NAME, SERVER_NUMBER
from testbed.faults.fault import Fault, Kind
from testbed.faults.schedule import Schedule
from testbed.faults.telling import told
from testbed.messages.requests import KillDevice
from testbed.orchestrator.injection.agenda import Agenda, Beginning
from testbed.orchestrator.injection.earlier_faults import EarlierFaults
from testbed.orchestrator.injection.impairments import Ask, Impairments
from testbed.orchestrator.injection.killed_server import KilledServer
from testbed.roles.pace import Paces
from testbed.roles.transport.greeting import CONNECT_TIMEOUT
from testbed.runs.deduplication import Deduplication
from testbed.telemetry.run_log import RunLog
from testbed.training.settings import Settings

UNHEARD: tuple[Kind, ...] = ("stop-network", "partition")
"""Kinds of faults during which a device can neither send nor receive."""
SETTLED = 2.0
"""Seconds after an outage, added to its length once more, until TCP works as before."""
LOOK_PERIOD = 0.02
"""Seconds between two checks for what no message reports."""
CLOSING_TIMEOUT = 2.0
"""Seconds in which the server reports a killed worker's connection, if it can notice the end."""
Phase: TypeAlias = Literal["begin", "end"]
_DETAILS = ("factor", "uplink", "downlink", "cpus", "share")


@dataclass(slots=True)
class _Worker:
    """One worker's state under faults; all times are CLOCK_MONOTONIC in seconds.

    Attributes:
        incarnation: how often the worker has come back.
        applied: the number of its pushes that the server has reported.
        pushes: the number of pushes that the worker itself reported last; the server reports later.
        killed: until when a fault keeps it dead; infinite: for good, or until the fault's end is
            reported; None: it is alive.
        exited: when its process had ended, after a kill.
        closed: whether the server has reported the end of its last connection since the kill.
        unsettled: until when TCP may still suffer from an outage.
        started: when it last came back.
    """

    incarnation: int = 0
    applied: int = 0
    pushes: int = 0
    killed: float | None = None
    exited: float | None = None
    closed: bool = False
    unsettled: float = -math.inf
    started: float = -math.inf


def _fault(record: Mapping[str, Any]) -> Fault:
    """Return the fault that a record is about."""
    details = {key: record[key] for key in _DETAILS if key in record}
    return Fault(record["rule"], record["fault"], record["duration"], **details)


class Injection:
    """Begins, undoes and records the faults of one run."""

    def __init__(
        self,
        settings: Settings,
        names: Mapping[int, str],
        *,
        ask: Ask,
        start: Callable[[str, dict[str, Any]], None],
        event: Callable[[str, str, str | None], None],
        log: RunLog,
        once: Deduplication,
    ) -> None:
        """Begin without any fault.

        Args:
            settings: of the run.
            names: the workers' names by number; empty if peers train, which have no faults.
            ask: sends a request to the agent.
            start: starts a device in a role.
            event: records an event, as (level, text, device).
            log: the run directory, to which faults are written.
            once: knows which faults are on record already.
        """
        self._deduplication = once
        self._server = KilledServer(ask, start)
        self._settings = settings
        self._names = names
        self._numbers = {name: number for number, name in names.items()}
        self._start, self._event, self._log, self._ask = start, event, log, ask
        self._wall = settings.timing.clock == "wall"
        self._schedule = Schedule(settings.faults.rules, settings.seed, settings.workers)
        self.paces = Paces.make(settings.workers) if settings.faults.rules and self._wall else None
        self._impairments = Impairments(names, ask, self.paces)
        self._workers = {number: _Worker() for number in names}
        self._agenda = Agenda(self._schedule)
        self._training: float | None = None
        self._version = self._reached = 0
        self._over = False
        self._elapsed = -math.inf
        self._lasting: list[dict[str, Any]] = []

    # -- what is reported

    def go_on(
        self, rows: npt.NDArray[Any], records: Sequence[Mapping[str, Any]], mark: Mark
    ) -> None:
        """Restore the state of an interrupted run; no worker is alive until ``restored`` starts it.

        Args:
            rows: the pushes up to the checkpoint, rows of ``records.UPDATE``.
            records: the faults up to the checkpoint, with the devices' names.
            mark: the checkpoint's.
        """
        self._elapsed = mark.time
        self._version = self._reached = mark.version
        pushed = rows["worker"][rows["payload_bytes"] > 0]
        for number, worker in self._workers.items():
            worker.applied = int((pushed == number).sum())
            worker.killed, worker.exited, worker.closed = 0.0, 0.0, True
            worker.incarnation = -1
        earlier = EarlierFaults.of(records, self._numbers)
        self._server.kills = earlier.server_kills
        for number, worker in self._workers.items():
            worker.incarnation += earlier.incarnations[number]
        if not self._wall:
            return  # the virtual clock reports which faults are active
        for number in earlier.dead:
            self._workers[number].killed = math.inf
        self._lasting = earlier.lasting

    def training(self, when: float) -> None:
        """Note that training has begun, at a moment of CLOCK_MONOTONIC."""
        self._training = when
        if not self._wall:
            return
        self._agenda.begin(when, self._elapsed)
        for record in self._lasting:
            fault, devices = _fault(record), record["devices"]
            if fault.kind != "kill":
                self._impairments.begin(fault, devices)
            self._end_at(when + record["time"], fault, devices)

    def _end_at(self, began: float, fault: Fault, devices: Sequence[int]) -> None:
        """Schedule the end of a fault that began at a moment of CLOCK_MONOTONIC, if it has one."""
        if fault.duration is not None:
            struck = {number: self._workers[number].incarnation for number in devices}
            self._agenda.end_at(began + fault.duration, fault, struck)

    def updates(self, rows: npt.NDArray[Any], version: int) -> None:
        """Count the pushes in rows of ``records.UPDATE``, which led to ``version``."""
        self._version = version
        pushed = rows["worker"][rows["payload_bytes"] > 0]
        numbers, counts = np.unique(pushed, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number in self._workers:  # a peer is not
                self._workers[number].applied += count

    def reached(self, version: int) -> None:
        """Begin the faults of a version that the server has reached."""
        self._version = version
        if version <= self._reached:
            return  # a restored server reaches it a second time
        self._reached = version
        for devices, fault in self._schedule.at_iteration(version):
            self._begin(fault, devices, self._now(), version)

    def told(self, record: Mapping[str, Any]) -> None:
        """Handle a report, by the virtual clock or a worker, that a fault begins or ends."""
        if SERVER_NUMBER in record["devices"]:
            self._tell_of_server(record)  # a restored server reports its own kill
            return
        fault, devices, phase = _fault(record), record["devices"], record["phase"]
        when = self._now() if self._wall else record["time"]
        if "pushes" in record:
            worker = self._workers[devices[0]]
            worker.pushes = record["pushes"]
            if self._over and worker.killed is None and fault.kind in ("freeze", "kill"):
                self._kill(devices[0])  # it waits for its fault, and not for the end of training
        if phase == "begin":
            self._begin(fault, devices, when, record["iteration"])
        else:
            self._end(fault, devices, when, record["iteration"])

    def exited(self, device: str) -> bool:
        """Note that a device's process has ended; return True if this module had it killed."""
        if device == SERVER_NAME and self._server.exited():
            if not self._wall:
                self._undo()
            return True
        worker = self._workers.get(self._numbers.get(device, SERVER_NUMBER))
        if worker is None or worker.killed is None:
            return False
        worker.exited = time.monotonic()
        return True

    def closed(self, number: int | None) -> None:
        """Note that the server has reported a connection's end, and with it all that came over it."""
        if number in self._workers:
            self._workers[number].closed = True

    def explains(self, device: str | None) -> bool:
        """Return True if a kill of the device explains that a connection of it ended."""
        number = None if device is None else self._numbers.get(device)
        if number is None:
            return False
        worker = self._workers[number]
        lately = time.monotonic() - worker.started < CONNECT_TIMEOUT
        return worker.killed is not None or lately

    @property
    def patience(self) -> float:
        """The number of seconds until ``turn`` has something to do."""
        now = time.monotonic()
        due = min(self._agenda.due, max(self._server.due, now + LOOK_PERIOD))
        waiting = any(
            worker.exited is not None and worker.killed != math.inf
            for worker in self._workers.values()
        )
        if waiting and not self._over:
            due = min(due, now + LOOK_PERIOD)
        return max(0.0, due - now)

    def turn(self, until: float = math.inf) -> None:
        """Do what is due by now, or was due by ``until``, a moment of CLOCK_MONOTONIC."""
        while due := self._agenda.take(min(until, time.monotonic())):
            if isinstance(due, Beginning):
                self._begin(due.fault, due.devices, self._now(), self._version)
                continue
            devices = [n for n, life in due.struck.items() if self._lasts(due.fault, n, life)]
            if devices:
                self._end(due.fault, devices, self._now(), self._version)
        self._bring_server_back()  # even if it was killed when training had just ended
        if not self._over:
            self._bring_back()

    # -- the server

    @property
    def server_exited(self) -> float:
        """The moment of CLOCK_MONOTONIC when the last killed server process had ended."""
        return self._server.last_end

    @property
    def server_kills(self) -> int:
        """The number of times that the server was killed, in all sessions of the run."""
        return self._server.kills

    def kill_server(self, number: int, record: Mapping[str, Any]) -> None:
        """Kill the server for the ``number``-th time; the server has asked for it, and waits."""
        self._tell_of_server(record)
        self._server.kill(number)

    def _kill_server_now(self, fault: Fault, when: float, version: int) -> None:
        if self._over or self._server.killed or self._server.coming:
            return
        self._write("begin", fault, [SERVER_NUMBER], when, version)
        self._server.kill(self._server.kills + 1, fault)

    def _tell_of_server(self, record: Mapping[str, Any]) -> None:
        fault = Fault(record["rule"], record["fault"], record["duration"])
        self._write(record["phase"], fault, [SERVER_NUMBER], record["time"], record["iteration"])

    def _undo(self) -> None:
        """Undo all faults: the restored server reports those that were active at its checkpoint.

        A worker that cannot notice the server's end now may never do so, and is killed.
        """
        for number, worker in self._workers.items():
            deaf = self._impairments.has(number, UNHEARD) or time.monotonic() < worker.unsettled
            self._impairments.forget(number, get_args(Kind))
            if deaf and worker.killed is None:
                self._kill(number)

    def _bring_server_back(self) -> None:
        server = self._server
        if time.monotonic() < server.due:
            return
        if server.fault is not None:
            self._write("end", server.fault, [SERVER_NUMBER], self._now(), self._version)
        elif any(one.killed is not None and one.exited is None for one in self._workers.values()):
            return  # killed workers must be gone before the server starts
        server.start_again(self._training)

    def restored(
        self, version: int, there: Sequence[int], incarnations: Sequence[int] | None
    ) -> None:
        """Start and kill workers so that the restored server finds the incarnations that it expects.

        Args:
            version: the version of the checkpoint.
            there: the numbers of the workers that were connected when the checkpoint was written.
            incarnations: each worker's incarnation at that time, or that in which it comes back; None
                under the wall clock, where workers stay as they are.
        """
        self._server.coming = False
        if incarnations is None:
            self._version = version
            if not self._over:
                self._bring_back()
            return
        for number, worker in self._workers.items():
            alive, expected = worker.killed is None, number in there
            if alive and expected and worker.incarnation == incarnations[number]:
                continue
            if alive:
                self._kill(number)
            worker.killed = 0.0 if expected else math.inf
            worker.incarnation = incarnations[number] - 1
        self._bring_back()

    def stands(self, record: Mapping[str, Any]) -> None:
        """Apply a fault that was active when the checkpoint was written."""
        self._impairments.begin(_fault(record), record["devices"])

    def release(self) -> None:
        """Note that training has ended: no fault begins any more, and none may delay the run's end."""
        self._over = True
        self._agenda.clear()
        for number in self._names:
            self._release(number)

    # -- what is done

    def _begin(self, fault: Fault, devices: Sequence[int], when: float, version: int) -> None:
        if SERVER_NUMBER in devices:
            self._kill_server_now(fault, when, version)
            return
        devices = [number for number in devices if self._can_be_struck(number)]
        if self._over or not devices:
            return
        self._write("begin", fault, devices, when, version)
        if fault.kind == "kill":
            for number in devices:
                self._kill(number)
        else:
            self._impairments.begin(fault, devices)
        if self._wall:
            self._end_at(time.monotonic(), fault, devices)
        if self._wall and all(map(self._is_lost, self._names)):
            for number in self._names:
                self._release(number)  # so that the server finds that no worker is left

    def _can_be_struck(self, number: int) -> bool:
        """Return True if a fault may strike a worker: it is neither killed nor lost."""
        return self._workers[number].killed is None and not self._is_lost(number)

    def _lasts(self, fault: Fault, number: int, incarnation: int) -> bool:
        """Return True if a fault is still active; a freeze ends when the frozen process is killed."""
        worker = self._workers[number]
        alive = worker.killed is None and worker.incarnation == incarnation
        return alive or fault.kind != "freeze"

    def _end(self, fault: Fault, devices: Sequence[int], when: float, version: int) -> None:
        self._write("end", fault, devices, when, version)
        if fault.kind == "kill":
            for number in devices:
                self._workers[number].killed = 0.0
            self._bring_back()
            return
        self._impairments.end(fault, devices)
        if fault.kind in UNHEARD and fault.duration is not None:
            for number in devices:
                behind = time.monotonic() + fault.duration + SETTLED
                self._workers[number].unsettled = behind

    def _kill(self, number: int) -> None:
        worker = self._workers[number]
        worker.killed, worker.exited, worker.closed = math.inf, None, False
        self._ask(KillDevice(self._names[number]))
        # After the kill, so that this incarnation does not run on; the next one is not frozen.
        self._impairments.forget(number, ("freeze",))

    def _bring_back(self) -> None:
        """Start the killed workers that are due to come back and whose process is gone."""
        if (self._server.killed or self._server.coming) and not self._wall:
            return  # the restored server says which workers it expects
        now = time.monotonic()
        for number, worker in self._workers.items():
            if worker.killed is None or worker.killed > now or worker.exited is None:
                continue
            if not worker.closed and now - worker.exited < CLOSING_TIMEOUT and self._wall:
                continue
            worker.killed = worker.exited = None
            worker.incarnation += 1
            worker.started = now
            role = {
                "role": "worker",
                "number": number,
                "incarnation": worker.incarnation,
                "kills": self._server.kills,
                "pushes": max(worker.pushes, worker.applied),
            }
            self._start(self._names[number], role)

    def _is_lost(self, number: int) -> bool:
        """Return True if a worker can never send again: killed, frozen or disconnected for good."""
        if self._workers[number].killed == math.inf:
            return not self._agenda.has_end(number)
        return self._impairments.has(number, ("freeze", *UNHEARD), for_good=True)

    def _release(self, number: int) -> None:
        worker, now = self._workers[number], time.monotonic()
        deaf = self._impairments.has(number, ("freeze", *UNHEARD)) or now < worker.unsettled
        connecting = now - worker.started < CONNECT_TIMEOUT
        # Before the kill, so that the last packets of a killed worker's kernel reach the server.
        self._impairments.forget(number, (*UNHEARD, "slow", "corrupt"))
        if worker.killed is None and (deaf or connecting):
            self._kill(number)

    # -- what is recorded

    def _now(self) -> float:
        """Return the seconds of the host's clock since training began."""
        return 0.0 if self._training is None else time.monotonic() - self._training

    def _write(
        self,
        phase: Phase,
        fault: Fault,
        devices: Sequence[int],
        when: float,
        version: int,
    ) -> None:
        if not self._deduplication.is_new("faults"):
            return
        names = [SERVER_NAME if one == SERVER_NUMBER else self._names[one] for one in devices]
        record = fault.record(phase, devices, when, version)
        self._log.fault(record, names, self._now())
        self._event("info", told(record, names), names[0] if len(names) == 1 else None)

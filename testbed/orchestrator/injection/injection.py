"""Faults as the orchestrator has them happen: begun, undone and written down.

Who is struck and when is decided elsewhere. Under the virtual clock the server's records say when a
fault begins and when it ends. Under the wall clock the beginning comes from the schedule's times, of
which this is the clock, from the server, when it reaches a version that the schedule names, and from
workers, when they have made a push behind which something strikes them; every end is timed here.

A worker that a fault has killed comes back as its next *incarnation*, once its process is gone and the
server has told of its last connection, and with that of all it pushed.

A server that a fault has killed is started again when its time has come. Under the virtual clock it has
everybody as they were at its checkpoint; under the wall clock nothing but the server itself goes back.

When training has ended, those that could not hear of it (frozen, cut off, or only just connected again,
while TCP still waits for longer and longer) are killed, with their links up: their kernel then says at
once that the connection is over, and no ledger has to wait for it.
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
"""Kinds that keep a device from being heard, and from hearing."""
SETTLED = 2.0
"""Seconds behind an outage, and its length once more, until TCP goes on as before."""
LOOK_PERIOD = 0.02
"""Seconds between two looks for what is not told."""
CLOSING_TIMEOUT = 2.0
"""Seconds in which the server tells of a killed worker's connection, if it can notice its end."""
Phase: TypeAlias = Literal["begin", "end"]
_DETAILS = ("factor", "uplink", "downlink", "cpus", "share")


@dataclass(slots=True)
class _Worker:
    """What has to be known of one worker.

    Attributes:
        incarnation: how often it has come back.
        applied: how many of its pushes the server has told of.
        pushes: how many it has told of itself, last; the server tells later.
        killed: until when a fault keeps it dead, in seconds of CLOCK_MONOTONIC; infinite: for good, or
            until the clock says so; None: it lives.
        exited: when its process had ended, once it was killed.
        closed: whether the server has told of its last connection since then.
        unsettled: until when TCP may be behind an outage.
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
    """Of which somebody tells."""
    details = {key: record[key] for key in _DETAILS if key in record}
    return Fault(record["rule"], record["fault"], record["duration"], **details)


class Injection:
    """The faults of one run."""

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
        """Nothing has happened yet.

        Args:
            names: the workers' names by number.
            ask: the agent.
            start: a device, in a role.
            event: tells one, as (level, text, device).
            once: knows what was written down already.
        """
        self._once = once
        self._server = KilledServer(ask, start)
        self._settings = settings
        self._names = names
        self._numbers = {name: number for number, name in names.items()}
        self._start, self._event, self._log, self._ask = start, event, log, ask
        self._wall = settings.timing.clock == "wall"
        self._schedule = Schedule(settings.faults.rules, settings.seed, settings.workers)
        self.paces = Paces.make(settings.workers) if settings.faults.rules and self._wall else None
        self._standings = Impairments(names, ask, self.paces)
        self._workers = {number: _Worker() for number in names}
        self._agenda = Agenda(self._schedule)
        self._training: float | None = None
        self._version = self._reached = 0
        self._over = False
        self._elapsed = -math.inf
        self._lasting: list[dict[str, Any]] = []

    # -- what happens

    def go_on(
        self, rows: npt.NDArray[Any], records: Sequence[Mapping[str, Any]], mark: Mark
    ) -> None:
        """Begin where an interrupted run was; nobody is there, and ``restored`` has them started.

        Args:
            rows: the pushes that were taken in, of ``records.UPDATE``.
            records: of the faults, with the devices' names.
            mark: of the checkpoint.
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
            return  # the virtual clock knows what lasts
        for number in earlier.dead:
            self._workers[number].killed = math.inf
        self._lasting = earlier.lasting

    def training(self, when: float) -> None:
        """Training has begun, at a moment of CLOCK_MONOTONIC."""
        self._training = when
        if not self._wall:
            return
        self._agenda.begin(when, self._elapsed)
        for record in self._lasting:
            fault, devices = _fault(record), record["devices"]
            if fault.kind != "kill":
                self._standings.begin(fault, devices)
            self._end_at(when + record["time"], fault, devices)

    def _end_at(self, began: float, fault: Fault, devices: Sequence[int]) -> None:
        """Have a fault end in time; it began at a moment of CLOCK_MONOTONIC."""
        if fault.duration is not None:
            struck = {number: self._workers[number].incarnation for number in devices}
            self._agenda.end_at(began + fault.duration, fault, struck)

    def updates(self, rows: npt.NDArray[Any], version: int) -> None:
        """Pushes were taken in, rows of ``records.UPDATE``, which led to this version."""
        self._version = version
        pushed = rows["worker"][rows["payload_bytes"] > 0]
        numbers, counts = np.unique(pushed, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number in self._workers:  # and not a peer
                self._workers[number].applied += count

    def reached(self, version: int) -> None:
        """The server has reached a version that the schedule names."""
        self._version = version
        if version <= self._reached:
            return  # a server that has come back reaches it once more
        self._reached = version
        for devices, fault in self._schedule.at_iteration(version):
            self._begin(fault, devices, self._now(), version)

    def told(self, record: Mapping[str, Any]) -> None:
        """The clock, or a worker, tells of a fault's beginning or end."""
        if SERVER_NUMBER in record["devices"]:
            self._tell_of_server(record)  # it has come back from that
            return
        fault, devices, phase = _fault(record), record["devices"], record["phase"]
        when = self._now() if self._wall else record["time"]
        if "pushes" in record:
            worker = self._workers[devices[0]]
            worker.pushes = record["pushes"]
            if self._over and worker.killed is None and fault.kind in ("freeze", "kill"):
                self._kill(devices[0])  # it stands still by itself, and hears of no end
        if phase == "begin":
            self._begin(fault, devices, when, record["iteration"])
        else:
            self._end(fault, devices, when, record["iteration"])

    def exited(self, device: str) -> bool:
        """A device's process has ended; whether that was the testbed's doing."""
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
        """The server has told of a connection's end, and of all that came over it."""
        if number in self._workers:
            self._workers[number].closed = True

    def explains(self, device: str | None) -> bool:
        """Whether a connection that ends is what a fault of this device leads to."""
        number = None if device is None else self._numbers.get(device)
        if number is None:
            return False
        worker = self._workers[number]
        lately = time.monotonic() - worker.started < CONNECT_TIMEOUT
        return worker.killed is not None or lately

    @property
    def patience(self) -> float:
        """Seconds until ``turn`` has something to do."""
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
        """Do what is due by now, or was by an earlier moment of CLOCK_MONOTONIC."""
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
        """When the last server that was killed had ended, in seconds of CLOCK_MONOTONIC."""
        return self._server.last_end

    @property
    def server_kills(self) -> int:
        """How often the server was killed, in all sessions of the run."""
        return self._server.kills

    def kill_server(self, number: int, record: Mapping[str, Any]) -> None:
        """The clock has the server killed, for this time; it waits for that."""
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
        """Have everybody as planned: what lasted when the checkpoint was written begins again.

        Whoever did not hear that the server is gone may never do so, and begins anew.
        """
        for number, worker in self._workers.items():
            deaf = self._standings.has(number, UNHEARD) or time.monotonic() < worker.unsettled
            self._standings.forget(number, get_args(Kind))
            if deaf and worker.killed is None:
                self._kill(number)

    def _bring_server_back(self) -> None:
        server = self._server
        if time.monotonic() < server.due:
            return
        if server.fault is not None:
            self._write("end", server.fault, [SERVER_NUMBER], self._now(), self._version)
        elif any(one.killed is not None and one.exited is None for one in self._workers.values()):
            return  # they are to be gone, too
        server.start_again(self._training)

    def restored(
        self, version: int, there: Sequence[int], incarnations: Sequence[int] | None
    ) -> None:
        """The server is back: have those workers that it expects, in the incarnations they had.

        Args:
            version: from which it goes on.
            there: who was there when the checkpoint was written.
            incarnations: of all workers, then or when they come back; None under the wall clock, where
                workers are as they are.
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
        """A fault lasted when the checkpoint was written."""
        self._standings.begin(_fault(record), record["devices"])

    def release(self) -> None:
        """Training has ended: nothing begins any more, and nobody is to keep it from its end."""
        self._over = True
        self._agenda.clear()
        for number in self._names:
            self._release(number)

    # -- doing it

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
            self._standings.begin(fault, devices)
        if self._wall:
            self._end_at(time.monotonic(), fault, devices)
        if self._wall and all(map(self._is_lost, self._names)):
            for number in self._names:
                self._release(number)  # the server finds that nobody is left

    def _can_be_struck(self, number: int) -> bool:
        """Whether a worker is there: who is killed or lost has no other fault."""
        return self._workers[number].killed is None and not self._is_lost(number)

    def _lasts(self, fault: Fault, number: int, incarnation: int) -> bool:
        """Whether a fault is still there to end: a process that was killed does not thaw."""
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
        self._standings.end(fault, devices)
        if fault.kind in UNHEARD and fault.duration is not None:
            for number in devices:
                behind = time.monotonic() + fault.duration + SETTLED
                self._workers[number].unsettled = behind

    def _kill(self, number: int) -> None:
        worker = self._workers[number]
        worker.killed, worker.exited, worker.closed = math.inf, None, False
        self._ask({"kill": self._names[number]})
        # The next incarnation is not frozen; this one must not go on before it is killed.
        self._standings.forget(number, ("freeze",))

    def _bring_back(self) -> None:
        """Start those whose time has come, and of whom all is known."""
        if (self._server.killed or self._server.coming) and not self._wall:
            return  # it says whom it wants to have back
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
        """Whether nothing can come of a worker any more."""
        if self._workers[number].killed == math.inf:
            return not self._agenda.has_end(number)
        return self._standings.has(number, ("freeze", *UNHEARD), for_good=True)

    def _release(self, number: int) -> None:
        worker, now = self._workers[number], time.monotonic()
        deaf = self._standings.has(number, ("freeze", *UNHEARD)) or now < worker.unsettled
        connecting = now - worker.started < CONNECT_TIMEOUT
        # First, so that what a killed one's kernel says of the connection is heard.
        self._standings.forget(number, (*UNHEARD, "slow", "corrupt"))
        if worker.killed is None and (deaf or connecting):
            self._kill(number)

    # -- telling it

    def _now(self) -> float:
        """Seconds of the host's clock since training began."""
        return 0.0 if self._training is None else time.monotonic() - self._training

    def _write(
        self,
        phase: Phase,
        fault: Fault,
        devices: Sequence[int],
        when: float,
        version: int,
    ) -> None:
        if not self._once.is_new("faults"):
            return
        names = [SERVER_NAME if one == SERVER_NUMBER else self._names[one] for one in devices]
        record = fault.record(phase, devices, when, version)
        self._log.fault(record, names, self._now())
        self._event("info", told(record, names), names[0] if len(names) == 1 else None)

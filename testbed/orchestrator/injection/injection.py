"""Fault injection by the orchestrator: begin, undo and record faults.

Which devices are struck and when is decided elsewhere (``testbed.faults.schedule``). Under the virtual
clock the server's records say when a fault begins and ends. Under the wall clock every end is timed
here, and a beginning comes from one of three: the schedule's times, which are also timed here; the
server, when it reaches a version that the schedule names; a worker, after a push that a fault follows.

A killed server is started again: under the virtual clock at once, and its workers are put back to where
they were at its checkpoint; under the wall clock when its fault ends, and only the server goes back.

When training has ended, devices that could not receive the message (frozen, cut off, or only just
connected again, while TCP's retransmission timer is still long) are killed, with their links up: their
kernel then closes the connection at once, and no ledger has to wait for it. Aggregators hear of the end
from servers and pass it on, so that their faults end before those of workers.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy.typing as npt

from testbed.device_names import SERVER_NUMBER, is_peer, server_index, server_names, server_number
from testbed.faults.fault import Fault
from testbed.faults.futility import Futility
from testbed.faults.schedule import TimedFault
from testbed.messages.fault_changes import SILENT, UNREACHABLE, FaultChange, Kind, RecordedChange
from testbed.orchestrator.injection.agenda import Agenda, Clock, TrainingClock
from testbed.orchestrator.injection.earlier_faults import EarlierFaults
from testbed.orchestrator.injection.impairments import Ask, Impairments
from testbed.orchestrator.injection.killable_workers import KillableWorkers, Start
from testbed.orchestrator.injection.killed_server import KilledServer
from testbed.orchestrator.injection.reachability import Reachability
from testbed.orchestrator.injection.traced_rates import TracedRates
from testbed.roles.pace import Paces
from testbed.runs.deduplication import Deduplication
from testbed.runs.ending import EndError
from testbed.runs.strikes import Strikes
from testbed.telemetry.run_log import RunLog
from testbed.training.settings import Settings

LOOK_PERIOD = 0.02
"""Seconds between two checks for what no message reports."""


class Injection:
    """Begins, undoes and records the faults of one run."""

    def __init__(
        self,
        settings: Settings,
        names: Mapping[int, str],
        *,
        aggregators: Mapping[int, str],
        ask: Ask,
        start: Start,
        log: RunLog,
        deduplication: Deduplication,
        clock: Clock,
    ) -> None:
        """Start without faults.

        Args:
            names: the workers' or peers' names by number.
            aggregators: the aggregators' names by their numbers as workers.
            deduplication: knows which faults are on record already.
        """
        # They change as faults do, but are none.
        self._rates = TracedRates(settings.followed_traces, names, ask=ask, clock=clock)
        self._names, self._aggregators = names, aggregators
        self._all = {**names, **aggregators}
        self._numbers = {name: number for number, name in self._all.items()}
        self._are_peers = any(map(is_peer, names.values()))
        self._evaluated = settings.network.evaluated_peer if self._are_peers else None
        self._clock = TrainingClock(clock)
        servers = settings.servers
        self._strikes = Strikes(
            log,
            lambda: self._clock.elapsed,
            deduplication,
            servers=0 if self._are_peers else servers,
            workers=settings.workers,
        )
        self._wall = settings.timing.clock == "wall"
        self._schedule = settings.schedule()
        self.paces = Paces.make(settings.workers) if settings.faults.rules and self._wall else None
        self._co_located = settings.network.co_located
        self._impairments = Impairments(
            self._all,
            ask,
            wall=self._wall,
            co_located=self._co_located,
            aggregators=aggregators,
        )
        self._serves = {one: server_number(settings.serving_index(one)) for one in aggregators}
        self._workers = KillableWorkers(
            self._all, ask, start, clock, wall=self._wall, aggregators=self._serves
        )
        self._servers = {
            (number := server_number(index)): KilledServer(
                number, name, ask, start, clock=self._clock, strikes=self._strikes
            )
            for index, name in enumerate(server_names(servers))
        }
        self._server_numbers = dict(zip(server_names(servers), self._servers, strict=True))
        self._agenda = Agenda(self._schedule)
        self._struck = Reachability(
            *(names, self._workers, self._impairments, self._agenda),
            above=settings.above,
            co_located=self._co_located,
        )
        self._futility = Futility("step" if self._are_peers else "push")
        self._updates = settings.training.updates
        self._version = self._reached = 0
        self._over = self._are_aggregators_over = False
        self._ended: set[int] = set()
        self._earlier_seconds = -math.inf
        self._earlier = EarlierFaults()

    # -- what is reported

    def resume(
        self,
        rows: npt.NDArray[Any],
        records: Sequence[RecordedChange],
        version: int,
        elapsed: float,
    ) -> None:
        """Restore the state of an interrupted run; no worker is alive until ``restored`` starts it.

        Args:
            rows: the pushes to the (first) server up to its checkpoint, rows of ``records.UPDATE``.
            records: the faults up to the checkpoint, with the devices' names.
            version: the (first) server's at its checkpoint.
            elapsed: the seconds that the run had trained.
        """
        self._earlier_seconds = elapsed
        self._version = self._reached = version
        earlier = EarlierFaults.of(records, self._numbers)
        for name, kills in earlier.server_kills.items():
            self._servers[self._server_numbers[name]].kills = (
                kills if self._wall else sum(earlier.server_kills.values())
            )
        # Under the virtual clock the server reports which workers are dead and which faults active:
        # none may be started before, with which the server would go on in place of the right one.
        self._workers.resume(rows, earlier.incarnations, earlier.dead if self._wall else ())
        if self._wall:
            self._earlier = earlier
        else:
            self._servers[SERVER_NUMBER].restoring = True

    def training(self, when: float) -> None:
        """Count the faults' times from a moment of CLOCK_MONOTONIC, at which training began."""
        self._clock.began = when
        self._rates.training(when)
        if not self._wall:
            return
        self._agenda.begin(when, self._earlier_seconds)
        for record in self._earlier.lasting:
            fault, devices = Fault.of_record(record), record["devices"]
            if fault.kind != "kill":
                self._impairments.begin(fault, devices)
            for number in self._aggregators.keys() & devices if fault.kind == "kill" else ():
                self._kill(number)  # all have begun anew
            self._schedule_end(when + record["time"], fault, devices)
        self._tell_given_up(self._names)

    def _schedule_end(self, began: float, fault: Fault, devices: Sequence[int]) -> None:
        """Schedule the end of a fault that began at a moment of CLOCK_MONOTONIC, if it has one."""
        if fault.duration is not None:
            struck = {number: self._workers.incarnation(number) for number in devices}
            self._agenda.end_at(began + fault.duration, fault, struck)

    def updates(self, rows: npt.NDArray[Any], version: int) -> None:
        """Count the pushes in rows of ``records.UPDATE``, which led to ``version``."""
        self._version = version
        self._futility.reached(version, self._clock.elapsed)
        self._workers.count_pushes(rows)

    def reached(self, version: int) -> None:
        """Start the faults of a version that the server has reached."""
        self._version = version
        if version <= self._reached:
            return  # a restored server reaches it a second time
        self._reached = version
        for devices, fault in self._schedule.at_iteration(version):
            self._begin(fault, devices, self._clock.elapsed, version)

    def reported(self, record: FaultChange, spared: Collection[int] = ()) -> None:
        """Handle a report, by the virtual clock or a worker, that a fault begins or ends.

        Args:
            spared: devices that are struck by the record only.
        """
        devices = record["devices"]
        if "others" in record:
            self._struck.told_others |= dict.fromkeys(devices, record["others"])
        if min(devices, default=0) <= SERVER_NUMBER:
            for number in devices:
                self._servers[number].write(record)  # a restored server reports its own kill
            return
        fault = Fault.of_record(record)
        when = self._clock.elapsed if self._wall else record["time"]
        if "pushes" in record:
            self._workers.report_pushes(devices[0], record["pushes"])
            alive = self._workers.is_alive(devices[0])
            if self._over and alive and fault.kind in ("freeze", "kill"):
                self._kill(devices[0])  # it waits for its fault, and not for the end of training
        if record["phase"] == "begin":
            self._begin(fault, devices, when, record["iteration"], spared)
        else:
            self._end(fault, devices, when, record["iteration"])

    def exited(self, device: str) -> bool:
        """Record the end of a device's process; return True if this module had it killed."""
        server = self._servers.get(self._server_numbers.get(device, 0))
        if server is not None and server.exited():
            if not self._wall:
                self._end_all()
            return True
        number = self._numbers.get(device, SERVER_NUMBER)
        killed = self._workers.exited(number)
        if killed and self._over and self._are_peers and self.paces is not None:
            self.paces.end(number)
        return killed

    def lose(self, device: str) -> bool:
        """Go on without a device whose host is lost; return True if it was not lost before."""
        number = self._numbers[device]
        before = self._struck.is_lost(number)
        self._workers.lose(number)
        self._tell_given_up([number])
        self._release_if_all_are_lost()
        return not before

    def is_orphan(self, device: str) -> bool:
        """Return True if an aggregator above a device is dead for good, so that it ends as well."""
        number = self._numbers.get(device)
        return number is not None and self._struck.is_orphan(number)

    def closed(self, number: int | None, pushes: int = 0) -> None:
        """Record a connection's end, which the server reported after all that came over it.

        Args:
            pushes: those that came over it, as far as no row tells of them.
        """
        self._workers.closed(number, pushes)

    def explains(self, device: str | None) -> bool:
        """Return True if a kill of the device explains that a connection of it ended."""
        number = None if device is None else self._numbers.get(device)
        if number is None:
            return False
        return not self._workers.is_alive(number) or self._workers.is_connecting(number)

    @property
    def patience(self) -> float:
        """The number of seconds until ``turn`` has something to do."""
        now = self._clock.now()
        server = min(one.due for one in self._servers.values())
        due = min(self._rates.due, self._agenda.due, max(server, now + LOOK_PERIOD))
        if self._workers.any_returning and not self._over:
            due = min(due, now + LOOK_PERIOD)
        return max(0.0, due - now)

    def turn(self, until: float = math.inf) -> None:
        """Do what is due by now, or was due by ``until``, a moment of CLOCK_MONOTONIC.

        Raises:
            EndError: by the wall clock, no update is to be expected any more.
        """
        self._rates.turn()
        while due := self._agenda.take(min(until, self._clock.now())):
            if isinstance(due, TimedFault):
                self._begin(due.fault, due.devices, self._clock.elapsed, self._version)
                continue
            devices = [
                n for n, life in due.struck.items() if self._struck.lasts(due.fault, n, life)
            ]
            if devices:
                self._end(due.fault, devices, self._clock.elapsed, self._version)
        # Even if the server was killed when training had just ended. Under the virtual clock, killed
        # workers must be gone before it starts.
        for server in self._servers.values():
            if server.is_due and (self._wall or not self._workers.any_dying):
                server.start_again(self._version)
        if not self._over:
            self._bring_workers_back()
            if self._futility.is_certain(self._able):
                made = f"{self._version:,} of {self._updates:,}"
                reason = f"no further update was possible after {made}"
                raise EndError("failed", f"{reason}: {self._futility.reason}")

    def _able(self) -> list[int]:
        """Return the workers that are not lost for good."""
        return [number for number in self._names if not self._struck.is_lost(number)]

    def release(self) -> None:
        """End all faults, as training has ended: none starts any more, or may delay the run's end."""
        self._over = True
        self._agenda.clear()
        self._rates.release()
        self._release_all()

    def release_aggregators(self) -> Collection[int]:
        """End the faults of aggregators, as training has ended at all servers, or no worker is left.

        One that cannot hear of the end is killed, with all that are below it: they would hear of it
        from nobody else.

        Returns:
            The indices, as roles that serve, of those that are given up: nothing more comes of them.
        """
        self._are_aggregators_over = True
        given_up = set()
        for number in self._aggregators:
            self._impairments.forget(number, ("freeze",))  # what has come waits there for its thaw
            if self._serves[number] in self._ended:
                continue
            deaf = self._struck.is_deaf(number, UNREACHABLE) or self._workers.is_connecting(number)
            if deaf or not self._workers.is_alive(number):
                given_up.add(number)
        given_up.update(
            one for one in self._aggregators if not given_up.isdisjoint(self._struck.above(one))
        )
        for number in self._aggregators:
            self._impairments.forget(number, (*UNREACHABLE, "slow", "corrupt"))
        for number in sorted(given_up | set(self._struck.below(given_up))):
            if self._workers.is_alive(number):
                self._kill(number)
            self._workers.lose(number)
        return [server_index(self._serves[number]) for number in given_up]

    # -- the server

    def server_exited(self, server: int) -> float:
        """Return the moment of CLOCK_MONOTONIC when a server's last killed process had ended."""
        return self._servers[server_number(server)].last_end

    @property
    def server_kills(self) -> int:
        """The number of times that servers were killed, in all sessions of the run."""
        each = [one.kills for one in self._servers.values()]
        return sum(each) if self._wall else max(each)

    def server_ended(self, server: int) -> None:
        """Kill a server no more, as training has ended at it."""
        self._ended.add(server_number(server))

    def kill_server(self, number: int, record: FaultChange) -> None:
        """Kill the server for the ``number``-th time; the server has asked for it, and waits."""
        (device,) = record["devices"]
        self._servers[device].write(record)
        self._servers[device].kill(number)

    @property
    def _is_any_server_away(self) -> bool:
        return any(one.is_away for one in self._servers.values())

    def _end_all(self) -> None:
        """End all faults: the restored server reports those that were active at its checkpoint.

        A worker that cannot notice the server's end now may never do so, and is killed.
        """
        for number in self._names:
            deaf = self._struck.is_deaf(number, UNREACHABLE)
            self._impairments.forget(number, get_args(Kind))
            if deaf and self._workers.is_alive(number):
                self._kill(number)

    def restored(
        self,
        server: int,
        version: int,
        connected: Sequence[int],
        incarnations: Sequence[int] | None,
    ) -> None:
        """Start and kill workers so that the restored server finds the incarnations that it expects.

        Args:
            server: the server's index.
            version: the version of the checkpoint.
            connected: the numbers of the workers connected when the checkpoint was written.
            incarnations: each worker's incarnation at that time, or that in which it comes back; None
                under the wall clock, where workers stay as they are.
        """
        self._servers[server_number(server)].restoring = False
        if incarnations is None:
            if server == 0:  # at whose versions faults happen
                self._version = version
            if not self._over:
                self._bring_workers_back()
            return
        for number in self._names:
            expected, incarnation = number in connected, incarnations[number]
            if self._workers.is_alive(number):
                if expected and self._workers.incarnation(number) == incarnation:
                    continue
                self._kill(number)
            self._workers.expect(number, incarnation, back=expected)
        self._bring_workers_back()

    def connected(self, number: int) -> None:
        """Record that a peer or an aggregator that came back is connected to the others."""
        self._workers.connected(number)

    def restore_fault(self, record: FaultChange) -> None:
        """Apply a fault that was active when the checkpoint was written."""
        self._impairments.begin(Fault.of_record(record), record["devices"])

    # -- what is done

    def _begin(
        self,
        fault: Fault,
        devices: Sequence[int],
        when: float,
        version: int,
        spared: Collection[int] = (),
    ) -> None:
        if min(devices, default=0) <= SERVER_NUMBER:
            for number in devices:
                if not (self._over or number in self._ended or self._servers[number].is_away):
                    self._servers[number].begin_fault(fault, when, version)
            return
        devices = [number for number in devices if self._can_be_struck(number)]
        if self._over or not devices:
            return
        self._strikes.write(fault.record("begin", devices, when, version))
        if fault.kind == "kill":
            for number in devices:
                self._kill(number)
        else:
            self._impairments.begin(fault, [one for one in devices if one not in spared])
        below = self._struck.below(devices)
        if self._wall:
            self._futility.struck([*devices, *below])
            self._schedule_end(self._clock.now(), fault, devices)
        self._tell_given_up([*devices, *below])
        self._release_if_all_are_lost()

    def _can_be_struck(self, number: int) -> bool:
        over = self._are_aggregators_over and number in self._aggregators
        return not over and self._struck.can_be_struck(number)

    def _release_if_all_are_lost(self) -> None:
        if self._wall and all(map(self._struck.is_lost, self._names)):
            self._release_all()  # so that the server finds that no worker is left
            self._tell_given_up(self._names)

    def _tell_given_up(self, numbers: Iterable[int]) -> None:
        """Let servers know which of some workers never come back."""
        if self.paces is None or self._are_peers:
            return
        for number in numbers:
            if number in self._names and self._struck.never_returns(number):
                self.paces.end(number)

    def _end(self, fault: Fault, devices: Sequence[int], when: float, version: int) -> None:
        self._strikes.write(fault.record("end", devices, when, version))
        if fault.kind == "kill":
            for number in devices:
                self._workers.end_kill(number)
            self._bring_workers_back()
            return
        self._impairments.end(fault, devices)
        if fault.kind in UNREACHABLE and fault.duration is not None:
            ended = [number for number in devices if self._impairments.is_real(fault, number)]
            # The outage of a server's machine was one of every worker's connection with that server.
            of_server = min(ended, default=self._co_located) < self._co_located
            for number in self._names if of_server else {*ended, *self._struck.below(ended)}:
                self._workers.end_outage(number, fault.duration)

    def _kill(self, number: int) -> None:
        self._workers.kill(number)
        # After the kill, so that this incarnation does not run on; the next one is not frozen.
        self._impairments.forget(number, ("freeze",))

    def _bring_workers_back(self) -> None:
        if self._is_any_server_away and not self._wall:
            return  # the restored server says which workers it expects
        others = self._struck.others if self._are_peers else None
        self._workers.bring_back(self.server_kills, others, self._struck.can_greet)

    def _release_all(self) -> None:
        """Undo what would keep workers from hearing of the end, and kill those that could not."""
        self.release_aggregators()
        kinds, killed = SILENT, []
        for number in self._names:
            if self._are_peers and not self._wall:
                # Who learns of the end is a part of the result: those that are not stopped any more.
                deaf, connecting = self._impairments.has(number, kinds), False
            else:
                deaf = self._struck.is_deaf(number, kinds)
                connecting = self._workers.is_connecting(number)
            if number != self._evaluated and (deaf or connecting):
                killed.append(number)
        # Before the kills, so that the last packets of a killed worker's kernel reach every server.
        for number in self._names:
            self._impairments.forget(number, (*UNREACHABLE, "slow", "corrupt"))
            if number == self._evaluated:  # it has to pass its models on
                self._impairments.forget(number, ("freeze",))
        for number in killed:
            if self._workers.is_alive(number):
                self._kill(number)

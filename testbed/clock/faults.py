"""Faults as events of the virtual clock, and their records.

A fault is an event ahead of all others of its moment, or it strikes when a push has been taken in or a
version reached, in the middle of the event that does so. ``testbed.clock.conditions`` says what a fault
does to its workers.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from testbed.checkpoints.stateful import Stateful
from testbed.clock import conditions
from testbed.clock.conditions import WorkerConditions
from testbed.clock.events import FAULT
from testbed.clock.stage import FaultStage
from testbed.clock.star import StarClock
from testbed.clock.timed_workers import Devices
from testbed.device_names import SERVER_NUMBER, server_index
from testbed.faults.fault import Fault
from testbed.faults.futility import Futility
from testbed.faults.schedule import Schedule, TimedFault
from testbed.training.parameter_service import ParameterService


@dataclass(frozen=True, slots=True)
class _Strike:
    """A fault that strikes at its time; the next timed fault is posted after it."""

    devices: Sequence[int]
    fault: Fault


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a fault for the incarnations that it struck; ``number`` is that of its strike."""

    fault: Fault
    number: int
    incarnations: dict[int, int]


STORED: tuple[type, ...] = (*conditions.STORED, _Strike, _End)
"""The classes in a clock's state, besides plain values and arrays."""


class FaultStrikes(Stateful):
    """The faults of one run, as its clock makes them happen."""

    not_saved = frozenset({"_clock", "_conditions", "_services", "_stage", "_schedule", "_timed"})

    def __init__(
        self,
        clock: StarClock,
        conditions: WorkerConditions,
        services: Sequence[ParameterService],
        stage: FaultStage,
        schedule: Schedule,
    ) -> None:
        """Prepare the faults of a run.

        Args:
            services: of which the first one's version decides when faults at a version are due.
            schedule: which devices faults strike, and when.
        """
        self._clock = clock
        self._conditions = conditions
        self._services = services
        self._stage = stage
        self._pushes = dict.fromkeys(clock.workers, 0)
        self._schedule = schedule
        self._timed = schedule.timed()
        self._iteration = schedule.next_iteration(self._version)
        self._actions: dict[int, _Strike | _End] = {}
        self._came = self._posted = self._strikes = self._server_strikes = 0
        self._futility = Futility()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with the faults that had not come by then."""
        super().restore(state)
        for _ in range(self._came):
            next(self._timed)

    @property
    def _version(self) -> int:
        return self._services[0].half.version

    # -- events

    def _post(self, time: float, action: _Strike | _End) -> None:
        self._posted += 1
        self._actions[self._posted] = action
        self._clock.events.add(time, FAULT, self._posted)

    def begin(self) -> None:
        """Remove the workers that have not arrived yet, before training begins."""
        for timed in itertools.takewhile(_is_at_beginning, self._schedule.timed()):
            self._came += 1
            next(self._timed)
            self._strike(timed.devices, timed.fault)
        self._await_next()

    def _await_next(self) -> None:
        """Add the next fault that has a time to the events, if there is one."""
        coming = next(self._timed, None)
        if coming is None:
            return
        time, devices, fault = coming
        self._came += 1
        self._post(time, _Strike(devices, fault))

    def strike(self, number: int) -> None:
        """Let the fault of an event begin or end."""
        action = self._actions.pop(number)
        if isinstance(action, _End):
            self._end(action)
        elif self._is_alive():
            self._strike(action.devices, action.fault)
            self._await_next()

    def _is_alive(self) -> bool:
        """Return True if anything but faults is to come; otherwise no worker will push any more."""
        if self._futility.is_certain(self._able):
            self._clock.futile = self._futility.reason
            return False
        return bool(self._conditions.away) or self._clock.has_any_but_faults()

    def _able(self) -> Iterator[int]:
        """Yield the workers of which anything is to come, or that come back."""
        yield from self._conditions.away
        yield from self._clock.acting()

    def pushed(self, worker: int) -> None:
        """Let faults strike that are due after a worker's push; none strikes an aggregator."""
        if self._clock.finished:
            return
        self._futility.reached(self._version, self._clock.now)
        if self._clock.conversations.below(worker) is None:
            self._pushes[worker] += 1
            for fault in self._schedule.after_push(worker, self._pushes[worker]):
                self._strike((worker,), fault)
        self.strike_at_iteration()

    def strike_at_iteration(self) -> None:
        """Let faults strike that are due at the version that was reached."""
        if self._clock.finished:
            return
        while self._iteration is not None and self._version >= self._iteration:
            for devices, fault in self._schedule.at_iteration(self._iteration):
                self._strike(devices, fault)
            self._iteration = self._schedule.next_iteration(self._iteration)

    # -- faults

    def _tell(self, fault: Fault, phase: Literal["begin", "end"], devices: Sequence[int]) -> None:
        version = self._version
        self._stage.fault(fault.record(phase, devices, self._clock.now, version))

    def _strike(self, devices: Sequence[int], fault: Fault) -> None:
        """Let a fault strike servers, or those of the workers that are neither killed nor lost.

        Servers are killed one after the other, as the run goes back with each of them.
        """
        servers = [device for device in devices if device <= SERVER_NUMBER]
        for server in servers:
            self._kill_server(server, fault)
        if servers:
            return
        slow, until = fault.kind == "slow", self._clock.now + (fault.duration or inf)
        there = [worker for worker in devices if worker in self._clock.workers]
        struck = [
            w for w in there if not self._conditions[w].lost and (slow or self._conditions.fetch(w))
        ]
        if not struck:
            return
        self._tell(fault, "begin", struck)
        self._strikes += 1
        self._futility.struck(struck)
        number = self._strikes
        for worker in struck:
            if slow:
                self._conditions.slow(worker, number, fault)
            elif fault.kind == "kill":
                self._conditions.kill(worker, until)
            elif until == inf:
                self._conditions.lose(worker, arriving=fault.kind == "freeze")
            elif fault.kind == "freeze":
                self._conditions.freeze(worker, until)
            else:
                self._conditions.cut_off(worker, until)
        if until < inf:
            incarnations = {worker: self._conditions[worker].incarnation for worker in struck}
            self._post(until, _End(fault, number, incarnations))
        if fault.kind == "kill":
            self._clock.send_due()  # others may have waited for the killed workers

    def _kill_server(self, server: int, fault: Fault) -> None:
        self._server_strikes += 1
        version = self._version
        phases: tuple[Literal["begin", "end"], ...] = ("begin", "end")
        both = (fault.record(phase, [server], self._clock.now, version) for phase in phases)
        self._stage.server_killed(server_index(server), self._server_strikes, *both)

    def _end(self, end: _End) -> None:
        fault, incarnations = end.fault, end.incarnations
        if fault.kind == "kill":
            for worker in incarnations:
                self._bring_back(worker, fault)
            self._clock.send_due()
            return
        # A killed process does not thaw; the link and the slowness of a device outlive it.
        conditions = self._conditions
        still = [
            worker
            for worker, incarnation in incarnations.items()
            if not conditions[worker].lost
            and (fault.kind != "freeze" or conditions[worker].incarnation == incarnation)
        ]
        if fault.kind == "slow":
            for worker in still:
                self._conditions.slow(worker, end.number, None)
        if still:
            self._tell(fault, "end", still)

    def _bring_back(self, worker: int, fault: Fault) -> None:
        """Bring a killed worker back, as soon as its link is up."""
        up = self._conditions.link_up(worker)
        if up > self._clock.now:
            incarnation = self._conditions[worker].incarnation
            self._post(up, _End(fault, 0, {worker: incarnation}))
            return
        self._tell(fault, "end", [worker])
        self._conditions.revive(worker)


def _is_at_beginning(timed: TimedFault) -> bool:
    return timed.time == 0 and timed.fault.away != ""


def star_clock(
    services: Sequence[ParameterService], stage: FaultStage, devices: Devices, schedule: Schedule
) -> StarClock:
    """Make the clock of a run; a run without faults pays nothing for them."""
    clock = StarClock(services, stage, devices)
    if schedule.rules:
        clock.conditions = conditions = WorkerConditions(clock, services, stage)
        clock.strikes = FaultStrikes(clock, conditions, services, stage, schedule)
    return clock

"""Faults as events of the virtual clock, and their records.

A fault is an event ahead of all others of its moment, or it strikes when a push has been taken in or a
version reached, in the middle of the event that does so. ``testbed.clock.afflicted`` says what a fault
does to its workers.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from testbed.clock import afflicted
from testbed.clock.afflicted import AfflictedClock
from testbed.clock.stage import FaultStage
from testbed.clock.star import LATEST, Devices, StarClock
from testbed.device_names import SERVER_NUMBER
from testbed.faults.fault import Fault
from testbed.faults.schedule import Schedule
from testbed.training.parameter_service import ParameterService

FRUITLESS = 10_000
"""The number of faults without a push in between after which no push is expected any more.

A worker that is struck more often than it can push would keep the run going for ever.
"""
_FAULT = -1


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


STORED: tuple[type, ...] = (*afflicted.STORED, _Strike, _End)
"""The classes in a clock's state, besides plain values and arrays."""


class FaultyClock(AfflictedClock):
    """Runs the events of one run, faults among them."""

    not_saved = frozenset({"_schedule", "_timed"})

    def __init__(
        self, service: ParameterService, stage: FaultStage, devices: Devices, schedule: Schedule
    ) -> None:
        """Prepare the clock.

        Args:
            schedule: which devices faults strike, and when.
        """
        super().__init__(service, stage, devices)
        self._pushes = dict.fromkeys(devices.workers, 0)
        self._schedule = schedule
        self._timed = schedule.timed()
        self._iteration = schedule.next_iteration(service.half.version)
        self._actions: dict[int, _Strike | _End] = {}
        self._came = self._posted = self._strikes = self._server_strikes = self._fruitless = 0

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        if not self._service.begun:
            self._post_strike()
        super().run(between)

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        for _ in range(self._came):
            next(self._timed)

    # -- events

    def _post(self, time: float, action: _Strike | _End) -> None:
        self._posted += 1
        self._actions[self._posted] = action
        heapq.heappush(self._events, (time, _FAULT, self._posted, 0))

    def _post_strike(self) -> None:
        """Post the next fault that has a time, if there is one."""
        coming = next(self._timed, None)
        if coming is None:
            return
        time, devices, fault = coming
        self._came += 1
        self._post(time, _Strike(devices, fault))

    def _act(self, action: _Strike | _End) -> None:
        if isinstance(action, _End):
            self._end(action)
        elif self._is_alive():
            self._strike(action.devices, action.fault)
            self._post_strike()

    def _is_alive(self) -> bool:
        """Return True if anything but faults is to come; otherwise no worker will push any more."""
        if self._fruitless > FRUITLESS:
            return False
        away = any(one.away is not None for one in self._conditions.values())
        return away or any(rank != _FAULT and time <= LATEST for time, rank, _, _ in self._events)

    def _handle(self, time: float, rank: int, worker: int, what: float) -> None:
        if rank == _FAULT:
            self.now = time
            self._act(self._actions.pop(worker))
            return
        super()._handle(time, rank, worker, what)
        self._strike_at_iteration()  # an update also results when a worker is no longer waited for

    def _answered(self, worker: int) -> None:
        if self._service.finished:
            return
        self._fruitless = 0
        self._pushes[worker] += 1
        for fault in self._schedule.after_push(worker, self._pushes[worker]):
            self._strike((worker,), fault)
        self._strike_at_iteration()

    def _strike_at_iteration(self) -> None:
        if self._service.finished:
            return
        while self._iteration is not None and self._service.half.version >= self._iteration:
            for devices, fault in self._schedule.at_iteration(self._iteration):
                self._strike(devices, fault)
            self._iteration = self._schedule.next_iteration(self._iteration)

    # -- faults

    def _tell(self, fault: Fault, phase: Literal["begin", "end"], devices: Sequence[int]) -> None:
        version = self._service.half.version
        self._stage.fault(fault.record(phase, devices, self.now, version))

    def _strike(self, devices: Sequence[int], fault: Fault) -> None:
        """Let a fault strike the server, or those of the workers that are neither killed nor lost."""
        if SERVER_NUMBER in devices:
            self._server_strikes += 1
            version = self._service.half.version
            phases: tuple[Literal["begin", "end"], ...] = ("begin", "end")
            both = (fault.record(phase, devices, self.now, version) for phase in phases)
            self._stage.server_killed(self._server_strikes, *both)
            return
        slow, until = fault.kind == "slow", self.now + (fault.duration or inf)
        there = [worker for worker in devices if worker in self._workers]
        struck = [w for w in there if not self._conditions[w].lost and (slow or self._fetch(w))]
        if not struck:
            return
        self._tell(fault, "begin", struck)
        self._strikes += 1
        self._fruitless += 1
        number = self._strikes
        for worker in struck:
            if slow:
                self._slow(worker, number, fault)
            elif fault.kind == "kill":
                self._kill(worker, until)
            elif until == inf:
                self._lose(worker, arriving=fault.kind == "freeze")
            elif fault.kind == "freeze":
                self._freeze(worker, until)
            else:
                self._cut_off(worker, until)
        if until < inf:
            incarnations = {worker: self._conditions[worker].incarnation for worker in struck}
            self._post(until, _End(fault, number, incarnations))
        if fault.kind == "kill":
            self._send_due()  # others may have waited for the killed workers

    def _end(self, end: _End) -> None:
        fault, incarnations = end.fault, end.incarnations
        if fault.kind == "kill":
            for worker in incarnations:
                self._bring_back(worker, fault)
            self._send_due()
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
                self._slow(worker, end.number, None)
        if still:
            self._tell(fault, "end", still)

    def _bring_back(self, worker: int, fault: Fault) -> None:
        """Bring a killed worker back, as soon as its link is up."""
        up = self._link_up(worker)
        if up > self.now:
            incarnation = self._conditions[worker].incarnation
            self._post(up, _End(fault, 0, {worker: incarnation}))
            return
        self._tell(fault, "end", [worker])
        self._revive(worker)


def star_clock(
    service: ParameterService, stage: FaultStage, devices: Devices, schedule: Schedule
) -> StarClock:
    """Make the clock of a run; a run without faults pays nothing for them."""
    if not schedule.rules:
        return StarClock(service, stage, devices)
    return FaultyClock(service, stage, devices, schedule)

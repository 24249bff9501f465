"""Faults as events of the virtual clock, and their records.

A fault is an event ahead of all others of its moment, or it strikes when a push has been taken in or a
version reached, in the middle of the event that does so. ``testbed.clock.device_conditions`` says what
a fault does to its devices.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from testbed.checkpoints.stateful import Stateful
from testbed.clock.device_conditions import PHASES, DeviceConditions
from testbed.clock.event_clock import EventClock
from testbed.clock.fault_agenda import FaultAgenda, StrikeEnd
from testbed.device_names import SERVER_NUMBER, server_index
from testbed.faults.fault import Fault
from testbed.faults.futility import Futility
from testbed.faults.schedule import Schedule


class FaultStrikes(Stateful):
    """The faults of one run, as its clock makes them happen."""

    not_saved = frozenset({"_clock", "_conditions", "_schedule"})

    def __init__(
        self,
        clock: EventClock[Any],
        conditions: DeviceConditions[Any],
        schedule: Schedule,
        update: str = "push",
    ) -> None:
        """Prepare the faults of a run.

        Args:
            update: what devices do for an update, in one word.
        """
        self._clock = clock
        self._conditions = conditions
        self._pushes = dict.fromkeys(clock.devices, 0)
        self._schedule = schedule
        self._agenda = FaultAgenda(schedule, clock.events)
        self._strikes = self._server_strikes = 0
        self._futility = Futility(update)

    # -- events

    def begin(self) -> None:
        """Remove the devices that have not arrived yet, before training begins."""
        for timed in self._agenda.absent():
            self._strike(timed.devices, timed.fault)
        self._agenda.await_next()

    def strike(self, number: int) -> None:
        action = self._agenda.take(number)
        if isinstance(action, StrikeEnd):
            self._end(action)
        elif self._is_alive():
            self._strike(action.devices, action.fault)
            self._agenda.await_next()

    def _is_alive(self) -> bool:
        """Return True if anything but faults is to come; otherwise no update will be made any more."""
        if self._futility.is_certain(self._able):
            self._clock.futile = self._futility.reason
            return False
        return bool(self._conditions.away) or self._clock.has_any_but_faults()

    def _able(self) -> Iterator[int]:
        """Yield the devices of which anything is to come, or that come back."""
        yield from self._conditions.away
        yield from self._clock.acting()

    def pushed(self, device: int) -> None:
        if self._clock.finished:
            return
        self._futility.reached(self._clock.version, self._clock.now)
        self._pushes[device] += 1
        for fault in self._schedule.after_push(device, self._pushes[device]):
            self._strike((device,), fault)
        self.strike_at_iteration()

    def strike_at_iteration(self) -> None:
        if self._clock.finished:
            return
        for devices, fault in self._agenda.reached(lambda: self._clock.version):
            self._strike(devices, fault)

    # -- faults

    def _strike(self, devices: Sequence[int], fault: Fault) -> None:
        """Start a fault of servers, or of those of the devices that are neither killed nor lost.

        Servers are killed one after the other, as the run goes back with each of them.
        """
        servers = [device for device in devices if device <= SERVER_NUMBER]
        for server in servers:
            self._kill_server(server, fault)
        if servers or self._clock.finished:
            return
        conditions, until = self._conditions, self._clock.now + (fault.duration or inf)
        slow = fault.kind == "slow"
        there = [device for device in devices if device in self._clock.devices]
        struck = [
            device
            for device in there
            if not conditions[device].lost and (slow or conditions.fetch(device))
        ]
        if not struck:
            return
        self._strikes += 1
        self._futility.struck(struck)
        number = self._strikes
        conditions.prepare(fault, struck)
        conditions.tell(fault, "begin", struck)
        for device in struck:
            if slow:
                conditions.slow(device, number, fault)
            elif fault.kind == "kill":
                conditions.kill(device, until)
            elif until == inf:
                conditions.lose(device, fault)
            elif fault.kind == "freeze":
                conditions.freeze(device, until)
            else:
                conditions.cut_off(device, until)
            conditions.tell_background(device)
        if until < inf:
            incarnations = {device: conditions[device].incarnation for device in struck}
            self._agenda.post(until, StrikeEnd(fault, number, incarnations))
        if fault.kind == "kill":
            conditions.settle()

    def _kill_server(self, server: int, fault: Fault) -> None:
        self._server_strikes += 1
        begin, end = (self._conditions.record(fault, phase, [server]) for phase in PHASES)
        self._conditions.server_killed(server_index(server), self._server_strikes, begin, end)

    def _end(self, end: StrikeEnd) -> None:
        fault = end.fault
        if fault.kind == "kill":
            for device, incarnation in end.incarnations.items():
                again = self._conditions.revive(device, fault)
                if again is not None:
                    self._agenda.post(again, StrikeEnd(fault, 0, {device: incarnation}))
            self._conditions.settle()
            return
        still = end.devices(self._conditions.__getitem__)
        if fault.kind == "slow":
            for device in still:
                self._conditions.slow(device, end.number, None)
                self._conditions.tell_background(device)
        if still:
            self._conditions.tell(fault, "end", still)

"""Faults of peers as events of the virtual clock, and their records.

A fault is an event ahead of all others of its moment, or it strikes when the run has reached a number
of updates, in the middle of the event that does so. ``testbed.clock.peer_conditions`` says what a fault
does to its peers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from testbed.clock.event_clock import LATEST
from testbed.clock.events import FAULT
from testbed.clock.mesh import BACK, MeshClock
from testbed.clock.mesh_interface import MeshFaultStage
from testbed.clock.peer_conditions import PeerConditions
from testbed.faults.fault import Fault
from testbed.faults.futility import Futility
from testbed.faults.schedule import Schedule, TimedFault
from testbed.training.exchange import ExchangeService
from testbed.training.settings import Settings


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a fault for the incarnations that it struck; ``number`` is that of its strike."""

    fault: Fault
    number: int
    incarnations: Mapping[int, int]


class PeerFaults:
    """The faults of one run's peers, as its clock makes them happen."""

    def __init__(
        self,
        clock: MeshClock,
        conditions: PeerConditions,
        stage: MeshFaultStage,
        updates: Callable[[], int],
        schedule: Schedule,
    ) -> None:
        """Prepare the faults of a run.

        Args:
            updates: returns the number of updates so far.
            schedule: which peers are struck, and when.
        """
        self._clock = clock
        self._conditions = conditions
        self._stage = stage
        self._updates = updates
        self._schedule = schedule
        self._timed = schedule.timed()
        self._actions: dict[int, TimedFault | _End] = {}
        self._killed_by: dict[int, Fault] = {}
        """The faults whose ends bring killed peers back, by the peers' numbers."""
        self._posted = self._strikes = 0
        self._futility = Futility("step")
        self._iteration = schedule.next_iteration(0)

    # -- events

    def begin(self) -> None:
        """Add the first fault that has a time to the events."""
        self._await_next()

    def _await_next(self) -> None:
        coming = next(self._timed, None)
        if coming is not None:
            self._post(coming.time, coming)

    def _post(self, time: float, action: TimedFault | _End) -> None:
        self._posted += 1
        self._actions[self._posted] = action
        self._clock.events.add(time, FAULT, self._posted)

    def strike(self, number: int) -> None:
        """Let the fault of an event begin or end."""
        action = self._actions.pop(number)
        if isinstance(action, _End):
            self._end(action)
        elif self._is_alive():
            self._strike(action.devices, action.fault)
            self._await_next()

    def _is_alive(self) -> bool:
        """Return True if anything but faults is to come; otherwise no peer will step any more."""
        if self._futility.is_certain(self._clock.acting):
            self._clock.futile = self._futility.reason
            return False
        transfers = self._clock.transfers
        moves = transfers is not None and transfers.next_end < inf
        return moves or self._clock.events.has_any_but_faults(LATEST)

    def stepped(self) -> None:
        """Let the faults strike that are due at the number of updates that was reached."""
        self._futility.reached(self._updates(), self._clock.now)
        while self._iteration is not None and self._updates() >= self._iteration:
            for devices, fault in self._schedule.at_iteration(self._iteration):
                self._strike(devices, fault)
            self._iteration = self._schedule.next_iteration(self._iteration)

    # -- faults

    def _tell(self, fault: Fault, phase: Literal["begin", "end"], peers: Sequence[int]) -> None:
        self._stage.fault(fault.record(phase, peers, self._clock.now, self._updates()))

    def _strike(self, devices: Sequence[int], fault: Fault) -> None:
        """Let a fault strike those of the peers that are neither killed nor lost."""
        there = [peer for peer in devices if peer in self._clock.peers]
        struck = [peer for peer in there if not self._conditions[peer].lost]
        if not struck or self._clock.finished:
            return
        self._strikes += 1
        self._futility.struck(struck)
        until = self._clock.now + (fault.duration or inf)
        if fault.kind == "kill":
            self._kill(struck, fault, until)
            return
        if fault.kind != "slow":
            self._stage.stop(struck)
        self._tell(fault, "begin", struck)
        for peer in struck:
            if fault.kind == "slow":
                self._conditions.slow(peer, self._strikes, fault)
            elif until == inf:
                self._conditions.lose(peer, fault)
            elif fault.kind == "freeze":
                self._conditions.freeze(peer, until)
            else:
                self._conditions.cut_off(peer, until)
        if until < inf:
            incarnations = {peer: self._conditions[peer].incarnation for peer in struck}
            self._post(until, _End(fault, self._strikes, incarnations))

    def _kill(self, struck: Sequence[int], fault: Fault, until: float) -> None:
        for peer in struck:
            self._stage.kill(peer)
        self._tell(fault, "begin", struck)
        for peer in struck:
            self._conditions.kill(peer, until)
            if until < inf:
                self._killed_by[peer] = fault
                self._clock.add(until, BACK, peer)

    def come_back(self, peer: int) -> None:
        """Let a killed peer come back; that is put off until it and all others can talk."""
        when = self._conditions.reaches_others(peer)
        if when > self._clock.now:
            self._clock.add(when, BACK, peer)
            return
        fault, others = self._killed_by.pop(peer), self._conditions.others(peer)
        record = fault.record("end", [peer], self._clock.now, self._updates())
        if self._stage.come_back(peer, others, record):
            self._conditions.revive(peer, others)
        else:
            self._conditions.give_up(peer)

    def _end(self, end: _End) -> None:
        # A killed process does not thaw; the link and the slowness of a device outlive it.
        conditions = self._conditions
        still = [
            peer
            for peer, incarnation in end.incarnations.items()
            if not conditions[peer].lost
            and (end.fault.kind != "freeze" or conditions[peer].incarnation == incarnation)
        ]
        if end.fault.kind == "slow":
            for peer in still:
                self._conditions.slow(peer, end.number, None)
        if still:
            self._tell(end.fault, "end", still)


def strike(
    clock: MeshClock, stage: MeshFaultStage, service: ExchangeService, settings: Settings
) -> None:
    """Give a clock the faults of its run, if there are any."""
    schedule = Schedule(settings.faults.rules, settings.seed, settings.workers)
    if schedule.rules:
        clock.conditions = conditions = PeerConditions(clock, stage)
        clock.strikes = PeerFaults(clock, conditions, stage, lambda: service.updates, schedule)

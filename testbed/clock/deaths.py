"""Peers that are killed for good, as events of the virtual clock.

A death is an event ahead of all others of its moment, or it strikes when the run has reached a number
of updates, in the middle of the event that does so. What the peer has under way to others is lost.
"""

from collections.abc import Callable, Sequence

from testbed.clock.events import FAULT
from testbed.clock.mesh import MeshClock, MeshFaultStage
from testbed.faults.fault import Fault
from testbed.faults.schedule import Schedule, TimedFault
from testbed.training.exchange import ExchangeService
from testbed.training.settings import Settings


class Deaths:
    """The deaths of one run's peers, as its clock makes them happen."""

    def __init__(
        self,
        clock: MeshClock,
        stage: MeshFaultStage,
        updates: Callable[[], int],
        schedule: Schedule,
    ) -> None:
        """Prepare the deaths of a run.

        Args:
            updates: returns the number of updates so far.
            schedule: which peers are killed, and when.
        """
        self._clock = clock
        self._stage = stage
        self._updates = updates
        self._schedule = schedule
        self._timed = schedule.timed()
        self._next: TimedFault | None = None
        self._iteration = schedule.next_iteration(0)

    def begin(self) -> None:
        """Add the first death that has a time to the events."""
        self._next = next(self._timed, None)
        if self._next is not None:
            self._clock.events.add(self._next.time, FAULT, 0)

    def strike(self) -> None:
        """Let the death of an event happen."""
        assert self._next is not None
        self._kill(self._next.devices, self._next.fault)
        self.begin()

    def stepped(self) -> None:
        """Let the deaths happen that are due at the number of updates that was reached."""
        while self._iteration is not None and self._updates() >= self._iteration:
            for devices, fault in self._schedule.at_iteration(self._iteration):
                self._kill(devices, fault)
            self._iteration = self._schedule.next_iteration(self._iteration)

    def _kill(self, devices: Sequence[int], fault: Fault) -> None:
        struck = [peer for peer in devices if self._clock.is_there(peer)]
        if not struck or self._clock.finished:
            return
        for peer in struck:
            self._stage.kill(peer)
        self._stage.fault(fault.record("begin", struck, self._clock.now, self._updates()))
        for peer in struck:
            self._clock.kill(peer)


def strike(
    clock: MeshClock, stage: MeshFaultStage, service: ExchangeService, settings: Settings
) -> None:
    """Give a clock the deaths of its run, if there are any."""
    schedule = Schedule(settings.faults.rules, settings.seed, settings.workers)
    if schedule.rules:
        clock.strikes = Deaths(clock, stage, lambda: service.updates, schedule)

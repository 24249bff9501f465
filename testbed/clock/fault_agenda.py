"""The faults of a run as events of its clock: those of the schedule, and the ends of faults."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.checkpoints.stateful import State, Stateful
from testbed.clock.device_conditions import Condition
from testbed.clock.event_queue import FAULT, EventQueue
from testbed.faults.fault import Fault
from testbed.faults.schedule import Schedule, TimedFault


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that strikes at its time; the next timed fault is posted after it."""

    devices: Sequence[int]
    fault: Fault


@dataclass(frozen=True, slots=True)
class StrikeEnd:
    """The end of a fault for the incarnations that it struck; ``number`` is that of its strike."""

    fault: Fault
    number: int
    incarnations: Mapping[int, int]

    def devices(self, condition: Callable[[int], Condition]) -> list[int]:
        """Return the devices at which the fault still lasts, and ends now.

        A killed process does not thaw; the link and the slowness of a device outlive it. The link of a
        lost one is of use only to a server that has it, too.
        """
        freeze, of_link = self.fault.kind == "freeze", self.fault.changes_link
        return [
            device
            for device, incarnation in self.incarnations.items()
            if (not (one := condition(device)).lost or (of_link and one.shares_link))
            and not (freeze and one.incarnation != incarnation)
        ]


STORED: tuple[type, ...] = (Strike, StrikeEnd, Fault)
"""The classes in an agenda's state, besides plain values and arrays."""


class FaultAgenda(Stateful):
    """The faults of one run that are to begin, and those that are to end."""

    not_saved = frozenset({"_events", "_schedule", "_timed"})

    def __init__(self, schedule: Schedule, events: EventQueue) -> None:
        """Put none of the schedule's faults in the queue yet."""
        self._schedule, self._events = schedule, events
        self._timed = schedule.timed()
        self._iteration = schedule.next_iteration(0)
        self._actions: dict[int, Strike | StrikeEnd] = {}
        self._came = self._posted = 0

    def restore(self, state: State) -> None:
        """Go on from a state, with the faults that had not come by then."""
        super().restore(state)
        for _ in range(self._came):
            next(self._timed)

    def absent(self) -> Iterator[TimedFault]:
        """Yield the absences at the beginning, which are before training."""
        for timed in itertools.takewhile(_is_at_beginning, self._schedule.timed()):
            self._came += 1
            next(self._timed)
            yield timed

    def await_next(self) -> None:
        """Add the next fault that has a time to the events, if there is one."""
        coming = next(self._timed, None)
        if coming is not None:
            self._came += 1
            self.post(coming.time, Strike(coming.devices, coming.fault))

    def post(self, time: float, action: Strike | StrikeEnd) -> None:
        """Add the beginning or the end of a fault to the events."""
        self._posted += 1
        self._actions[self._posted] = action
        self._events.add(time, FAULT, self._posted)

    def take(self, number: int) -> Strike | StrikeEnd:
        """Return what begins or ends at an event, by its number."""
        return self._actions.pop(number)

    def reached(self, version: Callable[[], int]) -> Iterator[tuple[Sequence[int], Fault]]:
        """Yield the devices and the faults that are due at the version that was reached.

        Args:
            version: returns it; a fault that is carried out meanwhile may lead to a later one.
        """
        while self._iteration is not None and version() >= self._iteration:
            yield from self._schedule.at_iteration(self._iteration)
            self._iteration = self._schedule.next_iteration(self._iteration)


def _is_at_beginning(timed: TimedFault) -> bool:
    return timed.time == 0 and timed.fault.away != ""

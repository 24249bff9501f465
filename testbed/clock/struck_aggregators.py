"""Aggregators that faults freeze, as those that serve, under the virtual clock.

As one that calls others an aggregator is frozen as a worker is (``testbed.clock.device_conditions``).
What its devices send it meanwhile arrives, and waits there for its thaw. Then it takes in first what it
has been sent, by the numbers of the conversations, and finds after that which time limits are over: its
own, and those of devices that were silent. What its processor was handling ends late by as long as the
freeze lasts.
"""

from math import inf
from typing import Protocol

from testbed.clock.conversations import Conversations
from testbed.clock.device_conditions import DeviceConditions
from testbed.clock.event_queue import ASKED, EXACT, HANDLED, KEPT, SILENT, EventQueue
from testbed.clock.server_processors import ServerProcessors
from testbed.clock.timed_workers import TimedWorker

_AT_SERVER = frozenset({ASKED, SILENT})
"""Ranks of events that tell a role that serves what time it is; no message arrives with them."""


class Clock(Protocol):
    """The clock around servers, as its frozen aggregators need it."""

    now: float
    conversations: Conversations
    events: EventQueue
    processors: ServerProcessors | None


class StruckAggregators:
    """The aggregators of a run that faults may strike, by their indices as roles that serve."""

    def __init__(self, clock: Clock, conditions: DeviceConditions[TimedWorker]) -> None:
        self._clock, self._conditions = clock, conditions

    def thaw(self, server: int) -> float:
        """Return the time at which the freeze of an aggregator ends; at most now if there is none."""
        device = self._clock.conversations.above(server)
        return 0.0 if device is None else self._conditions[device].frozen

    def is_frozen(self, server: int) -> bool:
        return self.thaw(server) > self._clock.now

    def is_handling(self, device: int) -> bool:
        """Return True if the processor of an aggregator handles something; by its worker's number."""
        below, processors = self._clock.conversations.below(device), self._clock.processors
        return below is not None and processors is not None and processors.is_handling(below)

    def keeps(self, conversation: int) -> bool:
        """Return True if what has arrived in a conversation waits for the thaw of its receiver."""
        thaw = self.thaw(self._clock.conversations.server(conversation))
        return self._comes_later(self._clock.now, thaw, KEPT, conversation, EXACT)

    def delays(self, time: float, rank: int, conversation: int, what: float) -> bool:
        """Return True if a moment comes later at a frozen aggregator; it was added again."""
        if rank not in _AT_SERVER:
            return False
        thaw = self.thaw(self._clock.conversations.server(conversation))
        return self._comes_later(time, thaw, rank, conversation, what)

    def delays_role(self, time: float, rank: int, server: int) -> bool:
        """Return True if a moment of a role that serves comes later; it was added again."""
        device = self._clock.conversations.above(server)
        if device is None:
            return False
        one = self._conditions[device]
        if rank == HANDLED:
            later, one.owed = time + one.owed, 0.0
        else:
            later = one.frozen
        return self._comes_later(time, later, rank, server)

    def _comes_later(
        self, time: float, later: float, rank: int, number: int, what: float = 0
    ) -> bool:
        """Return True if an event comes later than its time; it is added then, unless that is never."""
        if later <= time:
            return False
        if later < inf:
            self._clock.events.add(later, rank, number, what)
        return True

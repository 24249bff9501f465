"""The virtual clock: the loop that carries out one event after the other.

Events are in conservative discrete-event order: the earliest is handled next, and nothing earlier can
follow it, because an event only causes events at its own time or later. The end of a transfer over
shared links is an event as well; it comes before all others of its moment. Which of two others at one
moment comes first is said by ``testbed.clock.events``.

What the events mean is for the clocks around servers (``testbed.clock.star``) and among peers
(``testbed.clock.mesh``) to say.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from testbed.checkpoints.stateful import Stateful
from testbed.clock.events import EventQueue
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.clock.use import ComputingTime, LineBytes

LATEST = 1e12
"""The time of the virtual clock, in seconds (31,700 years), after which nothing takes place.

A device that is slowed down so often that its next event would be later is as good as lost. Floats
still tell a tenth of a millisecond apart there.
"""


class EventClock(Stateful, ABC):
    """Runs the events of one run.

    Attributes:
        now: virtual seconds since training began.
        events: the events that are to come.
        transfers: None in a run whose conversations share no links.
        futile: why no update is to be expected although events are to come; empty as long as one is.
        computing: how long each device has computed.
        line_bytes: what has passed the lines of devices that are gone.
    """

    nothing_follows: str
    """Why nothing happens any more if no event is left, as a half sentence."""

    def __init__(self, transfers: SharedTransfers | None) -> None:
        self.now = 0.0
        self.futile = ""
        self.computing = ComputingTime()
        self.line_bytes = LineBytes()
        self.events = EventQueue()
        self.transfers = transfers

    @property
    @abstractmethod
    def finished(self) -> bool:
        """True if the run's updates are complete."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin training; do nothing if the clock goes on from a checkpoint."""

    @abstractmethod
    def _handle(self, time: float, rank: int, number: int, what: float) -> None:
        """Carry out an event of the queue."""

    @abstractmethod
    def _end_transfer(self, transfers: SharedTransfers, time: float, transfer: Transfer) -> None:
        """End the next transfer, or give it its size."""

    def _prepare(self) -> None:
        """Do what is to be done before each event; it may add events that are not yet due."""

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """Run until the run's updates are complete, or no update is to be expected any more.

        A clock that was restored from a checkpoint goes on from there.

        Args:
            between: called between two events.
        """
        self._begin()
        while self._next_time <= LATEST and not (self.finished or self.futile):
            between()
            self._prepare()
            transfers = self.transfers
            if transfers is None or transfers.next_end != self._next_time:
                self._handle(*self.events.pop())
            elif not transfers.change_rate():
                self._end_transfer(transfers, transfers.next_end, transfers.ending())

    @property
    def _next_time(self) -> float:
        """The time of the next event or end of a transfer; inf if nothing more will happen."""
        event = self.events.next_time if self.events else math.inf
        return event if self.transfers is None else min(event, self.transfers.next_end)

    @property
    def is_beyond(self) -> bool:
        """True if the next event is too late to take place."""
        return LATEST < self._next_time < math.inf

    @property
    def why_it_ended(self) -> str:
        """Why the clock has ended before the run's updates were complete."""
        late = f": that would be later than {LATEST:g} s of the run's clock"
        return self.futile or self.nothing_follows + late * self.is_beyond

"""The virtual clock: the loop that carries out one event after the other.

Events are in conservative discrete-event order: the earliest is handled next, and nothing earlier can
follow it, because an event only causes events at its own time or later. The end of a transfer over
shared links is an event as well; it comes before all others of its moment. Which of two others at one
moment comes first is said by ``testbed.clock.event_queue``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from testbed.checkpoints.stateful import Stateful
from testbed.clock.background import Background
from testbed.clock.event_queue import FAULT, EventQueue
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.clock.transfers import Line
from testbed.clock.usage_counters import ComputingTime, LineBytes

LATEST = 1e12
"""The time of the virtual clock, in seconds (31,700 years), after which nothing takes place.

A device that is slowed down so often that its next event would be later is as good as lost. Floats
still tell a tenth of a millisecond apart there.
"""


class ClockFaults(Protocol):
    """The faults of a run: when they strike, and when they end."""

    def begin(self) -> None:
        """Remove devices that have not arrived yet, and add the first fault to the events."""

    def strike(self, number: int) -> None:
        """Start or end the fault of an event."""

    def pushed(self, device: int) -> None:
        """Start the faults due after a push of a worker or aggregator, or after a peer's step."""

    def strike_at_iteration(self) -> None:
        """Start the faults that are due at the version just reached."""


@dataclass(slots=True)
class TimedDevice:
    """A device that computes, as the clock sees it: ``up`` and ``down`` are its links, if its own."""

    up: Line
    down: Line


Timed = TypeVar("Timed", bound=TimedDevice)


class EventClock(Stateful, ABC, Generic[Timed]):
    """Runs the events of one run.

    Attributes:
        now: virtual seconds since training began.
        devices: the devices that compute and are there, by number.
        strikes: None in a run without faults.
        transfers: None in a run whose conversations share no links.
        background: None in a run without background traffic.
        futile: why no update is to be expected although events are to come; empty as long as one is.
        line_bytes: what has passed the lines of devices that are gone.
    """

    nothing_follows: str
    """Why nothing happens any more if no event is left, as a half sentence."""

    def __init__(self, transfers: SharedTransfers | None, background: Background | None) -> None:
        self.now = 0.0
        self.devices: dict[int, Timed] = {}
        self.strikes: ClockFaults | None = None
        self.futile = ""
        self.computing = ComputingTime()
        self.line_bytes = LineBytes()
        self.events = EventQueue()
        self.transfers = transfers
        self.background = background

    @property
    @abstractmethod
    def finished(self) -> bool:
        """True if the run's updates are complete."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The number of updates so far; of several servers', the first one's."""

    @abstractmethod
    def device(self, number: int) -> int:
        """Return the device that an event is about, by the event's number."""

    @abstractmethod
    def acting(self) -> Iterator[int]:
        """Yield the devices of which anything is to come, and not too late; one may come twice."""

    def has_any_but_faults(self) -> bool:
        """Return True if anything but faults is to come, and not too late."""
        transfers = math.inf if self.transfers is None else self.transfers.next_end
        return transfers <= LATEST or self.events.has_any_but_faults(LATEST)

    def background_bytes(self) -> list[tuple[int, int]]:
        """Return the bytes of each background flow that were sent until now, and that have arrived."""
        if self.background is None:
            return []
        transfers = self.transfers
        parts = {} if transfers is None else transfers.background_parts(self.now)
        return self.background.at(self.now, parts)

    @abstractmethod
    def _begin(self) -> None:
        """Start training; do nothing if the clock continues from a checkpoint."""

    @abstractmethod
    def _handle(self, time: float, rank: int, number: int, what: float) -> None:
        """Carry out an event of the queue that is no fault."""

    @abstractmethod
    def _end_transfer(self, transfers: SharedTransfers, time: float, transfer: Transfer) -> None:
        """End the next transfer, or give it its size."""

    def _prepare(self) -> None:
        """Do what is to be done before each event; it may add events that are not yet due."""

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """Run until the run's updates are complete, or no update is to be expected any more.

        A clock that was restored from a checkpoint goes on from there.
        """
        self._begin()
        while self._next_time <= LATEST and not (self.finished or self.futile):
            between()
            self._prepare()
            transfers = self.transfers
            if transfers is None or transfers.next_end != self._next_time:
                self._happen_next()
            elif not transfers.change_rate():
                self._end_transfer(transfers, transfers.next_end, transfers.ending())

    def _happen_next(self) -> None:
        time, rank, number, what = self.events.pop()
        if rank != FAULT:
            self._handle(time, rank, number, what)
            if self.strikes is not None:  # an update also results when a device is given up
                self.strikes.strike_at_iteration()
            return
        assert self.strikes is not None
        self.now = time
        self.strikes.strike(number)

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

"""The queue of events around a parameter server.

Of events at one moment, those of a lower rank come first: faults, then parameters arrive, computations
end, pushes arrive, workers ask for parameters (a pull gets every update that arrived up to its time),
links have room again, and last the workers that were silent for too long are suspected. Within each
rank, the worker with the lower number comes first.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import TypeAlias

from testbed.checkpoints.stateful import Stateful

FAULT, THAWED, PARAMETERS, FINISHED, ARRIVED, ASKED, FREE, SILENT = range(-1, 7)
"""Ranks of events.

``PARAMETERS`` are on the link, and what happens to the link may move them. ``THAWED`` are parameters
that have left the link and wait at a frozen device for its thaw: only another freeze may move them, and
they come before anything that leaves the link at that moment.
"""
EXACT = -1.0
"""Takes the place of a message's sending time in an event, once its size and arrival are known."""
Event: TypeAlias = tuple[float, int, int, float]
"""Its time in seconds, its rank, its worker (of a fault: its number), and what it is about.

That is the version of parameters, the number of a computation, or the sending time of a message.
"""


class EventQueue(Stateful):
    """The events that are to come."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._events)

    def add(self, time: float, rank: int, worker: int, what: float = 0) -> None:
        """Add an event."""
        heapq.heappush(self._events, (time, rank, worker, what))

    def pop(self) -> Event:
        """Take the next event."""
        return heapq.heappop(self._events)

    @property
    def next_time(self) -> float:
        """The time of the next event, in seconds."""
        return self._events[0][0]

    def in_order(self) -> list[Event]:
        """Return all events, in the order in which they would happen."""
        return sorted(self._events)

    def of(self, worker: int, rank: int) -> list[tuple[float, float]]:
        """Return when a worker's events of a rank happen, and what they are about, in order."""
        return sorted(
            (time, what)
            for time, its, whose, what in self._events
            if whose == worker and its == rank
        )

    def has_any_but_faults(self, until: float) -> bool:
        """Return True if anything but faults happens up to a time."""
        return any(rank != FAULT and time <= until for time, rank, _, _ in self._events)

    def move(
        self, worker: int, ranks: Sequence[int], to: Callable[[float, float], float | None]
    ) -> None:
        """Change the times of a worker's events of some ranks; None from ``to`` removes an event."""
        moved = []
        for event in self._events:
            time, its, whose, what = event
            if whose == worker and its in ranks:
                at = to(time, what)
                if at is not None:
                    moved.append((at, its, whose, what))
            else:
                moved.append(event)
        heapq.heapify(moved)
        self._events = moved

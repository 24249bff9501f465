"""The queue of events around parameter servers.

Of events at one moment, those of a lower rank come first: faults, then parameters arrive, computations
end, pushes arrive, workers ask for parameters (a pull gets every update that arrived up to its time),
links have room again, the workers that were silent for too long are suspected, and last the time limits
of servers and aggregators are over. Within each rank, the conversation with the lower number comes
first: the worker's number if there is one server; of time limits, the server with the lower index.
"""

import heapq
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TypeAlias

from testbed.checkpoints.stateful import Stateful

FAULT, THAWED, PARAMETERS, FINISHED, ARRIVED, ASKED, FREE, SILENT, EXPIRED = range(-1, 8)
"""Ranks of events.

``PARAMETERS`` are on the link, and what happens to the link may move them. ``THAWED`` are parameters
that have left the link and wait at a frozen device for its thaw: only another freeze may move them, and
they come before anything that leaves the link at that moment.
"""
EXACT = -1.0
"""Takes the place of a message's sending time in an event, once its size and arrival are known."""
STOPPED = -1.0
"""Takes the place of a version in an event: a server has no more parameters for the worker."""
Event: TypeAlias = tuple[float, int, int, float]
"""Its time in seconds, its rank, its conversation (of a fault: its number; of a time limit: the
server's index), and what it is about.

The end of a computation is an event of its worker's first conversation. What an event is about is the
version of parameters, the number of a computation, or the sending time of a message.
"""


class EventQueue(Stateful):
    """The events that are to come."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._events)

    def add(self, time: float, rank: int, conversation: int, what: float = 0) -> None:
        """Add an event."""
        heapq.heappush(self._events, (time, rank, conversation, what))

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

    def of(self, conversation: int, rank: int) -> list[tuple[float, float]]:
        """Return when a conversation's events of a rank happen, and what they are about, in order."""
        return sorted(
            (time, what)
            for time, its, whose, what in self._events
            if whose == conversation and its == rank
        )

    def but_faults(self, until: float) -> Iterator[tuple[int, int]]:
        """Yield rank and conversation of all that happens up to a time but faults, in any order."""
        return (
            (rank, whose)
            for time, rank, whose, _ in self._events
            if rank != FAULT and time <= until
        )

    def has_any_but_faults(self, until: float) -> bool:
        """Return True if anything but faults happens up to a time."""
        return any(True for _ in self.but_faults(until))

    def move(
        self,
        conversations: Container[int],
        ranks: Sequence[int],
        to: Callable[[float, float], float | None],
    ) -> None:
        """Change the times of conversations' events of some ranks; None from ``to`` removes one."""
        moved = []
        for event in self._events:
            time, its, whose, what = event
            if whose in conversations and its in ranks:
                at = to(time, what)
                if at is not None:
                    moved.append((at, its, whose, what))
            else:
                moved.append(event)
        heapq.heapify(moved)
        self._events = moved

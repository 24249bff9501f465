"""The queue of events, and what comes first of those at one moment.

Of events at one moment, those of a lower rank come first. Faults strike, and killed peers come back;
messages pass the core, and arrive at those that compute; computations end, and messages arrive at
servers, after those that have waited at a frozen aggregator; processors have handled one, where that
takes time; then workers ask for parameters (a pull gets every update that arrived up to its time) and
peers begin to compute; processors of servers begin with the next message; links have room again; those
that were silent for too long are suspected; and last the time limits of servers and aggregators are
over.

Within each rank, the event with the lower number comes first. Around servers that is a conversation's:
the worker's number if there is one server; of processors and time limits, the server's index. Among
peers it is made of the peer's and, of its messages, the sender's.
"""

import heapq
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TypeAlias

from testbed.checkpoints.stateful import Stateful

(
    FAULT,
    BACK,
    AT_CORE,
    WAITED,
    TAKEN,
    FINISHED,
    KEPT,
    SERVED,
    HANDLED,
    ASKED,
    READY,
    FREE,
    SILENT,
    EXPIRED,
) = range(-1, 13)
"""Ranks of events.

What is ``TAKEN`` arrives at a device that computes: parameters, or a peer's message. Until then it is
on the link, and what happens to the link may move it. What has ``WAITED`` has left the link and is
taken in at a frozen device's thaw: only another freeze may move it, and it comes before anything that
leaves the link at that moment. What is ``SERVED`` arrives at a server. What a frozen aggregator is sent
by its devices is ``KEPT`` until its thaw, likewise. Where messages take its
processor time, one is ``HANDLED``, and the processor is then ``READY`` for the next.
"""
BEGIN = ASKED
"""A peer begins to compute: at the rank at which workers ask."""
EXACT = -1.0
"""Takes the place of a message's sending time in an event, once its size and arrival are known."""
STOPPED = -1.0
"""Takes the place of a version in an event: a server has no more parameters for the worker."""
Event: TypeAlias = tuple[float, int, int, float]
"""Its time in seconds, its rank, its number (see above; of a fault: its own), and what it is about.

The end of a worker's computation is an event of its first conversation. What an event is about is the
version of parameters, the number of a computation, or the sending time of a message.
"""


class EventQueue(Stateful):
    """The events of a run that are to come."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def __len__(self) -> int:
        return len(self._events)

    def add(self, time: float, rank: int, conversation: int, what: float = 0) -> None:
        heapq.heappush(self._events, (time, rank, conversation, what))

    def pop(self) -> Event:
        return heapq.heappop(self._events)

    @property
    def next_time(self) -> float:
        return self._events[0][0]

    def in_order(self) -> list[Event]:
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

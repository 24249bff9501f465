"""Parameters and orders that each worker has received and not answered, to bring it back to that point.

A worker that goes back to a checkpoint is sent again the versions that it had at that moment
(``testbed.roles.server.sent_vectors``), and given the clock's orders again. A worker's computation
depends on nothing else, except on how many mini-batches it had drawn before, and on what it remembers
(``testbed.roles.worker.memory``).

They are kept only where checkpoints are written. What several servers are sent, and whether they get a
push or only a report, is noted in any case.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Self

from testbed.checkpoints.stateful import Stateful
from testbed.clock.conversations import Conversations
from testbed.roles.orders import OrderKind


@dataclass(slots=True)
class Computing:
    """A computation whose result not all of the worker's servers have read.

    Attributes:
        versions: of each server's part, at which it is computed.
        drawn: the number of computations that this incarnation of the worker had begun before.
        unread: the places of the servers that have not read the message of it.
        told: True if the worker was told that the computation is over.
        reports: the places of the servers that get only a report, known when it is over.
    """

    versions: list[int]
    drawn: int
    unread: list[int]
    told: bool = False
    reports: list[int] = field(default_factory=list)


@dataclass(slots=True)
class SentWorker:
    """The outstanding versions and computations of one worker.

    ``there`` are the versions that it was sent by each of its servers and may still compute at, and
    ``used`` are the versions that it computed at last, if it may compute at them again. ``ended`` is
    the number of this incarnation's computations that it was told are over.
    """

    there: list[deque[int]]
    computing: deque[Computing] = field(default_factory=deque)
    used: list[int] = field(default_factory=list)
    drawn: int = 0
    ended: int = 0
    lost: bool = False

    @classmethod
    def of(cls, servers: int) -> Self:
        """Return a worker of ``servers`` servers with nothing outstanding."""
        return cls([deque() for _ in range(servers)])


STORED: tuple[type, ...] = (Computing, SentWorker)
"""The types in the state of ``OutstandingWork``, in addition to plain values and arrays."""


class OutstandingWork(Stateful):
    """The outstanding versions and orders of all workers of a run, and of its aggregators."""

    not_saved = frozenset({"_numbers", "_again"})

    def __init__(self, numbers: Conversations, workers: int, *, again: bool = False) -> None:
        """Start with nothing outstanding.

        Args:
            workers: their number, with the aggregators that talk to a server.
            again: True if a worker of one server may compute more than once at the parameters that it
                was sent. A worker of several may in any case.
        """
        self._numbers = numbers
        self._again = [again or len(numbers.of_worker(one)) > 1 for one in range(workers)]
        self._workers = [SentWorker.of(len(numbers.of_worker(one))) for one in range(workers)]

    def _of(self, conversation: int) -> tuple[SentWorker, int]:
        worker, place = self._numbers.worker(conversation), self._numbers.place(conversation)
        return self._workers[worker], place

    # -- events

    def sent(self, conversation: int, version: int) -> None:
        state, place = self._of(conversation)
        if not state.lost:
            state.there[place].append(version)

    def arrived(self, conversation: int, version: int) -> None:
        """Drop what is older than a version that has arrived, if the worker needs it no more."""
        state, place = self._of(conversation)
        if not self._again[self._numbers.worker(conversation)]:
            _drop_older(state.there[place], version)

    def begun(self, worker: int, versions: Sequence[int]) -> None:
        """Add a computation at versions; it replaces one that is not yet over."""
        state, again = self._workers[worker], self._again[worker]
        if state.computing and not state.computing[-1].told:
            state.computing.pop()
        for there, version in zip(state.there, versions, strict=True):
            _drop_older(there, version)
            assert there[0] == version
            if not again:
                there.popleft()
                continue
            # It may have to compute at it again, but needs it only once.
            while len(there) > 1 and there[1] == version:
                there.popleft()
        state.used = list(versions) if again else []
        unread = list(range(len(versions)))
        state.computing.append(Computing(list(versions), state.drawn, unread))
        state.drawn += 1

    def told(self, worker: int, reports: Collection[int]) -> None:
        """End a worker's computation, and keep the places that get only a report of it."""
        state = self._workers[worker]
        computing = state.computing[-1]
        computing.told, computing.reports = True, list(reports)
        state.ended += 1

    def received(self, conversation: int) -> None:
        """Drop a worker's next message at a server, which has read it."""
        state, place = self._of(conversation)
        next(one for one in state.computing if place in one.unread).unread.remove(place)
        while state.computing and not state.computing[0].unread:
            state.computing.popleft()

    def lose(self, worker: int) -> None:
        """Drop all that a worker has outstanding: it can send nothing more."""
        self.returned(worker)
        self._workers[worker].lost = True

    def returned(self, worker: int) -> None:
        """Take back a lost worker, with nothing outstanding."""
        self._workers[worker] = SentWorker.of(len(self._numbers.of_worker(worker)))

    def is_lost(self, worker: int) -> bool:
        return self._workers[worker].lost

    # -- going back

    def needed(self, conversation: int) -> Sequence[int] | None:
        """Return the versions that a worker would have to be sent again; None if it is lost.

        An aggregator remembers itself what it combines at a version.
        """
        state, place = self._of(conversation)
        there = list(state.there[place])
        if state.lost:
            return None
        if self._numbers.below(self._numbers.worker(conversation)) is not None:
            return there
        computing = [one.versions[place] for one in state.computing]
        if self._again[self._numbers.worker(conversation)]:
            computing = sorted(set(computing).difference(there))
        return computing + there

    def remembered(self, worker: int) -> int:
        """Return how many computations had ended in the state from which a worker would go on.

        That is the one before the first computation whose message not all of its servers have read.
        """
        state = self._workers[worker]
        return state.ended - sum(one.told for one in state.computing)

    def unread(self, worker: int) -> list[int]:
        """Return how many messages that a worker has sent each of its servers has not read."""
        sent = [one.unread for one in self._workers[worker].computing if one.told]
        places = range(len(self._numbers.of_worker(worker)))
        return [sum(place in one for one in sent) for place in places]

    def orders(self, worker: int) -> list[tuple[OrderKind, int]]:
        """Return the clock's orders that bring a worker back that has forgotten everything.

        The first says how many computations had drawn mini-batches. A worker that may compute at
        versions again is also told at which it computed last, if nothing is left to do there: those are
        not new to it.
        """
        state = self._workers[worker]
        orders: list[tuple[OrderKind, int]] = []
        for one in state.computing:
            orders.append((OrderKind.RESUME, one.drawn))
            orders += orders_to_begin(one.versions)
            orders += [
                (OrderKind.READ, place)
                for place in range(len(one.versions))
                if place not in one.unread
            ]
            if one.told:
                orders += orders_to_finish(one.reports, self.remembered(worker))
        if not state.computing:
            orders.append((OrderKind.RESUME, state.drawn))
            orders += [*orders_to_begin(state.used)[:-1], (OrderKind.WAIT, 0)]
        return orders


def orders_to_begin(versions: Sequence[int]) -> list[tuple[OrderKind, int]]:
    """Return the orders by which a worker computes at versions, by server."""
    several = len(versions)
    arrived = [(OrderKind.ARRIVED, one * several + place) for place, one in enumerate(versions)]
    return [*arrived, (OrderKind.BEGIN, 0)]


def orders_to_finish(reports: Collection[int], remembered: int) -> list[tuple[OrderKind, int]]:
    """Return the orders by which a worker sends what it has computed.

    Args:
        remembered: how many computations had ended in the earliest state that may be needed.
    """
    orders = [(OrderKind.REPORT, place) for place in reports]
    return [*orders, (OrderKind.FINISHED, remembered)]


def _drop_older(there: deque[int], version: int) -> None:
    while there and there[0] < version:
        there.popleft()

"""What each worker has been sent and told, and has not answered: from which it can be put there again.

A server that is killed takes with it what its workers' messages would have met. One that comes back
from a checkpoint sends them again what they had, at the versions of that moment, and has the clock's
orders given again; a worker's computation depends on nothing else, but for how many mini-batches it
had drawn before.

Nothing of it is needed where no server is killed.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from testbed.checkpoints.stateful import Stateful
from testbed.counted_copies import CountedCopies
from testbed.roles.orders import OrderKind
from testbed.updates import FloatVector


@dataclass(slots=True)
class Computing:
    """A computation whose outcome the server has not read.

    Attributes:
        key: of the vector that it is made at.
        version: of that.
        drawn: how many computations this incarnation had begun before.
        told: whether the worker was told of its end.
        late: and whether it then only reports.
    """

    key: Hashable
    version: int
    drawn: int
    told: bool = False
    late: bool = False


@dataclass(slots=True)
class SentWorker:
    """One worker; ``there`` holds what it was sent and has not computed at, ``newest`` what it has."""

    there: deque[tuple[Hashable, int]] = field(default_factory=deque)
    computing: deque[Computing] = field(default_factory=deque)
    newest: int = -1
    drawn: int = 0
    last: Hashable = None
    lost: bool = False


STORED: tuple[type, ...] = (Computing, SentWorker)
"""What its state is made of, beside plain values and arrays."""


@dataclass(frozen=True, slots=True)
class Again:
    """What a worker is sent and told so that it goes on from where it was.

    Attributes:
        base: the vector that it was sent last, if the next answer only says what of it has changed.
        frames: the versions to send, in their order, each with its vector.
        orders: what the clock is to tell it; the first says how many mini-batches it had drawn.
    """

    base: FloatVector | None
    frames: list[tuple[int, FloatVector]]
    orders: list[tuple[OrderKind, int]]


class Outstanding(Stateful):
    """Of all workers of a run."""

    made_anew = frozenset({"_asks", "_changed"})

    def __init__(self, workers: int, *, asks: bool, changed: bool) -> None:
        """Nobody was sent anything yet.

        Args:
            asks: whether workers ask, and compute at each answer.
            changed: whether answers only say what has changed since the one before.
        """
        self._asks = asks
        self._changed = changed
        self._sent: CountedCopies[FloatVector] = CountedCopies()
        self._workers = [SentWorker() for _ in range(workers)]

    # -- what happens

    def sent(self, worker: int, key: Hashable, version: int, vector: FloatVector) -> None:
        """A worker was sent a version; of what has a key that was met before, no copy is made."""
        state = self._workers[worker]
        if state.lost:
            return
        self._sent.hold(key, vector)
        state.there.append((key, version))
        if self._changed:
            self._sent.hold(key, vector)
            if state.last is not None:
                self._sent.release(state.last)
            state.last = key

    def arrived(self, worker: int, version: int) -> None:
        """It has that version: older ones are of no more use to it."""
        state = self._workers[worker]
        state.newest = version
        while state.there and state.there[0][1] < version:
            self._sent.release(state.there.popleft()[0])

    def begun(self, worker: int, version: int) -> None:
        """It computes at that version, and nothing else any more."""
        state = self._workers[worker]
        if state.computing and not state.computing[-1].told:
            self._sent.release(state.computing.pop().key)
        key, there = state.there.popleft()
        assert there == version
        state.computing.append(Computing(key, version, state.drawn))
        state.drawn += 1

    def told(self, worker: int, *, late: bool) -> None:
        """It was told that its computation is over."""
        computing = self._workers[worker].computing[-1]
        computing.told, computing.late = True, late

    def received(self, worker: int) -> None:
        """What it had to say of the first of its computations was read."""
        self._sent.release(self._workers[worker].computing.popleft().key)

    def lose(self, worker: int) -> None:
        """Nothing more will come of it."""
        state = self._workers[worker]
        for key, _ in state.there:
            self._sent.release(key)
        for computing in state.computing:
            self._sent.release(computing.key)
        if state.last is not None:
            self._sent.release(state.last)
        self._workers[worker] = SentWorker(lost=True)

    def returned(self, worker: int) -> None:
        """It is back with nothing, after it was lost."""
        self._workers[worker] = SentWorker()

    def is_lost(self, worker: int) -> bool:
        """Whether nothing more will come of it."""
        return self._workers[worker].lost

    # -- again

    def again(self, worker: int) -> Again:
        """What brings a worker that has forgotten everything to where it was."""
        state = self._workers[worker]
        drawn = state.computing[0].drawn if state.computing else state.drawn
        frames = [(one.version, self._sent[one.key]) for one in state.computing]
        frames += [(version, self._sent[key]) for key, version in state.there]
        base = None
        if not frames and state.last is not None:
            base = self._sent[state.last]
        if self._asks:
            orders = [(OrderKind.RESUME, drawn)]
            orders += [(OrderKind.FINISHED, 0) for one in state.computing if one.told]
        else:
            orders = self._orders(state)
        return Again(base, frames, orders)

    def _orders(self, state: SentWorker) -> list[tuple[OrderKind, int]]:
        """The orders of one that is sent every version."""
        orders: list[tuple[OrderKind, int]] = []
        follows = False  # whether a computation begins with the end of the one before
        for at, one in enumerate(state.computing):
            if not follows:
                # In between it may have begun what it then dropped.
                orders += [(OrderKind.RESUME, one.drawn), (OrderKind.ARRIVED, one.version)]
            follows = one.late
            if one.late:
                orders.append((OrderKind.ARRIVED, state.computing[at + 1].version))
            if one.told:
                orders.append((OrderKind.FINISHED, 0))
        if not state.computing:
            orders.append((OrderKind.RESUME, state.drawn))
        elif state.newest > state.computing[-1].version:
            orders.append((OrderKind.ARRIVED, state.newest))
        return orders

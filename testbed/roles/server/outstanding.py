"""Messages and orders that each worker has received and not answered, to bring it back to that point.

A server that is restored from a checkpoint sends its workers again the versions that they had at that
moment, and gives them the clock's orders again. A worker's computation depends on nothing else, except
on how many mini-batches it had drawn before.

They are kept only where the server writes checkpoints.
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
    """A computation whose result the server has not read.

    Attributes:
        key: of the vector at which it is computed.
        version: of that vector.
        drawn: the number of computations that this incarnation of the worker had begun before.
        told: True if the worker was told that the computation is over.
        late: True if the worker then only reports that it has finished.
    """

    key: Hashable
    version: int
    drawn: int
    told: bool = False
    late: bool = False


@dataclass(slots=True)
class SentWorker:
    """The outstanding vectors and computations of one worker.

    ``there`` are the vectors (key, version) that it was sent and has not computed at, ``newest`` is the
    newest version that has arrived, ``last`` the key of the vector that it was sent last.
    """

    there: deque[tuple[Hashable, int]] = field(default_factory=deque)
    computing: deque[Computing] = field(default_factory=deque)
    newest: int = -1
    drawn: int = 0
    last: Hashable = None
    lost: bool = False


STORED: tuple[type, ...] = (Computing, SentWorker)
"""The types in the state of ``Outstanding``, in addition to plain values and arrays."""


@dataclass(frozen=True, slots=True)
class Again:
    """The messages and orders after which a worker goes on from where it was.

    Attributes:
        base: the vector that it was sent last, if the next answer only states its changes.
        frames: the versions to send, in their order, each with its vector.
        orders: the clock's orders; the first says how many computations had drawn mini-batches.
    """

    base: FloatVector | None
    frames: list[tuple[int, FloatVector]]
    orders: list[tuple[OrderKind, int]]


class Outstanding(Stateful):
    """The outstanding messages and orders of all workers of a run."""

    not_saved = frozenset({"_asks", "_changed"})

    def __init__(self, workers: int, *, asks: bool, changed: bool) -> None:
        """Begin with nothing outstanding.

        Args:
            asks: True if workers ask, and compute at each answer.
            changed: True if an answer only states what has changed since the answer before it.
        """
        self._asks = asks
        self._changed = changed
        self._sent: CountedCopies[FloatVector] = CountedCopies()
        self._workers = [SentWorker() for _ in range(workers)]

    # -- events

    def sent(self, worker: int, key: Hashable, version: int, vector: FloatVector) -> None:
        """Note that a worker was sent a version; the vector is copied if its key is new."""
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
        """Note that a version has arrived at a worker, which needs no older one any more."""
        state = self._workers[worker]
        state.newest = version
        while state.there and state.there[0][1] < version:
            self._sent.release(state.there.popleft()[0])

    def begun(self, worker: int, version: int) -> None:
        """Note that a worker computes at a version, and has dropped a computation not yet over."""
        state = self._workers[worker]
        if state.computing and not state.computing[-1].told:
            self._sent.release(state.computing.pop().key)
        key, there = state.there.popleft()
        assert there == version
        state.computing.append(Computing(key, version, state.drawn))
        state.drawn += 1

    def told(self, worker: int, *, late: bool) -> None:
        """Note that a worker was told that its computation is over."""
        computing = self._workers[worker].computing[-1]
        computing.told, computing.late = True, late

    def received(self, worker: int) -> None:
        """Note that the message of a worker's first computation was read."""
        self._sent.release(self._workers[worker].computing.popleft().key)

    def lose(self, worker: int) -> None:
        """Note that a worker can send nothing more."""
        state = self._workers[worker]
        for key, _ in state.there:
            self._sent.release(key)
        for computing in state.computing:
            self._sent.release(computing.key)
        if state.last is not None:
            self._sent.release(state.last)
        self._workers[worker] = SentWorker(lost=True)

    def returned(self, worker: int) -> None:
        """Note that a lost worker is back, with nothing outstanding."""
        self._workers[worker] = SentWorker()

    def is_lost(self, worker: int) -> bool:
        """Return True if a worker can send nothing more."""
        return self._workers[worker].lost

    # -- restoring a worker

    def again(self, worker: int) -> Again:
        """Return what brings a worker that has forgotten everything back to where it was."""
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
        """Return the orders for a worker that is sent every version."""
        orders: list[tuple[OrderKind, int]] = []
        follows = False  # whether a computation begins with the end of the one before
        for at, one in enumerate(state.computing):
            if not follows:
                # In between, it may have begun computations that it then dropped.
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

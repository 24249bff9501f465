"""The vectors that a server has sent its workers, for as long as they may have to be sent again."""

from collections import Counter
from collections.abc import Collection, Hashable

from testbed.checkpoints.stateful import Stateful
from testbed.counted_copies import CountedCopies
from testbed.updates import FloatVector


class SentVectors(Stateful):
    """The vectors of one server, by worker; one that many workers were sent is stored once."""

    not_saved = frozenset({"_changed", "_overlaps"})

    def __init__(self, *, changed: bool, overlaps: bool = False) -> None:
        """Start with nothing sent.

        Args:
            changed: True if an answer only states what has changed since the answer before it.
            overlaps: True if workers overlap: a version that one is sent again brings it nothing.
        """
        self._changed, self._overlaps = changed, overlaps
        self._own = 0
        self._copies: CountedCopies[FloatVector] = CountedCopies()
        # By worker: of each vector, in the order of sending, the key, the version, and the number of
        # the mini-batch that was dealt with it.
        self._sent: dict[int, list[tuple[Hashable, int, int]]] = {}
        self._last: dict[int, Hashable] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def sent(
        self, worker: int, version: int, vector: FloatVector, *, is_own: bool, dealt: int = 0
    ) -> None:
        """Keep a version that a worker was sent.

        Args:
            vector: copied, unless a worker has that version of what all are sent.
            is_own: True if it was made for this worker.
            dealt: the number of the mini-batch that it was dealt, in the run's stream of them.
        """
        self._own += is_own and not self._overlaps
        key: Hashable = (version, worker, self._own) if is_own else version
        self._copies.hold(key, vector)
        self._sent.setdefault(worker, []).append((key, version, dealt))
        if self._changed:
            self._copies.hold(key, vector)
            if worker in self._last:
                self._copies.release(self._last[worker])
            self._last[worker] = key

    def keep(self, worker: int, versions: Collection[int] | None) -> None:
        """Drop a worker's vectors but for some versions, and what the next answer refers to.

        Args:
            versions: each as often as it is to be kept, of those that were sent last; None if the
                worker needs nothing any more.
        """
        kept, left = [], Counter(versions or ())
        for key, version, dealt in reversed(self._sent.pop(worker, ())):
            if left[version]:
                left[version] -= 1
                kept.append((key, version, dealt))
            else:
                self._copies.release(key)
        if kept:
            self._sent[worker] = kept[::-1]
        if versions is None and worker in self._last:
            self._copies.release(self._last.pop(worker))

    def again(self, worker: int) -> tuple[FloatVector | None, list[tuple[int, FloatVector, int]]]:
        """Return what a worker that has forgotten everything is to be sent.

        Returns:
            The vector to which the next answer refers, if nothing else is to be sent; and the versions
            to send, in their order, each with its vector and the number of its mini-batch.
        """
        sent = self._sent.get(worker, ())
        frames = [(version, self._copies[key], dealt) for key, version, dealt in sent]
        base = None
        if not frames and worker in self._last:
            base = self._copies[self._last[worker]]
        return base, frames

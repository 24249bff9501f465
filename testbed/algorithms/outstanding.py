"""The vectors that a server has sent to its workers, each kept until its worker has pushed or is gone.

Algorithms that measure an update against what the worker computed at (AdaComp's counters, the gap's
θ^i) hold a copy at every pull. Workers that pulled the same vector at one version share the copy. A
worker that computes while its last push is on its way pushes for what it was sent before the last pull,
which then is held as well, until the next pull.
"""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.checkpoints.stateful import Stateful
from testbed.counted_copies import CountedCopies

Vector = TypeVar("Vector", bound=npt.NDArray[Any])


class Outstanding(Stateful, Generic[Vector]):
    """The vectors of each worker for which it may push."""

    not_saved = frozenset({"_overlaps"})

    def __init__(self, *, overlaps: bool = False) -> None:
        """Start with no vectors.

        Args:
            overlaps: True if workers compute while their pushes are on their way.
        """
        self._overlaps = overlaps
        # By worker: the version and the key of what it pulled last, and of what it pulled before.
        self._pulled: dict[int, tuple[int, Hashable]] = {}
        self._before: dict[int, tuple[int, Hashable]] = {}
        self._copies: CountedCopies[Vector] = CountedCopies()

    def __len__(self) -> int:
        """Return the number of copies."""
        return len(self._copies)

    def hold(self, worker: int, version: int, vector: Vector, *, shared: bool = True) -> None:
        """Hold ``vector``, sent to ``worker`` at ``version``, in place of what it needs no more.

        Args:
            shared: True if all workers are sent the same at this version.
        """
        self._drop(self._before if self._overlaps else self._pulled, worker)
        if worker in self._pulled:
            self._before[worker] = self._pulled.pop(worker)
        key: Hashable = version if shared else (version, worker)
        self._copies.hold(key, vector)
        self._pulled[worker] = version, key

    def at(self, worker: int, version: int) -> Vector:
        """Return what a worker was sent at its base version.

        Raises:
            UnexpectedMessageError: it was sent another version last, or none.
        """
        for pulled in (self._pulled, self._before):
            if worker in pulled and pulled[worker][0] == version:
                return self._copies[pulled[worker][1]]
        raise UnexpectedMessageError(
            f"worker {worker} pushed an update of version {version}, which is not the version "
            "that it pulled last"
        )

    def pushed(self, worker: int) -> None:
        """Drop what a worker that has pushed needs no more before it pulls again."""
        if not self._overlaps:
            self.release(worker)

    def release(self, worker: int) -> None:
        """Drop what is kept for a worker, if anything is."""
        self._drop(self._pulled, worker)
        self._drop(self._before, worker)

    def _drop(self, pulled: dict[int, tuple[int, Hashable]], worker: int) -> None:
        if worker in pulled:
            self._copies.release(pulled.pop(worker)[1])

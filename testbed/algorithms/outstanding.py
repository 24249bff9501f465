"""The vectors that a server has sent to its workers, each kept until its worker has pushed or is gone.

Algorithms that measure an update against what the worker computed at (AdaComp's counters, the gap's
θ^i) hold a copy at every pull. Workers that pulled the same vector at one version share the copy.
"""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from testbed.checkpoints.stateful import Stateful
from testbed.counted_copies import CountedCopies

Vector = TypeVar("Vector", bound=npt.NDArray[Any])


class Outstanding(Stateful, Generic[Vector]):
    """One vector for each worker that has pulled and not pushed yet."""

    def __init__(self) -> None:
        self._pulled: dict[int, tuple[int, Hashable]] = {}
        self._copies: CountedCopies[Vector] = CountedCopies()

    def __len__(self) -> int:
        """Return the number of copies."""
        return len(self._copies)

    def hold(self, worker: int, version: int, vector: Vector, *, shared: bool = True) -> None:
        """Hold ``vector``, sent to ``worker`` at ``version``, in place of what it was sent before.

        Args:
            shared: True if all workers are sent the same at this version.
        """
        self.release(worker)
        key: Hashable = version if shared else (version, worker)
        self._copies.hold(key, vector)
        self._pulled[worker] = version, key

    def at(self, worker: int, version: int) -> Vector:
        """Return what a worker was sent at its base version.

        Raises:
            ValueError: it was sent another version last, or none.
        """
        pulled, key = self._pulled.get(worker, (None, None))
        if pulled != version:
            raise ValueError(
                f"worker {worker} pushed an update of version {version}, which is not the version "
                "that it pulled last"
            )
        return self._copies[key]

    def release(self, worker: int) -> None:
        """Drop what is kept for a worker, if anything is."""
        if worker in self._pulled:
            self._copies.release(self._pulled.pop(worker)[1])

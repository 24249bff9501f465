"""Bounded staleness: a worker that is too far ahead of the slowest one waits for it.

Stale Synchronous Parallel (Ho et al., 2013; paper 003, Section 2): with c_i the number of worker i's
pushes, worker i is sent parameters only while c_i ≤ min_j c_j + τ, the minimum over all workers that
take part. Nobody waits for a worker that is gone or suspected. One that joins, or comes back, begins at
the least count of the others, so that it holds up none of them by what it has missed.
"""

from testbed.checkpoints.stateful import Stateful


class StalenessBound(Stateful):
    """The pushes of each worker that takes part, and the bound; without a bound it holds up nobody."""

    not_saved = frozenset({"_bound"})

    def __init__(self, bound: int | None) -> None:
        """Start without workers.

        Args:
            bound: τ; None: there is none.
        """
        self._bound = bound
        self._pushes: dict[int, int] = {}

    def joined(self, worker: int) -> None:
        """Add a worker that takes part, or takes part again, at the fewest pushes of the others."""
        self._pushes[worker] = min(self._pushes.values(), default=0)

    def forget(self, worker: int) -> None:
        self._pushes.pop(worker, None)

    def pushed(self, worker: int) -> None:
        self._pushes[worker] += 1

    def allows(self, worker: int) -> bool:
        """Return True if a worker may be sent parameters now."""
        if self._bound is None:
            return True
        return self._pushes[worker] <= min(self._pushes.values()) + self._bound

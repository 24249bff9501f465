"""The silence of workers: how long each has been silent; no socket and no clock, times are handed in.

A worker is *silent* from the moment at which it is its turn to send something (parameters were sent to
it, or it is there and has not asked yet) until it does. A worker that itself waits for parameters is
not silent.

Silence does not tell a dead worker from a slow one. So a suspicion that was wrong doubles the worker's
patience until something from it comes in time (Chandra and Toueg, "Unreliable failure detectors for
reliable distributed systems", 1996): a run whose workers are all slower than that goes on.
"""

from collections.abc import Collection


class Silence:
    """The turns of one run's workers."""

    def __init__(self, patience: float | None) -> None:
        """Start without workers.

        Args:
            patience: seconds of the run's clock that a worker may be silent; None: without limit.
        """
        self._patience = patience
        self._since: dict[int, float] = {}
        self._longer: dict[int, float] = {}

    def bears(self, worker: int, times: int) -> None:
        """Have so many times the patience with a worker, at first, until it ``was_in_time``."""
        if self._patience is not None:
            self._longer.setdefault(worker, times * self._patience)

    def begins(self, worker: int, time: float) -> None:
        """Start the worker's turn at this moment, if it has not started before."""
        if self._patience is not None:
            self._since.setdefault(worker, time)

    def ends(self, worker: int) -> None:
        self._since.pop(worker, None)

    def only(self, workers: Collection[int], time: float) -> None:
        """Give the turn to exactly these workers; those whose turn it was keep its start."""
        if self._since or (workers and self._patience is not None):
            self._since = {worker: self._since.get(worker, time) for worker in workers}

    def was_in_time(self, worker: int) -> None:
        """Restore the worker's patience: something came from it while it was not suspected."""
        self._longer.pop(worker, None)

    def was_slow(self, worker: int) -> None:
        """Double the worker's patience: it was suspected, and something came from it after all."""
        if self._patience is not None:
            self._longer[worker] = 2 * self._longer.get(worker, self._patience)

    def lasts(self, worker: int, now: float) -> float:
        """Return the seconds for which it has been the worker's turn; it has to be its turn."""
        return now - self._since[worker]

    def deadline(self, worker: int) -> float | None:
        """Return when the worker will have been silent for too long; None if it is not its turn."""
        since = self._since.get(worker)
        if since is None or self._patience is None:
            return None
        return since + self._longer.get(worker, self._patience)

    @property
    def next_deadline(self) -> float | None:
        """When the first worker will have been silent for too long; None if it is no one's turn."""
        deadlines = (self.deadline(worker) for worker in self._since)
        return min((one for one in deadlines if one is not None), default=None)

    def overdue(self, now: float) -> list[int]:
        """Return the workers that have been silent for too long, the earliest deadline first."""
        found = []
        for worker in self._since:
            deadline = self.deadline(worker)
            if deadline is not None and deadline <= now:
                found.append((deadline, worker))
        return [worker for _, worker in sorted(found)]

"""Who has been silent for how long: no socket and no clock, times are handed in.

A worker is *silent* from the moment at which it is its turn to say something (parameters were sent to
it, or it is there and has not asked yet) until it does. Who waits for parameters itself is not.

Nobody can tell a dead worker from a slow one by its silence. So a suspicion that was wrong doubles the
worker's patience until something of it comes in time (Chandra and Toueg, "Unreliable failure detectors
for reliable distributed systems", 1996): a run whose workers are all slower than that goes on.
"""


class Silence:
    """The turns of one run's workers."""

    def __init__(self, patience: float | None) -> None:
        """Nobody is there yet.

        Args:
            patience: seconds of the run's clock that a worker may be silent; None: as long as it is.
        """
        self._patience = patience
        self._since: dict[int, float] = {}
        self._longer: dict[int, float] = {}

    def begins(self, worker: int, time: float) -> None:
        """It is the worker's turn, from this moment on if it was not before."""
        if self._patience is not None:
            self._since.setdefault(worker, time)

    def ends(self, worker: int) -> None:
        """It is the worker's turn no more."""
        self._since.pop(worker, None)

    def was_in_time(self, worker: int) -> None:
        """Something came of the worker while it was not suspected."""
        self._longer.pop(worker, None)

    def was_slow(self, worker: int) -> None:
        """The worker was suspected, and something came of it after all."""
        if self._patience is not None:
            self._longer[worker] = 2 * self._longer.get(worker, self._patience)

    def lasts(self, worker: int, now: float) -> float:
        """Seconds for which it has been the worker's turn, which it is."""
        return now - self._since[worker]

    def deadline(self, worker: int) -> float | None:
        """When the worker will have been silent for too long; None if it is not its turn."""
        since = self._since.get(worker)
        if since is None or self._patience is None:
            return None
        return since + self._longer.get(worker, self._patience)

    def overdue(self, now: float) -> list[int]:
        """Who has been silent for too long; the one whose deadline was the earliest first."""
        found = []
        for worker in self._since:
            deadline = self.deadline(worker)
            if deadline is not None and deadline <= now:
                found.append((deadline, worker))
        return [worker for _, worker in sorted(found)]

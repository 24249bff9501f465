"""Track which devices' processes are alive, and choose those to kill when training is over.

Workers and the evaluator end by themselves when the server tells them to stop. A process that does not
end in time is killed; one that the server suspected to the last, or has waited for in vain, is killed
sooner. A process that was stopped or frozen (by a user, say) cannot receive the server's message: it is
recognised in /proc and waited for less long than one that computes.
"""

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from testbed.nodes import linux

LEAVING_TIMEOUT = 30.0
"""Seconds that workers have to end after the server has ended (it has waited for them before)."""
SUSPECTED_TIMEOUT = 1.0
"""Seconds that workers have for that if the server suspected them to the last."""
PAUSED_TIMEOUT = 5.0
"""Seconds that a stopped or frozen worker has after training: a user may let it continue."""
_FROZEN = ("refrigerator", "freezer_trap", "freezing")
"""The functions of the kernel in one of which a frozen process waits."""
LOOK_PERIOD = 0.5
"""Seconds between two searches for stopped or frozen workers."""


class Liveness:
    """The processes of one run's devices; all times are CLOCK_MONOTONIC in seconds."""

    def __init__(self, workers: Collection[str]) -> None:
        """Start with no process running.

        Args:
            workers: the devices that have to end by themselves (the evaluator, too).
        """
        self._workers = frozenset(workers)
        self._alive: set[str] = set()
        self._suspected: set[str] = set()
        self._killed: set[str] = set()
        self._over = self._stopping = math.inf
        self._spared: frozenset[str] = frozenset()
        self._processes: dict[str, int] = {}
        self._paused: dict[str, float] = {}
        self._looked = -math.inf

    @property
    def any_alive(self) -> bool:
        """True if any device's process is alive."""
        return bool(self._alive)

    def is_alive(self, device: str) -> bool:
        """Return True if a device's process is alive."""
        return device in self._alive

    def started(self, device: str) -> None:
        """Add a device whose process was started."""
        self._alive.add(device)

    def exited(self, device: str) -> None:
        """Remove a device whose process has ended; its next process is not suspected."""
        self._alive.discard(device)
        self._processes.pop(device, None)
        self._paused.pop(device, None)
        self._suspected.discard(device)

    def suspect(self, device: str) -> None:
        """Mark a worker that the server suspects, or has waited for in vain."""
        self._suspected.add(device)

    def welcome(self, device: str) -> None:
        """Clear the mark of a suspected worker, from which the server has heard again."""
        self._suspected.discard(device)

    def clear_suspicions(self) -> None:
        """Forget all suspicions: they were those of a server that was killed and replaced."""
        self._suspected.clear()

    def stopping(self, moment: float, processes: Mapping[str, int]) -> None:
        """Record that training is over, which the server tells all devices.

        Args:
            processes: process ids by device, as far as they are known.
        """
        self._stopping = moment
        self._processes = dict(processes)

    def over(self, moment: float, spared: Collection[str] = ()) -> None:
        """Record that the server has ended, or that all of several servers have said STOP.

        Args:
            spared: devices that may go on all the same, until the next call.
        """
        self._over = moment
        self._spared = frozenset(spared)

    def overdue(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield each worker to kill now, once, and how many seconds it had to end."""
        self._look(now)
        if math.isinf(self._over) and not self._paused:
            return  # the common case; this is called in every turn of the orchestrator's loop
        for device in sorted((self._alive & self._workers) - self._killed - self._spared):
            patience = SUSPECTED_TIMEOUT if device in self._suspected else LEAVING_TIMEOUT
            since = self._over
            if device in self._paused:
                patience, since = PAUSED_TIMEOUT, min(self._paused[device], since)
            if now - since >= patience:
                self._killed.add(device)
                yield device, patience

    def _look(self, now: float) -> None:
        """Find the stopped and frozen workers, once training is over."""
        if now < self._stopping or now - self._looked < LOOK_PERIOD:
            return
        self._looked = now
        for device in self._alive & self._workers & self._processes.keys():
            if is_stalled(self._processes[device]):
                self._paused.setdefault(device, now)
            else:
                self._paused.pop(device, None)


def is_stalled(process: int) -> bool:
    """Return True if a process was stopped by a signal, or is in a control group that is frozen."""
    try:
        if linux.stat_of(process)[0] in ("T", "t"):
            return True
        # A frozen process looks asleep; only the kernel function that it waits in tells the difference.
        waits_in = Path(f"/proc/{process}/wchan").read_text("utf-8", "replace")
        return any(name in waits_in for name in _FROZEN)
    except OSError:
        return False  # the process has ended, or is another user's


def processes_of_devices(agent: int, seen: Mapping[int, str]) -> dict[str, int]:
    """Find the processes of devices that were forked by an agent's fork server.

    Args:
        seen: the devices by their process ids as the fork server sees them, from inside a pid
            namespace of its own.

    Returns:
        The devices' process ids as this process sees them, as far as they can be read.
    """
    processes: dict[str, int] = {}
    for helper in linux.children_of(agent):
        for process in linux.children_of(helper):
            with contextlib.suppress(OSError, LookupError):
                processes[seen[linux.one_level_up(process)]] = process
    return processes

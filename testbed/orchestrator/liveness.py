"""Whose processes are there, and who has to be killed when training is over.

Workers and the evaluator end by themselves when the server has told them. Somebody may have paused
one, and left it so: who does not end in time is killed, and sooner whom the server suspected to the
last, or has waited for in vain. One that stands still, because somebody has stopped or frozen it, is
seen to do so: it will not hear that training is over, and is not waited for as one that computes is.
"""

import math
from collections.abc import Collection, Iterator, Mapping

from testbed.orchestrator.standing_still import stands_still

LEAVING_TIMEOUT = 30.0
"""Seconds that workers have to end when the server has ended, which waited for them already."""
SUSPECTED_TIMEOUT = 1.0
"""Seconds that workers have for that which the server suspected to the last."""
PAUSED_TIMEOUT = 5.0
"""Seconds for which a worker may stand still when training is over; it may be made to go on."""
LOOK_PERIOD = 0.5
"""Seconds between two looks at who stands still."""


class Liveness:
    """Of the devices of one run; moments are of CLOCK_MONOTONIC, in seconds."""

    def __init__(self, workers: Collection[str]) -> None:
        """Nobody is there yet.

        Args:
            workers: those devices that have to end by themselves.
        """
        self._workers = frozenset(workers)
        self._alive: set[str] = set()
        self._suspected: set[str] = set()
        self._killed: set[str] = set()
        self._over = self._stopping = math.inf
        self._processes: dict[str, int] = {}
        self._paused: dict[str, float] = {}
        self._looked = -math.inf

    @property
    def anybody(self) -> bool:
        """Whether any device's process is there."""
        return bool(self._alive)

    def started(self, device: str) -> None:
        """A device's process is there."""
        self._alive.add(device)

    def exited(self, device: str) -> None:
        """A device's process has ended; the next one, if it comes back, is not suspected."""
        self._alive.discard(device)
        self._processes.pop(device, None)
        self._paused.pop(device, None)
        self._suspected.discard(device)

    def suspected(self, device: str, *, yes: bool) -> None:
        """The server suspects a worker or has waited for it in vain, or does so no more."""
        (self._suspected.add if yes else self._suspected.discard)(device)

    def nobody_suspected(self) -> None:
        """It is another server, which has not waited for anybody yet."""
        self._suspected.clear()

    def stopping(self, moment: float, processes: Mapping[str, int]) -> None:
        """Training is over, and the server says so to everybody.

        Args:
            processes: of devices, as far as they are known.
        """
        self._stopping = moment
        self._processes = dict(processes)

    def over(self, moment: float) -> None:
        """The server has ended."""
        self._over = moment

    def overdue(self, now: float) -> Iterator[tuple[str, float]]:
        """Those that are to be killed now, each once, and how long they had."""
        self._look(now)
        if math.isinf(self._over) and not self._paused:
            return  # as at nearly every call, of which there is one for each thing that is heard
        for device in sorted((self._alive & self._workers) - self._killed):
            patience = SUSPECTED_TIMEOUT if device in self._suspected else LEAVING_TIMEOUT
            since = self._over
            if device in self._paused:
                patience, since = PAUSED_TIMEOUT, min(self._paused[device], since)
            if now - since >= patience:
                self._killed.add(device)
                yield device, patience

    def _look(self, now: float) -> None:
        """See who stands still, once training is over."""
        if now < self._stopping or now - self._looked < LOOK_PERIOD:
            return
        self._looked = now
        for device in self._alive & self._workers & self._processes.keys():
            if stands_still(self._processes[device]):
                self._paused.setdefault(device, now)
            else:
                self._paused.pop(device, None)

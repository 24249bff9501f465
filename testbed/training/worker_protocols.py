"""What a worker does when parameters arrive and when it has finished: the three protocols.

Xu et al. (paper 004, §2) name them. They are decided here, from versions alone, and executed by whoever
drives the worker: its own loop under the wall clock, the virtual clock in an emulation, the simulator.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from testbed.algorithms.interface import Protocol


@dataclass(frozen=True, slots=True)
class Finish:
    """What a worker does at the end of a computation and of the waiting behind it.

    Attributes:
        late: report that it has finished, and keep the update: newer parameters are there already.
        next: the version to compute at without being sent anything first; None to wait.
    """

    late: bool
    next: int | None


class WorkerProtocol(ABC):
    """One worker's state.

    Attributes:
        asks: whether it asks for parameters behind every push.
        certain: whether a computation that was begun is always finished, and its update sent.
    """

    asks: ClassVar[bool] = False
    certain: ClassVar[bool] = False

    def __init__(self) -> None:
        self.computing: int | None = None
        self._newest = -1

    @abstractmethod
    def arrived(self, version: int) -> int | None:
        """Parameters have arrived; returns the version to begin computing at now, if any."""

    def finished(self) -> Finish:
        """The computation is over."""
        late = self._newest > (self.computing or 0)
        self.computing = self._newest if late else None
        return Finish(late, self.computing)


class Pull(WorkerProtocol):
    """Asks for the newest parameters whenever it has pushed."""

    asks = True
    certain = True

    def arrived(self, version: int) -> int | None:
        self.computing = self._newest = version
        return version


class PushAndWait(WorkerProtocol):
    """Is sent every version; finishes what it computes, then takes the newest that it has."""

    def arrived(self, version: int) -> int | None:
        self._newest = version
        if self.computing is not None:
            return None
        self.computing = version
        return version


class PushAndInterrupt(WorkerProtocol):
    """Is sent every version and begins with it at once, whatever it was computing."""

    def arrived(self, version: int) -> int | None:
        self.computing = self._newest = version
        return version


WORKER_PROTOCOLS: dict[Protocol, type[WorkerProtocol]] = {
    "pull": Pull,
    "push-and-wait": PushAndWait,
    "push-and-interrupt": PushAndInterrupt,
}

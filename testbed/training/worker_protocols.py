"""The three protocols: what a worker does when parameters arrive and when it has finished.

Xu et al. (paper 004, §2) name them. They are decided here, from versions alone, and executed by the
worker's driver: its own loop under the wall clock, the virtual clock in an emulation, the simulator.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from testbed.algorithms.server_half import Protocol
from testbed.algorithms.worker_half import ONE_GRADIENT, Leg


@dataclass(frozen=True, slots=True)
class Finish:
    """The actions of a worker at the end of a computation and of the waiting after it.

    Attributes:
        late: True if it only reports that it has finished, without the update: newer parameters have
            arrived already.
        next: the version to compute at without being sent anything first; None to wait.
    """

    late: bool
    next: int | None


class WorkerProtocol(ABC):
    """The state of one worker.

    Attributes:
        asks: True if the worker asks for parameters, as its legs say.
        certain: True if a computation that was begun is always finished, and its update sent.
    """

    asks: ClassVar[bool] = False
    certain: ClassVar[bool] = False

    def __init__(self, legs: Sequence[Leg] = ONE_GRADIENT) -> None:
        """Start without parameters.

        Args:
            legs: those of the worker's half.
        """
        self.computing: int | None = None
        self._newest = -1
        self._legs, self._ended = tuple(legs), 0

    @property
    def leg(self) -> Leg:
        """The leg that the worker is in, or begins next."""
        return self._legs[self._ended % len(self._legs)]

    @abstractmethod
    def arrived(self, version: int) -> int | None:
        """Take parameters that have arrived; return the version to compute at now, or None."""

    def finished(self) -> Finish:
        """End the computation; return what the worker does next."""
        late = self._newest > (self.computing or 0)
        self.computing = self._newest if late else None
        return Finish(late, self.computing)


class PullProtocol(WorkerProtocol):
    """The worker asks for the newest parameters at the end of a leg that asks, and waits for them."""

    asks = True
    certain = True

    def arrived(self, version: int) -> int | None:
        self.computing = self._newest = version
        return version

    def finished(self) -> Finish:
        if self.leg.asks:
            self.computing = None
        self._ended += 1
        return Finish(late=False, next=self.computing)


class PushAndWait(WorkerProtocol):
    """The worker is sent every version; it finishes what it computes, then takes its newest one."""

    def arrived(self, version: int) -> int | None:
        self._newest = version
        if self.computing is not None:
            return None
        self.computing = version
        return version


class PushAndInterrupt(WorkerProtocol):
    """The worker is sent every version, and drops its computation to begin with it at once."""

    def arrived(self, version: int) -> int | None:
        self.computing = self._newest = version
        return version


WORKER_PROTOCOLS: dict[Protocol, type[WorkerProtocol]] = {
    "pull": PullProtocol,
    "push-and-wait": PushAndWait,
    "push-and-interrupt": PushAndInterrupt,
}

"""Servers and aggregators as the virtual clock sees them, which drives them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from testbed.algorithms.aggregator_half import Combined, CombiningHalf
from testbed.algorithms.server_half import Protocol, ServerHalf, UnexpectedMessageError
from testbed.channel import Channel
from testbed.messages import clock_requests
from testbed.messages.clock_requests import OUTCOMES, Outcome, Request
from testbed.messages.codec import send
from testbed.updates import DenseUpdate, FloatVector, Update

V = TypeVar("V")
NOTHING = np.empty(0, np.float32)
"""Stands for parameters that are in another process."""
COMBINED = Combined(DenseUpdate(NOTHING), 0, (), math.nan)
"""Stands for what an aggregator in another process has combined, and pushed."""


@dataclass(frozen=True, slots=True)
class UpdateElsewhere(DenseUpdate):
    """Stands for an update that its server has; ``number`` is the server's own."""

    number: int = 0


class DrivenHalf(ServerHalf):
    """A server as the clock sees it: the half of the algorithm.

    Attributes:
        crowded: True if too many evaluations wait there.
    """

    def __init__(
        self, protocol: Protocol, needed: int, outcome: Callable[[Request[Any]], Outcome]
    ) -> None:
        """Take a server that has no workers yet.

        Args:
            outcome: has the server do something, and returns what came of it.
        """
        super().__init__(NOTHING)
        self.protocol, self.needed = protocol, needed
        self.crowded = False
        self._outcome = outcome

    def ask(self, request: Request[V]) -> V:
        """Have the server do something, and return the value that came of it.

        Raises:
            UnexpectedMessageError: a worker's message is invalid.
            ConnectionError: the server is gone.
        """
        told = self._outcome(request)
        self._tell(told)
        if told.error is not None:
            raise UnexpectedMessageError(told.error)
        return request.read(told)

    def _tell(self, told: Outcome) -> None:
        """Take over what came of a request besides its value."""
        self.version, self.deadline = told.version, told.deadline

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        return self.version if self.ask(clock_requests.TakePull(worker, time)) else None

    def push(
        self,
        worker: int,
        update: Update,
        base_version: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        return self.push_sum(worker, update, base_version, 0, loss=loss, time=time)

    def push_sum(
        self,
        worker: int,
        update: Update,
        base_version: int,
        count: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        assert isinstance(update, UpdateElsewhere)
        return self.ask(
            clock_requests.Apply(worker, update.number, base_version, loss, time, count)
        )

    def finished(self, worker: int, base_version: int, *, time: float = math.nan) -> None:
        self.ask(clock_requests.Reported(worker, base_version, time))

    def diagnose(self) -> Mapping[str, float]:
        return self.ask(clock_requests.Diagnose())

    def joined(self, worker: int) -> None:
        self.ask(clock_requests.Join(worker))

    def forget(self, worker: int) -> None:
        self.ask(clock_requests.Forget(worker))

    def expire(self) -> None:
        self.ask(clock_requests.Expire())

    def track_changes(self) -> None:
        """Do nothing: the server tracks them itself."""


class DrivenCombiningHalf(DrivenHalf, CombiningHalf):
    """An aggregator as the clock sees it."""

    _is_due = False

    def _tell(self, told: Outcome) -> None:
        super()._tell(told)
        self._is_due = told.is_due

    @property
    def is_due(self) -> bool:
        return self._is_due

    def take(self) -> Combined | None:
        """Have the aggregator push; return what stands for the sum, or None if it only reports."""
        return COMBINED if self.ask(clock_requests.Combine()) else None

    def adopt(
        self, parameters: FloatVector, bases: Sequence[int], *, time: float = math.nan
    ) -> None:
        self.ask(clock_requests.Adopt(list(bases), time))


def remote_servers(halves: Iterable[ServerHalf], channels: Sequence[Channel]) -> list[DrivenHalf]:
    """Return the servers and aggregators in other processes, whose halves are like these."""
    found: list[DrivenHalf] = []
    for half, channel in zip(halves, channels, strict=True):
        kind = DrivenCombiningHalf if isinstance(half, CombiningHalf) else DrivenHalf
        found.append(kind(half.protocol, half.needed, partial(_outcome, channel)))
    return found


def _outcome(channel: Channel, request: Request[Any]) -> Outcome:
    send(channel, request)
    told = OUTCOMES.receive(channel)
    if told is None:
        raise ConnectionResetError("a server is gone")
    return told

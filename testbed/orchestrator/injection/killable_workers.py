"""Workers that are killed and come back, and those that an outage or a start leaves hard to reach.

A killed worker comes back as its next *incarnation*, when its fault has ended and its process is gone;
under the wall clock also when the server has reported its last connection, and with it every push that
arrived, or ``CLOSING_TIMEOUT`` has passed.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.messages.requests import KillDevice
from testbed.orchestrator.injection.agenda import Clock
from testbed.orchestrator.injection.impairments import Ask
from testbed.roles.arguments import RoleArguments
from testbed.roles.transport.greeting import CONNECT_TIMEOUT

Start: TypeAlias = Callable[[str, RoleArguments], None]
"""Starts a device in a role."""
SETTLED = 2.0
"""Seconds after an outage, added to its length once more, until TCP works as before."""
CLOSING_TIMEOUT = 2.0
"""Seconds in which the server reports a killed worker's connection, if it can notice the end."""


@dataclass(slots=True)
class _KillableWorker:
    """One worker's state; all times are CLOCK_MONOTONIC in seconds.

    Attributes:
        incarnation: how often the worker has come back.
        applied: the number of its pushes that the server has reported.
        pushes: the number of pushes that the worker itself reported last; the server reports later.
        dead_until: until when a fault keeps it dead; infinite: for good, or until the fault's end is
            reported; None: it is alive.
        exited: when its process had ended, after a kill.
        closed: whether the server has reported the end of its last connection since the kill.
        unsettled: until when TCP may still suffer from an outage.
        started: when it last came back.
        gone: whether its host is lost, so that it never comes back.
    """

    incarnation: int = 0
    applied: int = 0
    pushes: int = 0
    dead_until: float | None = None
    exited: float | None = None
    closed: bool = False
    unsettled: float = -math.inf
    started: float = -math.inf
    gone: bool = False


class KillableWorkers:
    """The workers of one run, by number."""

    def __init__(
        self,
        names: Mapping[int, str],
        ask: Ask,
        start: Start,
        now: Clock,
        *,
        wall: bool,
        aggregators: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Start with all workers alive.

        Args:
            names: the workers' names by number, and those of the aggregators.
            aggregators: by the number of each of these, that by which it serves.
        """
        self._names = names
        self._ask, self._start, self._now, self._wall = ask, start, now, wall
        self._workers = {number: _KillableWorker() for number in names}
        self._aggregators = aggregators

    def resume(
        self, rows: npt.NDArray[Any], incarnations: Mapping[int, int], dead: Collection[int]
    ) -> None:
        """Restore the state of an interrupted run: all are dead, and due to come back but for some.

        Aggregators begin anew with it.

        Args:
            rows: the pushes so far, rows of ``records.UPDATE``.
            incarnations: how often each worker has come back.
        """
        self.count_pushes(rows)
        for number, worker in self._workers.items():
            if number in self._aggregators:
                continue
            worker.dead_until = math.inf if number in dead else 0.0
            worker.exited, worker.closed = 0.0, True
            worker.incarnation = incarnations[number] - 1

    def count_pushes(self, rows: npt.NDArray[Any]) -> None:
        """Count the pushes in rows of ``records.UPDATE``."""
        pushed = rows["worker"][rows["payload_bytes"] > 0]
        numbers, counts = np.unique(pushed, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number in self._workers:  # a peer is not
                self._workers[number].applied += count

    def report_pushes(self, number: int, pushes: int) -> None:
        """Record the number of pushes that a worker itself reports."""
        self._workers[number].pushes = pushes

    def is_alive(self, number: int) -> bool:
        """Return True if a worker is not killed."""
        return self._workers[number].dead_until is None

    def is_killed_for_good(self, number: int) -> bool:
        """Return True if no end of a worker's kill was reported."""
        return self._workers[number].dead_until == math.inf

    def is_gone(self, number: int) -> bool:
        """Return True if a worker's host is lost."""
        return self._workers[number].gone

    def incarnation(self, number: int) -> int:
        """Return how often a worker has come back."""
        return self._workers[number].incarnation

    @property
    def any_returning(self) -> bool:
        """True if a worker has ended that is due to come back."""
        workers = self._workers.values()
        return any(one.exited is not None and one.dead_until != math.inf for one in workers)

    @property
    def any_dying(self) -> bool:
        """True if a worker is killed whose process has not ended yet."""
        workers = self._workers.values()
        return any(one.dead_until is not None and one.exited is None for one in workers)

    def is_unsettled(self, number: int) -> bool:
        """Return True if a worker's TCP may still suffer from an outage."""
        return self._now() < self._workers[number].unsettled

    def is_connecting(self, number: int) -> bool:
        """Return True if a worker came back so lately that it may not be connected yet."""
        return self._now() - self._workers[number].started < CONNECT_TIMEOUT

    def connected(self, number: int) -> None:
        """Mark a device that came back as connected, over connections that no outage has struck."""
        self._workers[number].started = self._workers[number].unsettled = -math.inf

    def end_outage(self, number: int, seconds: float) -> None:
        """Mark the end of a worker's outage, which lasted some seconds."""
        self._workers[number].unsettled = self._now() + seconds + SETTLED

    def kill(self, number: int) -> None:
        """Have the agent kill a worker; it is dead until ``end_kill``."""
        worker = self._workers[number]
        worker.dead_until, worker.exited, worker.closed = math.inf, None, False
        self._ask(KillDevice(self._names[number]))

    def lose(self, number: int) -> None:
        """Mark a worker whose host is lost: it is dead, and never comes back."""
        worker = self._workers[number]
        worker.gone, worker.dead_until, worker.exited, worker.closed = (
            True,
            math.inf,
            self._now(),
            True,
        )

    def end_kill(self, number: int) -> None:
        """End the time for which a killed worker stays away: it is due to come back."""
        self._workers[number].dead_until = 0.0

    def expect(self, number: int, incarnation: int, *, back: bool) -> None:
        """Have a killed worker come back as an incarnation, at once or when its kill ends.

        Args:
            back: True for at once.
        """
        worker = self._workers[number]
        worker.dead_until = 0.0 if back else math.inf
        worker.incarnation = incarnation - 1

    def exited(self, number: int) -> bool:
        """Record the end of a worker's process; return True if it was killed here."""
        worker = self._workers.get(number)
        if worker is None or worker.dead_until is None:
            return False
        worker.exited = self._now()
        return True

    def closed(self, number: int | None, pushes: int = 0) -> None:
        """Record a connection's end, which the server reported after all that came over it.

        Args:
            pushes: those that came over it, as far as no row tells of them.
        """
        if number in self._workers:
            self._workers[number].closed = True
            self._workers[number].applied += pushes

    def bring_back(
        self,
        server_kills: int,
        others: Callable[[int], Sequence[int]] | None = None,
        can_greet: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """Start the killed workers that are due to come back and whose process is gone.

        Args:
            others: if they are peers, returns those that one calls as it comes back.
            can_greet: returns False for one that nobody would answer now.
        """
        now = self._now()
        for number, worker in self._workers.items():
            if worker.dead_until is None or worker.dead_until > now or worker.exited is None:
                continue
            if not worker.closed and now - worker.exited < CLOSING_TIMEOUT and self._wall:
                continue
            if not can_greet(number):
                continue
            worker.dead_until = worker.exited = None
            worker.incarnation += 1
            worker.started = now
            role: RoleArguments = {
                "number": number,
                "incarnation": worker.incarnation,
                "role": "worker" if others is None else "peer",
            }
            if number in self._aggregators:
                role["role"], role["number"] = "aggregator", self._aggregators[number]
            elif others is None:
                role["kills"] = server_kills
                role["pushes"] = max(worker.pushes, worker.applied)
            else:
                role["others"] = others(number)
            self._start(self._names[number], role)

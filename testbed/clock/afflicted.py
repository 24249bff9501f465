"""Workers that stand still, are cut off, slowed down or killed, under the virtual clock.

Freezing moves the end of a computation by as long as it lasts, and lets nothing begin before.
Parameters that leave the link meanwhile are at the device, which sees them at its thaw: whatever
happens to the link, they stay there. A link that is down holds what is under way on it
(``testbed.clock.transfers``). Whoever is killed leaves, and may join again as another incarnation.
Whoever is frozen or cut off for good stays joined: nobody knows.

What a device was already told to send, it sends: a message is received before its device is stopped,
and counts as late if it is not an update any more. Nothing is told to a device while it is stopped or
cut off, so that nobody ever waits for one that cannot answer.

Whom this befalls, and when, is decided elsewhere (``testbed.clock.faults``).
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from testbed.clock import star
from testbed.clock.stage import Arrived, FaultStage
from testbed.clock.star import ARRIVED, EXACT, FINISHED, PARAMETERS, THAWED, Devices, StarClock
from testbed.clock.transfers import Line
from testbed.faults.fault import Fault
from testbed.faults.pace import Pace
from testbed.training.parameter_service import ParameterService
from testbed.wire.frames import HEADER


@dataclass(slots=True)
class Condition:
    """What is wrong with one worker.

    Attributes:
        incarnation: how often it was killed.
        frozen: until when it stands still.
        owed: what the end of its computation under way is late by.
        early: messages that were received before they were sent, by the clock.
        lost: it will never be heard of again.
        away: its links, while it is killed; and how many computations it had begun.
        slow: what slows it down, by strike and in the order in which they began.
        factor: what its durations are multiplied by.
    """

    incarnation: int = 0
    frozen: float = 0.0
    owed: float = 0.0
    early: deque[Arrived] = field(default_factory=deque)
    lost: bool = False
    away: tuple[Line, Line, int] | None = None
    slow: dict[int, Fault] = field(default_factory=dict)
    factor: float = 1.0


STORED: tuple[type, ...] = (*star.STORED, Condition, Fault)
"""What a clock's state is made of, beside plain values and arrays."""


class AfflictedClock(StarClock):
    """Runs one run's events around workers that something may befall."""

    _stage: FaultStage

    def __init__(self, service: ParameterService, stage: FaultStage, devices: Devices) -> None:
        """Prepare, with workers that are all well."""
        super().__init__(service, stage, devices)
        self._conditions = {worker: Condition() for worker in devices.workers}

    def drain(self) -> None:
        # What was told to who is cut off does not arrive any more.
        self._events = [
            (time, rank, worker, what)
            for time, rank, worker, what in self._events
            if not (rank == ARRIVED and what != EXACT and self._is_cut_off(worker))
        ]
        super().drain()

    # -- what is otherwise with such a worker

    def _handle(self, time: float, rank: int, worker: int, what: float) -> None:
        condition = self._conditions[worker]
        if rank <= PARAMETERS and condition.frozen > time:
            self._post_again(condition.frozen, THAWED, worker, what)
        elif rank == ARRIVED and what != EXACT and condition.frozen > time:
            # It was not received: a later outage finds its time anew, and this waits once more.
            self._post_again(condition.frozen, ARRIVED, worker, what)
        elif rank == FINISHED and condition.owed and self._is_computing(worker, what):
            time, condition.owed = time + condition.owed, 0.0
            self._post_again(time, FINISHED, worker, what)
        else:
            super()._handle(time, rank, worker, what)

    def _post_again(self, time: float, rank: int, worker: int, what: float) -> None:
        """Have an event take place later; one that has no time any more never does."""
        if time < inf:
            heapq.heappush(self._events, (time, rank, worker, what))

    def _is_computing(self, worker: int, begun: float) -> bool:
        """Return True if this is a worker's computation under way, and not one that was interrupted."""
        state = self._workers.get(worker)
        return state is not None and state.begun == begun

    def _seconds(self, worker: int) -> float:
        return super()._seconds(worker) * self._conditions[worker].factor

    def _compute(self, worker: int, state: Any, version: int) -> None:
        self._conditions[worker].owed = 0.0
        super()._compute(worker, state, version)

    def _reachable(self, worker: int) -> bool:
        return self._conditions[worker].frozen <= self.now and not self._is_cut_off(worker)

    def _is_cut_off(self, worker: int) -> bool:
        state = self._workers.get(worker)
        return state is not None and state.up.down > self.now

    def _receive(self, worker: int, keep: bool) -> Arrived | None:
        early = self._conditions[worker].early
        return early.popleft() if early else super()._receive(worker, keep)

    # -- what befalls a worker that was fetched

    def _fetch(self, worker: int) -> bool:
        """Receive what a worker was told to send, so that it may be stopped; False if it is gone."""
        state, condition = self._workers[worker], self._conditions[worker]
        if not self._reachable(worker):
            return True  # that was done when it was stopped, and it was told nothing since
        unread = sorted(
            (time, what)
            for time, rank, whose, what in self._events
            if whose == worker and rank == ARRIVED and what != EXACT
        )
        exact: list[float] = []
        for _, sent in unread:
            arrived = self._receive(worker, keep=True)
            if arrived is None:
                self._remove(worker)
                return False
            exact.append(state.up.send(sent, arrived.size))
            state.waiting.append(arrived)
        if state.ahead and not condition.early:
            arrived = self._receive(worker, keep=True)
            if arrived is None:
                self._remove(worker)
                return False
            condition.early.append(arrived)
        self._move(worker, (ARRIVED,), lambda time, what: None if what != EXACT else time)
        for (earliest, _), time in zip(unread, exact, strict=True):
            heapq.heappush(self._events, (max(earliest, time), ARRIVED, worker, EXACT))
        return True

    def _move(
        self, worker: int, ranks: Sequence[int], to: Callable[[float, float], float | None]
    ) -> None:
        """Change the times of a worker's events of some ranks; None removes one."""
        moved = []
        for event in self._events:
            time, its, whose, what = event
            if whose == worker and its in ranks:
                at = to(time, what)
                if at is not None:
                    moved.append((at, its, whose, what))
            else:
                moved.append(event)
        heapq.heapify(moved)
        self._events = moved

    def _freeze(self, worker: int, until: float) -> None:
        state, condition = self._workers[worker], self._conditions[worker]
        if until <= condition.frozen:
            return
        if state.begun and not state.finished:
            condition.owed += until - max(condition.frozen, self.now)
        condition.frozen = until

    def _cut_off(self, worker: int, until: float) -> None:
        state = self._workers[worker]
        self._change_lines(worker, state.up.hold(self.now, until), state.down.hold(self.now, until))

    def _change_lines(
        self, worker: int, up: Callable[[float], float], down: Callable[[float], float]
    ) -> None:
        """What is under way on a worker's links arrives at other times."""
        state = self._workers[worker]
        self._move(
            worker,
            (ARRIVED,),
            lambda time, what: max(
                self.now, up(time) if what == EXACT else state.up.earliest(what, HEADER.size)
            ),
        )
        self._move(worker, (PARAMETERS,), lambda time, what: max(self.now, down(time)))
        self._announce_room(worker, state)

    def _slow(self, worker: int, strike: int, fault: Fault | None) -> None:
        """A fault slows a worker down, beside every other that does, or (None) does so no more."""
        if fault is None:
            del self._conditions[worker].slow[strike]
        else:
            self._conditions[worker].slow[strike] = fault
        self._have_pace(worker)

    def _have_pace(self, worker: int) -> None:
        """Have the rates and the factor that all together make."""
        condition = self._conditions[worker]
        pace = Pace.under(condition.slow.values())
        condition.factor = pace.factor
        if condition.away is not None:
            up, down, _ = condition.away
            up.change(self.now, pace.uplink)
            down.change(self.now, pace.downlink)
        elif worker in self._workers and self._fetch(worker):
            state = self._workers[worker]
            ways = (
                state.up.change(self.now, pace.uplink),
                state.down.change(self.now, pace.downlink),
            )
            self._change_lines(worker, *ways)

    def _lose(self, worker: int, arriving: bool) -> None:
        """A worker is never heard of again, but for what is under way, if that is still arriving."""
        state, condition = self._workers[worker], self._conditions[worker]
        condition.lost, condition.frozen, condition.owed = True, inf, 0.0
        self._give_up(worker, arriving)
        state.begun += 1  # so that the computation under way does not finish
        state.finished = True
        self._stage.lose(worker)

    def _give_up(self, worker: int, arriving: bool) -> None:
        """Count what a worker has sent and does not arrive any more, and forget what it waits for."""
        state, condition = self._workers[worker], self._conditions[worker]
        if not arriving:
            condition.early.extendleft(reversed(state.waiting))
            state.waiting.clear()
        while condition.early:
            self._count_late(worker, condition.early.popleft())
        if state.ahead:
            self._come_up_with(state)
        # What the server knows and does not know of it stays as it is.
        self._move(
            worker,
            (THAWED, PARAMETERS, FINISHED, ARRIVED),
            lambda time, what: time if arriving and what == EXACT else None,
        )

    def _kill(self, worker: int, until: float) -> None:
        state, condition = self._workers[worker], self._conditions[worker]
        self._give_up(worker, arriving=False)
        del self._workers[worker]
        condition.frozen = condition.owed = 0.0
        condition.incarnation += 1
        condition.lost = until == inf
        if not condition.lost:
            condition.away = (state.up, state.down, state.begun + 1)
        self._service.leave(worker)
        self._stage.killed(worker)

    def _link_up(self, worker: int) -> float:
        """When the link is up of a worker that is away; in seconds."""
        away = self._conditions[worker].away
        assert away is not None
        return away[0].down

    def _revive(self, worker: int) -> None:
        """A killed worker whose link is up joins again, unless it does not come."""
        condition = self._conditions[worker]
        assert condition.away is not None
        up, down, begun = condition.away
        condition.away = None
        sizes = self._stage.returned(worker, condition.incarnation)
        if sizes is None:
            condition.lost = True
            return
        up.forget(self.now)
        down.forget(self.now)
        self._service.join(worker, self.now)
        for size in sizes:
            self._service.count(worker, size)
        self._come_back(worker, begun, up, down)
        if self._workers[worker].protocol.asks:
            self._service.asked(worker, self.now)

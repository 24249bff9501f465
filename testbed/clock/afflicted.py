"""Workers that are frozen, cut off, slowed down or killed, under the virtual clock.

A freeze delays the end of a computation by as long as it lasts, and nothing begins during it.
Parameters that leave the link meanwhile stay at the device, whatever happens to the link, and the
device sees them at its thaw. A link that is down holds what is under way on it
(``testbed.clock.transfers``). A killed worker leaves, and may join again as another incarnation. A
worker that is frozen or cut off for good stays joined: the server cannot know.

What a device was told to send before it was stopped, it sends: the message is received before the
device is stopped, and counts as late if it is not an update any more. No device is told ahead of the
clock while it is stopped or cut off, so that the clock never waits for one that cannot answer.

``testbed.clock.faults`` decides which workers are struck, and when.
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
    """The condition of one worker: what faults have done to it.

    Attributes:
        incarnation: how often the worker was killed.
        frozen: the time at which its freeze ends, in seconds.
        owed: seconds by which the end of its computation under way is late.
        early: messages that were received before they were sent, by the clock.
        lost: True if nothing more will come from it.
        away: its links while it is killed, and one more than the computations it had begun.
        slow: the faults that slow it down, by their strike's number and in the order in which they
            began.
        factor: the factor by which its durations are multiplied.
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
"""The classes in a clock's state, besides plain values and arrays."""


class AfflictedClock(StarClock):
    """Runs the events of one run whose workers faults may strike."""

    _stage: FaultStage

    def __init__(self, service: ParameterService, stage: FaultStage, devices: Devices) -> None:
        """Prepare the clock, with workers that are all well."""
        super().__init__(service, stage, devices)
        self._conditions = {worker: Condition() for worker in devices.workers}

    def drain(self) -> None:
        # What a worker that is cut off was told to send does not arrive any more.
        self._events = [
            (time, rank, worker, what)
            for time, rank, worker, what in self._events
            if not (rank == ARRIVED and what != EXACT and self._is_cut_off(worker))
        ]
        super().drain()

    # -- how events differ for such a worker

    def _handle(self, time: float, rank: int, worker: int, what: float) -> None:
        condition = self._conditions[worker]
        if rank <= PARAMETERS and condition.frozen > time:
            self._post_again(condition.frozen, THAWED, worker, what)
        elif rank == ARRIVED and what != EXACT and condition.frozen > time:
            # Not received yet: a later outage computes its time again, and it waits here once more.
            self._post_again(condition.frozen, ARRIVED, worker, what)
        elif rank == FINISHED and condition.owed and self._is_computing(worker, what):
            time, condition.owed = time + condition.owed, 0.0
            self._post_again(time, FINISHED, worker, what)
        else:
            super()._handle(time, rank, worker, what)

    def _post_again(self, time: float, rank: int, worker: int, what: float) -> None:
        """Post an event for a later time; at an infinite time it never happens."""
        if time < inf:
            heapq.heappush(self._events, (time, rank, worker, what))

    def _is_computing(self, worker: int, begun: float) -> bool:
        """Return True if ``begun`` is the worker's computation under way, not an interrupted one."""
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

    # -- what faults do to a worker, once its messages are received

    def _fetch(self, worker: int) -> bool:
        """Receive what a worker was told to send before it is stopped; return False if it is gone."""
        state, condition = self._workers[worker], self._conditions[worker]
        if not self._reachable(worker):
            return True  # done when it was stopped; nothing has got through since
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
        """Change the times of a worker's events of some ranks; None from ``to`` removes an event."""
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
        """Give what is under way on a worker's links its new arrival times."""
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
        """Begin a fault that slows a worker down or, with None, end it; other such faults go on."""
        if fault is None:
            del self._conditions[worker].slow[strike]
        else:
            self._conditions[worker].slow[strike] = fault
        self._apply_pace(worker)

    def _apply_pace(self, worker: int) -> None:
        """Apply the rates and the factor that result from all faults that slow a worker down."""
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
        """Make a worker silent for good; what is under way from it arrives only if ``arriving``."""
        state, condition = self._workers[worker], self._conditions[worker]
        condition.lost, condition.frozen, condition.owed = True, inf, 0.0
        self._give_up(worker, arriving)
        state.begun += 1  # so that the computation under way does not finish
        state.finished = True
        self._stage.lose(worker)

    def _give_up(self, worker: int, arriving: bool) -> None:
        """Count as late what a worker sent and will not arrive, and drop what it waits for."""
        state, condition = self._workers[worker], self._conditions[worker]
        if not arriving:
            condition.early.extendleft(reversed(state.waiting))
            state.waiting.clear()
        while condition.early:
            self._count_late(worker, condition.early.popleft())
        if state.ahead:
            self._clear_ahead(state)
        # The server's events about the worker stay: it does not know of the fault.
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
        """Return the time at which the link of a killed worker is up, in seconds."""
        away = self._conditions[worker].away
        assert away is not None
        return away[0].down

    def _revive(self, worker: int) -> None:
        """Let a killed worker whose link is up join again; it is lost if it does not come."""
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

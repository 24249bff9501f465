"""What goes wrong around a parameter server, under the virtual clock.

A fault is an event, ahead of all others of its moment. Freezing moves the end of a computation by as
long as it lasts, and lets nothing begin before; what is sent meanwhile is there at the thaw. A link
that is down holds what is under way on it (``testbed.clock.transfers``). Whoever is killed leaves, and
may join again as another incarnation. Whoever is frozen or cut off for good stays joined: nobody
knows.

What a device was already told to send, it sends: a message is received before its device is stopped,
and counts as late if it is not an update any more. Nothing is told to a device while it is stopped or
cut off, so that nobody ever waits for one that cannot answer.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, Protocol

from testbed.clock import star
from testbed.clock.star import (
    ARRIVED,
    EXACT,
    FINISHED,
    PARAMETERS,
    Arrived,
    Stage,
    StarClock,
)
from testbed.clock.transfers import Line
from testbed.faults.fault import SERVER, Fault
from testbed.faults.schedule import Schedule
from testbed.roles.service import ParameterService
from testbed.roles.worker_protocols import WorkerProtocol
from testbed.wire.frames import HEADER

FRUITLESS = 10_000
"""Faults without a push in between after which none is expected any more: what is struck more often
than it can push would go on for ever."""
_FAULT = -1


class FaultStage(Stage, Protocol):
    """A stage on which something may go wrong."""

    def fault(self, record: dict[str, Any]) -> None:
        """A fault begins or ends: it is to be made real, and written down."""

    def server_killed(self, number: int, begin: dict[str, Any], end: dict[str, Any]) -> None:
        """The server is killed, and comes back from its last checkpoint.

        What it has done behind that comes about once more, and so does this.

        Args:
            number: of this time, from 1; of a time that it has come back from already, the same.
            begin, end: the records of both.
        """

    def lose(self, worker: int) -> None:
        """Whatever a worker was computing or had to send is lost."""

    def killed(self, worker: int) -> None:
        """A worker's connection has ended; what it had is lost."""

    def returned(self, worker: int, incarnation: int) -> Sequence[int] | None:
        """A killed worker greets, and asks; bytes of each message, None if it does not come."""


@dataclass(slots=True)
class _Device:
    """What is wrong with one worker.

    Attributes:
        frozen: until when it stands still.
        owed: what the end of its computation under way is late by.
        early: messages that were received before they were sent, by the clock.
        lost: it will never be heard of again.
        away: its links, while it is killed; and how many computations it had begun.
        slow: what slows it down, by strike and in the order in which they began.
    """

    pushes: int = 0
    incarnation: int = 0
    frozen: float = 0.0
    owed: float = 0.0
    early: deque[Arrived] = field(default_factory=deque)
    lost: bool = False
    away: tuple[Line, Line, int] | None = None
    slow: dict[int, Fault] = field(default_factory=dict)
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class _Strike:
    """A fault that comes at its time, and the next one behind it."""

    devices: Sequence[int]
    fault: Fault


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a fault, with the incarnations that it struck; ``number`` of its strike."""

    fault: Fault
    number: int
    incarnations: dict[int, int]


STORED: tuple[type, ...] = (*star.STORED, _Device, _Strike, _End, Fault)
"""What a clock's state is made of, beside plain values and arrays."""


class FaultyClock(StarClock):
    """Runs one run's events, faults among them."""

    made_anew = frozenset({"_schedule", "_timed"})
    _stage: FaultStage

    def __init__(
        self,
        service: ParameterService,
        stage: FaultStage,
        *,
        workers: Sequence[int],
        protocol: Callable[[], WorkerProtocol],
        busy: Callable[[int, float], float],
        lines: Callable[[int], tuple[Line, Line]],
        schedule: Schedule,
    ) -> None:
        """Prepare.

        Args:
            schedule: whom faults strike, and when.
        """
        super().__init__(
            service,
            stage,
            workers=workers,
            protocol=protocol,
            busy=lambda worker, now: busy(worker, now) * self._devices[worker].factor,
            lines=lines,
        )
        self._devices = {worker: _Device() for worker in workers}
        self._schedule = schedule
        self._timed = schedule.timed()
        self._iteration = schedule.next_iteration(service.half.version)
        self._actions: dict[int, _Strike | _End] = {}
        self._came = self._posted = self._strikes = self._server_strikes = self._fruitless = 0

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        if not self._service.begun:
            self._post_strike()
        super().run(between)

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        for _ in range(self._came):
            next(self._timed)

    def drain(self) -> None:
        # What was told to who is cut off does not arrive any more, nor is anybody struck.
        self._events = [
            (time, rank, worker, what)
            for time, rank, worker, what in self._events
            if rank != _FAULT
            and not (rank == ARRIVED and what != EXACT and self._is_cut_off(worker))
        ]
        super().drain()

    # -- events

    def _post(self, time: float, action: _Strike | _End) -> None:
        self._posted += 1
        self._actions[self._posted] = action
        heapq.heappush(self._events, (time, _FAULT, self._posted, 0))

    def _post_strike(self) -> None:
        """Post the next fault that has a time."""
        coming = next(self._timed, None)
        if coming is None:
            return
        time, devices, fault = coming
        self._came += 1
        self._post(time, _Strike(devices, fault))

    def _act(self, action: _Strike | _End) -> None:
        if isinstance(action, _End):
            self._end(action)
        elif self._is_alive():
            self._strike(action.devices, action.fault)
            self._post_strike()

    def _is_alive(self) -> bool:
        """Whether anything but faults is to come: otherwise nobody will push any more."""
        if self._fruitless > FRUITLESS:
            return False
        away = any(device.away is not None for device in self._devices.values())
        return away or any(rank != _FAULT for _, rank, _, _ in self._events)

    def _handle(self, time: float, rank: int, worker: int, what: float) -> None:
        if rank == _FAULT:
            self.now = time
            self._act(self._actions.pop(worker))
            return
        later = self._later(time, rank, worker, what)
        if later == time:
            super()._handle(time, rank, worker, what)
            self._strike_at_iteration()  # updates come about when somebody is waited for no more, too
        elif later < inf:
            heapq.heappush(self._events, (later, rank, worker, what))

    def _later(self, time: float, rank: int, worker: int, what: float) -> float:
        """When an event takes place whose worker may stand still."""
        device = self._devices[worker]
        if rank == PARAMETERS or (rank == ARRIVED and what != EXACT):
            return max(time, device.frozen)
        if rank == FINISHED and device.owed:
            state = self._workers.get(worker)
            if state is not None and state.begun == what:
                time += device.owed
                device.owed = 0.0
        return time

    def _compute(self, worker: int, state: Any, version: int) -> None:
        self._devices[worker].owed = 0.0
        super()._compute(worker, state, version)

    def _reachable(self, worker: int) -> bool:
        return self._devices[worker].frozen <= self.now and not self._is_cut_off(worker)

    def _is_cut_off(self, worker: int) -> bool:
        state = self._workers.get(worker)
        return state is not None and state.up.down > self.now

    def _receive(self, worker: int, keep: bool) -> Arrived | None:
        early = self._devices[worker].early
        return early.popleft() if early else super()._receive(worker, keep)

    def _answered(self, worker: int) -> None:
        if self._service.finished:
            return
        self._fruitless = 0
        device = self._devices[worker]
        device.pushes += 1
        for fault in self._schedule.after_push(worker, device.pushes):
            self._strike((worker,), fault)
        self._strike_at_iteration()

    def _strike_at_iteration(self) -> None:
        if self._service.finished:
            return
        while self._iteration is not None and self._service.half.version >= self._iteration:
            for devices, fault in self._schedule.at_iteration(self._iteration):
                self._strike(devices, fault)
            self._iteration = self._schedule.next_iteration(self._iteration)

    # -- faults

    def _tell(self, fault: Fault, phase: Literal["begin", "end"], devices: Sequence[int]) -> None:
        version = self._service.half.version
        self._stage.fault(fault.record(phase, devices, self.now, version))

    def _strike(self, devices: Sequence[int], fault: Fault) -> None:
        """A fault strikes those that there are; who is killed or lost has no other."""
        if SERVER in devices:
            self._server_strikes += 1
            version = self._service.half.version
            phases: tuple[Literal["begin", "end"], ...] = ("begin", "end")
            both = (fault.record(phase, devices, self.now, version) for phase in phases)
            self._stage.server_killed(self._server_strikes, *both)
            return
        slow, until = fault.kind == "slow", self.now + (fault.duration or inf)
        there = [worker for worker in devices if worker in self._workers]
        struck = [w for w in there if not self._devices[w].lost and (slow or self._fetch(w))]
        if not struck:
            return
        self._tell(fault, "begin", struck)
        self._strikes += 1
        self._fruitless += 1
        number = self._strikes
        for worker in struck:
            if slow:
                self._devices[worker].slow[number] = fault
                self._slow_down(worker)
            elif fault.kind == "kill":
                self._kill(worker, until)
            elif until == inf:
                self._lose(worker, arriving=fault.kind == "freeze")
            elif fault.kind == "freeze":
                self._freeze(worker, until)
            else:
                self._cut_off(worker, until)
        if until < inf:
            incarnations = {worker: self._devices[worker].incarnation for worker in struck}
            self._post(until, _End(fault, number, incarnations))
        if fault.kind == "kill":
            self._send_due()  # others may have waited for it

    def _end(self, end: _End) -> None:
        fault, incarnations = end.fault, end.incarnations
        if fault.kind == "kill":
            for worker in incarnations:
                self._bring_back(worker, fault)
            self._send_due()
            return
        # A process that was killed does not thaw; a link and a slow device outlive it.
        still = [
            worker
            for worker, incarnation in incarnations.items()
            if (device := self._devices[worker])
            and not device.lost
            and (fault.kind != "freeze" or device.incarnation == incarnation)
        ]
        for worker in still:
            if fault.kind == "slow":
                del self._devices[worker].slow[end.number]
                self._slow_down(worker)
        if still:
            self._tell(fault, "end", still)

    def _fetch(self, worker: int) -> bool:
        """Receive what a worker was told to send, so that it may be stopped; False if it is gone."""
        state, device = self._workers[worker], self._devices[worker]
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
        if state.ahead and not device.early:
            arrived = self._receive(worker, keep=True)
            if arrived is None:
                self._remove(worker)
                return False
            device.early.append(arrived)
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
        state, device = self._workers[worker], self._devices[worker]
        if until <= device.frozen:
            return
        if state.begun and not state.finished:
            device.owed += until - max(device.frozen, self.now)
        device.frozen = until

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

    def _slow_down(self, worker: int) -> None:
        """Have the rates and the factor that all together make."""
        device = self._devices[worker]
        device.factor = 1.0
        uplink = downlink = None
        for fault in device.slow.values():
            device.factor *= fault.factor
            uplink, downlink = fault.uplink or uplink, fault.downlink or downlink
        if device.away is not None:
            up, down, _ = device.away
            up.change(self.now, uplink)
            down.change(self.now, downlink)
        elif worker in self._workers and self._fetch(worker):
            state = self._workers[worker]
            ways = state.up.change(self.now, uplink), state.down.change(self.now, downlink)
            self._change_lines(worker, *ways)

    def _lose(self, worker: int, arriving: bool) -> None:
        """A worker is never heard of again, but for what is under way, if that is still arriving."""
        state, device = self._workers[worker], self._devices[worker]
        device.lost, device.frozen, device.owed = True, inf, 0.0
        self._give_up(worker, arriving)
        state.begun += 1  # so that the computation under way does not finish
        state.finished = True
        self._stage.lose(worker)

    def _give_up(self, worker: int, arriving: bool) -> None:
        """Count what a worker has sent and does not arrive any more, and forget what it waits for."""
        state, device = self._workers[worker], self._devices[worker]
        if not arriving:
            device.early.extendleft(reversed(state.waiting))
            state.waiting.clear()
        while device.early:
            self._count_late(worker, device.early.popleft())
        if state.ahead:
            self._come_up_with(state)
        # What the server knows and does not know of it stays as it is.
        self._move(
            worker,
            (PARAMETERS, FINISHED, ARRIVED),
            lambda time, what: time if arriving and what == EXACT else None,
        )

    def _kill(self, worker: int, until: float) -> None:
        state, device = self._workers[worker], self._devices[worker]
        self._give_up(worker, arriving=False)
        del self._workers[worker]
        device.frozen = device.owed = 0.0
        device.incarnation += 1
        device.lost = until == inf
        if not device.lost:
            device.away = (state.up, state.down, state.begun + 1)
        self._service.leave(worker)
        self._stage.killed(worker)

    def _bring_back(self, worker: int, fault: Fault) -> None:
        """A killed worker comes back, as soon as its link is up."""
        device = self._devices[worker]
        assert device.away is not None
        up, down, begun = device.away
        if up.down > self.now:
            self._post(up.down, _End(fault, 0, {worker: device.incarnation}))
            return
        self._tell(fault, "end", [worker])
        device.away = None
        sizes = self._stage.returned(worker, device.incarnation)
        if sizes is None:
            device.lost = True
            return
        up.forget(self.now)
        down.forget(self.now)
        self._service.join(worker, self.now)
        for size in sizes:
            self._service.count(worker, size)
        self._come_back(worker, begun, up, down)
        if self._workers[worker].protocol.asks:
            self._service.asked(worker, self.now)


def star_clock(
    service: ParameterService, stage: FaultStage, schedule: Schedule, **rest: Any
) -> StarClock:
    """The clock of a run; ``rest`` as ``StarClock`` takes it. Without faults, they cost nothing."""
    if not schedule.rules:
        return StarClock(service, stage, **rest)
    return FaultyClock(service, stage, schedule=schedule, **rest)

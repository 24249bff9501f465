"""The order of events around a parameter server, under the virtual clock.

Events are in conservative discrete-event order: the earliest is handled next, and nothing earlier can
follow it, because an event only causes events at its own time or later. Durations are drawn, so when a
worker finishes does not depend on what it computes, and all of them compute meanwhile. Only the time at
which a message has *arrived* may depend on its size, and then the clock waits for its sender.

A worker that is sent every version is sent the newest when its downlink is free: versions that became
old in the queue are not sent.

Of events at one moment, parameters arrive first, then computations end, then pushes arrive, then
workers ask for parameters (a pull gets every update that arrived up to its time), and last the workers
that were silent for too long are suspected. Within each kind, the worker with the lower number comes
first.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed.checkpoints.stateful import Stateful
from testbed.clock.stage import Arrived, Stage
from testbed.clock.transfers import Line
from testbed.training.parameter_service import ParameterService, Pushed
from testbed.training.silence import Silence
from testbed.training.worker_protocols import WORKER_PROTOCOLS, WorkerProtocol
from testbed.updates import DenseUpdate, SparseUpdate
from testbed.wire.frames import HEADER

AHEAD = 16
"""The number of computations whose certain end may be told before the clock gets there.

Enough that the host never waits for a message, few enough that bytes pass in the clock's order.
"""

LATEST = 1e12
"""The time of the virtual clock, in seconds (31,700 years), after which nothing takes place.

A device that is slowed down so often that its next event would be later is as good as lost. Floats
still tell a tenth of a millisecond apart there.
"""
THAWED, PARAMETERS, FINISHED, ARRIVED, _ASKED, _FREE, SILENT = range(7)
"""Ranks of events: of events at one moment, lower ranks come first.

``PARAMETERS`` are on the link, and what happens to the link may move them. ``THAWED`` are parameters
that have left the link and wait at a frozen device for its thaw: only another freeze may move them, and
they come before anything that leaves the link at that moment.
"""
EXACT = -1.0
"""Takes the place of a message's sending time in an event, once its size and arrival are known."""


@dataclass(slots=True)
class _Worker:
    """One worker, as the clock sees it.

    ``begun`` counts its computations. ``finished`` and ``ahead`` are about the last of them: whether
    the clock has reached its end, and whether the worker was told of it before. ``timed`` is the time
    of the event that will check its silence.
    """

    protocol: WorkerProtocol
    up: Line
    down: Line
    begun: int = 0
    finished: bool = False
    ahead: bool = False
    waiting: deque[Arrived] = field(default_factory=deque)
    timed: float = math.inf


STORED: tuple[type, ...] = (
    _Worker,
    Line,
    Silence,
    *WORKER_PROTOCOLS.values(),
    Arrived,
    Pushed,
    DenseUpdate,
    SparseUpdate,
)
"""The classes in the states of a clock and its service, besides plain values and arrays."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The workers of a run, as its clock has to know them.

    Attributes:
        workers: their numbers; each has joined the service, and asked if that is the protocol.
        protocol: makes a worker's state.
        busy: returns the seconds that a worker computes and then waits, from a moment on; called once
            for each computation, in order.
        lines: makes a worker's uplink and downlink.
    """

    workers: Sequence[int]
    protocol: Callable[[], WorkerProtocol]
    busy: Callable[[int, float], float]
    lines: Callable[[int], tuple[Line, Line]]


class StarClock(Stateful):
    """Runs the events of one run.

    Attributes:
        now: virtual seconds since training began.
    """

    not_saved = frozenset({"_service", "_stage", "_busy", "_protocol"})

    def __init__(self, service: ParameterService, stage: Stage, devices: Devices) -> None:
        """Prepare the clock."""
        self.now = 0.0
        self._service = service
        self._stage = stage
        self._busy = devices.busy
        self._protocol = devices.protocol
        self._workers = {
            worker: _Worker(devices.protocol(), *devices.lines(worker))
            for worker in devices.workers
        }
        self._events: list[tuple[float, int, int, float]] = []
        self._certain: list[tuple[float, int, int]] = []
        self._ahead = 0

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """Run until the service has finished, or nothing more will happen.

        A clock and a service that were restored from a checkpoint go on from there.

        Args:
            between: called between two events.
        """
        if not self._service.begun:
            self._service.begin()
            self._send_due()
        while self._events and not (self._service.finished or self.is_beyond):
            between()
            self._announce_finishes()
            self._handle(*heapq.heappop(self._events))

    @property
    def is_beyond(self) -> bool:
        """True if the next event is too late to take place."""
        return bool(self._events) and self._events[0][0] > LATEST

    def drain(self) -> None:
        """Count the messages that workers were told to send and that come too late for an update."""
        for _, rank, worker, what in sorted(self._events):
            state = self._workers.get(worker)
            if state is None:
                continue
            arrived: Arrived | None = None
            if rank == ARRIVED and what == EXACT:
                arrived = state.waiting.popleft()
            elif rank == ARRIVED or (rank == FINISHED and state.ahead):
                arrived = self._receive(worker, keep=False)
            if arrived is not None:
                self._count_late(worker, arrived)

    def _count_late(self, worker: int, arrived: Arrived) -> None:
        self._service.payload_bytes += arrived.push.payload_bytes
        self._service.count(worker, arrived.size)

    def _handle(self, time: float, rank: int, worker: int, what: float) -> None:
        state = self._workers.get(worker)
        if state is None:
            return
        self.now = time
        if rank <= PARAMETERS:
            self._stage.arrived(worker, int(what))
            version = state.protocol.arrived(int(what))
            if version is not None:
                self._compute(worker, state, version)
        elif rank == FINISHED:
            if what == state.begun:  # otherwise it was interrupted
                self._finish(worker, state)
        elif rank == ARRIVED:
            self._arrive(worker, state, what)
        elif rank == SILENT:
            self._look_at_silence(worker, state)
        else:
            if rank == _ASKED:
                self._service.asked(worker, time)
            self._send_due()

    def _compute(self, worker: int, state: _Worker, version: int) -> None:
        state.begun += 1
        state.finished = False
        self._stage.compute(worker, version)
        end = self.now + self._seconds(worker)
        heapq.heappush(self._events, (end, FINISHED, worker, state.begun))
        if state.protocol.certain:
            heapq.heappush(self._certain, (end, worker, state.begun))

    def _announce_finishes(self) -> None:
        while self._certain and self._ahead < AHEAD:
            _, worker, begun = heapq.heappop(self._certain)
            state = self._workers.get(worker)
            if state is None or state.begun != begun or state.finished:
                continue
            if self._reachable(worker):
                state.ahead = True
                self._ahead += 1
                self._stage.finish(worker, late=False)

    def _finish(self, worker: int, state: _Worker) -> None:
        finish = state.protocol.finished()
        if state.ahead:
            self._clear_ahead(state)
        else:
            self._stage.finish(worker, finish.late)
        state.finished = True
        earliest = state.up.earliest(self.now, HEADER.size)
        heapq.heappush(self._events, (earliest, ARRIVED, worker, self.now))
        if finish.next is not None:
            self._compute(worker, state, finish.next)

    def _arrive(self, worker: int, state: _Worker, sent: float) -> None:
        if sent == EXACT:
            arrived: Arrived | None = state.waiting.popleft()
        else:
            arrived = self._receive(worker, keep=not state.up.instant)
            if arrived is not None:
                exact = state.up.send(sent, arrived.size)
                if exact > self.now:
                    state.waiting.append(arrived)
                    heapq.heappush(self._events, (exact, ARRIVED, worker, EXACT))
                    return
        if arrived is None:
            self._remove(worker)
            return
        self._take_in(worker, state, arrived)

    def _take_in(self, worker: int, state: _Worker, arrived: Arrived) -> None:
        service = self._service
        service.count(worker, arrived.sizes[0])
        try:
            service.pushed(worker, arrived.push, self.now, self._stage.host_time())
        except ValueError as error:
            self._stage.refuse(worker, error)
            self._remove(worker)
            return
        for size in arrived.sizes[1:]:
            service.count(worker, size)
        if arrived.push.update is not None:
            self._answered(worker)
        if state.protocol.asks and worker in self._workers:
            heapq.heappush(self._events, (self.now, _ASKED, worker, 0))
        else:
            self._time_silence(worker, state)
        self._send_due()

    # -- for ``testbed.clock.afflicted`` and ``testbed.clock.faults``, where things go wrong

    def _seconds(self, worker: int) -> float:
        """Return the seconds that a worker computes and then waits, from now on."""
        return self._busy(worker, self.now)

    def _reachable(self, worker: int) -> bool:
        """Return True if a worker receives what it is told."""
        return True

    def _receive(self, worker: int, keep: bool) -> Arrived | None:
        return self._stage.receive(worker, keep)

    def _answered(self, worker: int) -> None:
        """Note that a worker's push was taken in."""

    def _come_back(self, worker: int, begun: int, up: Line, down: Line) -> None:
        """Add a worker that was removed and has joined the service again.

        Args:
            begun: a number above that of its earlier computations.
        """
        self._workers[worker] = _Worker(self._protocol(), up, down, begun)

    # -- silence, departures and answers

    def _time_silence(self, worker: int, state: _Worker) -> None:
        """Check a worker's silence when it will have lasted too long, unless a check comes earlier."""
        deadline = self._service.deadline(worker)
        if deadline is not None and deadline < state.timed:
            state.timed = deadline
            heapq.heappush(self._events, (deadline, SILENT, worker, 0))

    def _look_at_silence(self, worker: int, state: _Worker) -> None:
        if self.now != state.timed:
            return  # an earlier check was posted after this one
        state.timed = math.inf
        deadline = self._service.deadline(worker)
        if deadline is None or deadline > self.now:
            self._time_silence(worker, state)
            return
        self._service.suspect(worker, self.now)
        self._send_due()  # others may have waited for it

    def _clear_ahead(self, state: _Worker) -> None:
        state.ahead = False
        self._ahead -= 1

    def _remove(self, worker: int) -> None:
        state = self._workers.pop(worker)
        if state.ahead:
            self._clear_ahead(state)
        for arrived in state.waiting:  # sent, but too late to be an update
            self._count_late(worker, arrived)
        self._service.leave(worker)
        self._send_due()  # others may have waited for it

    def _send_due(self) -> None:
        for worker in self._service.due(self._has_room, self.now):
            size = self._stage.answer(worker)
            self._service.sent(worker, self.now)
            state = self._workers[worker]
            self._time_silence(worker, state)
            arrival = state.down.send(self.now, size)
            version = self._service.half.version
            heapq.heappush(self._events, (arrival, PARAMETERS, worker, version))
            self._announce_room(worker, state)

    def _announce_room(self, worker: int, state: _Worker) -> None:
        """Have a worker that is sent every version sent the newest when its downlink is free."""
        if state.down.free > self.now and not state.protocol.asks:
            heapq.heappush(self._events, (state.down.free, _FREE, worker, 0))

    def _has_room(self, worker: int) -> bool:
        """Return True if what a worker was sent before has left its downlink."""
        return self._workers[worker].down.free <= self.now

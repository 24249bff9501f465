"""The order of events around a parameter server, under the virtual clock.

Events are in conservative discrete-event order: the earliest is handled next, and nothing earlier can
follow it, because an event only causes events at its own time or later. Durations are drawn, so when a
worker finishes does not depend on what it computes, and all of them compute meanwhile. Only the time at
which a message has *arrived* may depend on its size, and then the clock waits for its sender.

A worker that is sent every version is sent the newest when its downlink is free: versions that became
old in the queue are not sent.

``events`` says which of two events at one moment comes first. Where faults may strike, the clock
consults two objects: the workers' ``Conditions`` about each event, and the ``Strikes`` after it.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from testbed.checkpoints.stateful import Stateful
from testbed.clock import shared_transfers
from testbed.clock.events import (
    ARRIVED,
    ASKED,
    EXACT,
    FAULT,
    FINISHED,
    FREE,
    PARAMETERS,
    SILENT,
    EventQueue,
)
from testbed.clock.shared_transfers import SharedTransfers, Transfer
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


@dataclass(slots=True)
class TimedWorker:
    """One worker and its links, as the clock sees them.

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
    TimedWorker,
    *shared_transfers.STORED,
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
        transfers: where workers share links, what passes them; the lines are not used then.
    """

    workers: Sequence[int]
    protocol: Callable[[], WorkerProtocol]
    busy: Callable[[int, float], float]
    lines: Callable[[int], tuple[Line, Line]]
    transfers: SharedTransfers | None = None


class Conditions(Protocol):
    """The effects of faults on the workers."""

    def delays(self, time: float, rank: int, worker: int, what: float) -> bool:
        """Return True if an event does not take place now; it was added again for later."""

    def factor(self, worker: int) -> float:
        """Return the factor by which a worker's durations are multiplied."""

    def begins(self, worker: int) -> None:
        """Note that a worker begins a computation."""

    def is_reachable(self, worker: int) -> bool:
        """Return True if a worker receives what it is told."""

    def is_cut_off(self, worker: int) -> bool:
        """Return True if nothing arrives from a worker."""

    def thaw(self, worker: int) -> float:
        """Return the time at which a worker's last freeze ends, in seconds."""

    def freed(self, worker: int) -> None:
        """Note that a worker's link may be up again."""

    def early(self, worker: int) -> Arrived | None:
        """Take a message that was received before it was sent, by the clock; None: there is none."""


class Strikes(Protocol):
    """The faults of a run: when they strike, and when they end."""

    def begin(self) -> None:
        """Add the first fault to the events."""

    def strike(self, number: int) -> None:
        """Let the fault of an event begin or end."""

    def pushed(self, worker: int) -> None:
        """Let faults strike that are due after a worker's push."""

    def strike_at_iteration(self) -> None:
        """Let faults strike that are due at the version that was reached."""


class StarClock(Stateful):
    """Runs the events of one run.

    Attributes:
        now: virtual seconds since training began.
        workers: the workers that take part, by number.
        events: the events that are to come.
        conditions, strikes: None in a run without faults.
        transfers: None in a run whose workers share no links.
    """

    not_saved = frozenset({"_service", "_stage", "_busy", "_protocol"})

    def __init__(self, service: ParameterService, stage: Stage, devices: Devices) -> None:
        """Prepare the clock of a run without faults."""
        self.conditions: Conditions | None = None
        self.strikes: Strikes | None = None
        self.now = 0.0
        self._service = service
        self._stage = stage
        self._busy = devices.busy
        self._protocol = devices.protocol
        self.transfers = devices.transfers
        self.workers = {
            worker: TimedWorker(devices.protocol(), *devices.lines(worker))
            for worker in devices.workers
        }
        self.events = EventQueue()
        self._certain: list[tuple[float, int, int]] = []
        self._ahead = 0

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """Run until the service has finished, or nothing more will happen.

        A clock and a service that were restored from a checkpoint go on from there.

        Args:
            between: called between two events.
        """
        if not self._service.begun:
            if self.strikes is not None:
                self.strikes.begin()
            self._service.begin()
            self.send_due()
        while self._next_time <= LATEST and not self._service.finished:
            between()
            self._announce_finishes()
            if self.transfers is not None and self.transfers.next_end == self._next_time:
                self._end_transfer(self.transfers)
            else:
                self._handle(*self.events.pop())

    @property
    def _next_time(self) -> float:
        """The time of the next event or end of a transfer; inf if nothing more will happen."""
        event = self.events.next_time if self.events else math.inf
        return event if self.transfers is None else min(event, self.transfers.next_end)

    def has_any_but_faults(self) -> bool:
        """Return True if anything but faults is to come, and not too late."""
        transfers = math.inf if self.transfers is None else self.transfers.next_end
        return transfers <= LATEST or self.events.has_any_but_faults(LATEST)

    @property
    def is_beyond(self) -> bool:
        """True if the next event is too late to take place."""
        return LATEST < self._next_time < math.inf

    def drain(self) -> None:
        """Count the messages that workers were told to send and that come too late for an update."""
        for transfer in () if self.transfers is None else self.transfers.uploads():
            arrived: Arrived | None = None
            if transfer.size is not None:
                arrived = self.workers[transfer.worker].waiting.popleft()
            elif not self._is_cut_off(transfer.worker):
                arrived = self.receive(transfer.worker, keep=False)
            if arrived is not None:
                self.count_late(transfer.worker, arrived)
        for _, rank, worker, what in self.events.in_order():
            state = self.workers.get(worker)
            if state is None:
                continue
            arrived = None
            if rank == ARRIVED and what == EXACT:
                arrived = state.waiting.popleft()
            elif (rank == ARRIVED and self.transfers is None and not self._is_cut_off(worker)) or (
                rank == FINISHED and state.ahead
            ):
                arrived = self.receive(worker, keep=False)
            if arrived is not None:
                self.count_late(worker, arrived)

    def _is_cut_off(self, worker: int) -> bool:
        return self.conditions is not None and self.conditions.is_cut_off(worker)

    def count_late(self, worker: int, arrived: Arrived) -> None:
        """Count a message that comes too late for an update."""
        self._service.payload_bytes += arrived.push.payload_bytes
        self._service.count(worker, arrived.size)

    def _handle(self, time: float, rank: int, worker: int, what: float) -> None:
        if rank == FAULT:
            assert self.strikes is not None
            self.now = time
            self.strikes.strike(worker)
            return
        if self.conditions is None or not self.conditions.delays(time, rank, worker, what):
            self._take_place(time, rank, worker, what)
        if self.strikes is not None:  # an update also results when a worker is given up
            self.strikes.strike_at_iteration()

    def _take_place(self, time: float, rank: int, worker: int, what: float) -> None:
        state = self.workers.get(worker)
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
            if rank == ASKED:
                self._service.asked(worker, time)
            elif self.conditions is not None:
                self.conditions.freed(worker)
            self.send_due()

    def _compute(self, worker: int, state: TimedWorker, version: int) -> None:
        if self.conditions is not None:
            self.conditions.begins(worker)
        state.begun += 1
        state.finished = False
        self._stage.compute(worker, version)
        seconds = self._busy(worker, self.now)
        if self.conditions is not None:
            seconds *= self.conditions.factor(worker)
        end = self.now + seconds
        self.events.add(end, FINISHED, worker, state.begun)
        if state.protocol.certain:
            heapq.heappush(self._certain, (end, worker, state.begun))

    def _announce_finishes(self) -> None:
        while self._certain and self._ahead < AHEAD:
            _, worker, begun = heapq.heappop(self._certain)
            state = self.workers.get(worker)
            if state is None or state.begun != begun or state.finished:
                continue
            if self.conditions is None or self.conditions.is_reachable(worker):
                state.ahead = True
                self._ahead += 1
                self._stage.finish(worker, late=False)

    def _finish(self, worker: int, state: TimedWorker) -> None:
        finish = state.protocol.finished()
        if state.ahead:
            self.clear_ahead(state)
        else:
            self._stage.finish(worker, finish.late)
        state.finished = True
        if self.transfers is not None:
            self.transfers.begin(self.now, Transfer(worker, up=True, size=None))
        else:
            earliest = state.up.earliest(self.now, HEADER.size)
            self.events.add(earliest, ARRIVED, worker, self.now)
        if finish.next is not None:
            self._compute(worker, state, finish.next)

    def _end_transfer(self, transfers: SharedTransfers) -> None:
        """End the next transfer, or wait for the message if its size is not known yet."""
        time, transfer = transfers.next_end, transfers.ending()
        worker = transfer.worker
        state = self.workers[worker]
        if self._is_unheard(transfer, state):
            transfers.end(time, transfer)
            return
        self.now = time
        if transfer.size is None and self.conditions is not None:
            thaw = self.conditions.thaw(worker)
            if thaw > self.now:
                transfers.suspend(self.now, transfer)
                if thaw < math.inf:
                    self.events.add(thaw, ARRIVED, worker, thaw)
                return
        if transfer.size is None:
            arrived = self.receive(worker, keep=True)
            if arrived is None:
                self.remove(worker)
                return
            state.waiting.append(arrived)
            transfers.measured(transfer, arrived.size)
            if transfers.next_end > self.now or transfers.ending() is not transfer:
                return
        arrival = transfers.end(self.now, transfer)
        if transfer.up:
            self.events.add(arrival, ARRIVED, worker, EXACT)
            return
        self.events.add(arrival, PARAMETERS, worker, transfer.version)
        if not state.protocol.asks:
            self.events.add(self.now, FREE, worker)

    def _is_unheard(self, transfer: Transfer, state: TimedWorker) -> bool:
        """Return True if the end of a transfer matters to nobody: its receiver is lost for good."""
        if transfer.up or not state.protocol.asks or self.conditions is None:
            return False
        return self.conditions.thaw(transfer.worker) == math.inf

    def _arrive(self, worker: int, state: TimedWorker, sent: float) -> None:
        if sent == EXACT:
            arrived: Arrived | None = state.waiting.popleft()
        elif self.transfers is not None:
            self.transfers.resume(self.now, worker)  # its worker has thawed
            return
        else:
            arrived = self.receive(worker, keep=not state.up.instant)
            if arrived is not None:
                exact = state.up.send(sent, arrived.size)
                if exact > self.now:
                    state.waiting.append(arrived)
                    self.events.add(exact, ARRIVED, worker, EXACT)
                    return
        if arrived is None:
            self.remove(worker)
            return
        self._take_in(worker, state, arrived)

    def _take_in(self, worker: int, state: TimedWorker, arrived: Arrived) -> None:
        service = self._service
        service.count(worker, arrived.sizes[0])
        try:
            service.pushed(worker, arrived.push, self.now, self._stage.host_time())
        except ValueError as error:
            self._stage.refuse(worker, error)
            self.remove(worker)
            return
        for size in arrived.sizes[1:]:
            service.count(worker, size)
        if arrived.push.update is not None and self.strikes is not None:
            self.strikes.pushed(worker)
        if state.protocol.asks and worker in self.workers:
            self.events.add(self.now, ASKED, worker)
        else:
            self._time_silence(worker, state)
        self.send_due()

    def receive(self, worker: int, keep: bool) -> Arrived | None:
        """Return the next message of a worker, or None if it is gone; see ``Stage.receive``."""
        early = None if self.conditions is None else self.conditions.early(worker)
        return self._stage.receive(worker, keep) if early is None else early

    def come_back(self, worker: int, begun: int, up: Line, down: Line) -> None:
        """Add a worker that was removed and has joined the service again.

        Args:
            begun: a number above that of its earlier computations.
        """
        self.workers[worker] = TimedWorker(self._protocol(), up, down, begun)

    # -- silence, departures and answers

    def _time_silence(self, worker: int, state: TimedWorker) -> None:
        """Check a worker's silence when it will have lasted too long, unless a check comes earlier."""
        deadline = self._service.deadline(worker)
        if deadline is not None and deadline < state.timed:
            state.timed = deadline
            self.events.add(deadline, SILENT, worker)

    def _look_at_silence(self, worker: int, state: TimedWorker) -> None:
        if self.now != state.timed:
            return  # an earlier check was posted after this one
        state.timed = math.inf
        deadline = self._service.deadline(worker)
        if deadline is None or deadline > self.now:
            self._time_silence(worker, state)
            return
        self._service.suspect(worker, self.now)
        self.send_due()  # others may have waited for the suspected worker

    def clear_ahead(self, state: TimedWorker) -> None:
        """Note that the end which a worker was told ahead has come, or never will."""
        state.ahead = False
        self._ahead -= 1

    def remove(self, worker: int) -> None:
        """Remove a worker that is gone; others may have waited for it."""
        state = self.workers.pop(worker)
        if state.ahead:
            self.clear_ahead(state)
        if self.transfers is not None:
            self.transfers.drop(self.now, worker)
        for arrived in state.waiting:  # sent, but too late to be an update
            self.count_late(worker, arrived)
        self._service.leave(worker)
        self.send_due()

    def send_due(self) -> None:
        """Send parameters to the workers that are due."""
        for worker in self._service.due(self._has_room, self.now):
            size = self._stage.answer(worker)
            self._service.sent(worker, self.now)
            state = self.workers[worker]
            self._time_silence(worker, state)
            version = self._service.half.version
            if self.transfers is not None:
                transfer = Transfer(worker, up=False, size=size, version=version)
                self.transfers.begin(self.now, transfer)
                continue
            arrival = state.down.send(self.now, size)
            self.events.add(arrival, PARAMETERS, worker, version)
            self.announce_room(worker, state)

    def announce_room(self, worker: int, state: TimedWorker) -> None:
        """Have a worker that is sent every version sent the newest when its downlink is free."""
        if self.transfers is None and state.down.free > self.now and not state.protocol.asks:
            self.events.add(state.down.free, FREE, worker)

    def _has_room(self, worker: int) -> bool:
        """Return True if what a worker was sent before has left its downlink."""
        if self.transfers is not None:
            return self.transfers.has_room(worker)
        return self.workers[worker].down.free <= self.now

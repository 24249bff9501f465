"""The order of events around parameter servers, under the virtual clock.

Durations are drawn, so when a worker finishes does not depend on what it computes, and all of them
compute meanwhile. Only the time at which a message has *arrived* may depend on its size, and then the
clock waits for its sender.

A worker that is sent every version is sent the newest when its downlink is free: versions that became
old in the queue are not sent.

Each of several servers has a part of the parameters and a service of its own. They do not know of one
another: only a worker brings them together, which computes with all parts (``training.gathering``).
With one server a conversation's number is its worker's.

An aggregator is one of the services below and one of the workers above. What it computes is what its
service combines, so the clock does not draw how long that takes: an object of ``aggregators`` tells it
when a combination has closed.

``events`` says which of two events at one moment comes first. Where faults may strike, the clock
consults two objects: the workers' ``Conditions`` about each event, and the ``Strikes`` after it.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial

from testbed.clock.aggregator_interface import Aggregators
from testbed.clock.conversations import Conversations
from testbed.clock.event_clock import LATEST, EventClock
from testbed.clock.events import (
    ARRIVED,
    ASKED,
    EXACT,
    EXPIRED,
    FAULT,
    FINISHED,
    FREE,
    PARAMETERS,
    SILENT,
    STOPPED,
)
from testbed.clock.fault_interface import Conditions, Strikes
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.clock.stage import Arrived, Stage
from testbed.clock.timed_workers import Devices, TimedWorker
from testbed.clock.transfers import Line
from testbed.engine.events import (
    Coming,
    Compute,
    Computed,
    Event,
    Job,
    Received,
    Report,
    Send,
    Stopped,
)
from testbed.training.parameter_service import ParameterService
from testbed.wire.frames import HEADER

AHEAD = 16
"""The number of computations whose certain end may be told before the clock gets there.

Enough that the host never waits for a message, few enough that bytes pass in the clock's order.
"""


class StarClock(EventClock):
    """Runs the events of one run.

    Attributes:
        workers: the workers that take part, by number.
        conditions, strikes: None in a run without faults.
        aggregators: None in a run without them.
        conversations: the numbers of which worker talks to which server.
    """

    not_saved = frozenset({"conversations", "_services", "_stage", "_busy", "_role"})
    nothing_follows = "no worker will push any longer"

    def __init__(
        self, services: Sequence[ParameterService], stage: Stage, devices: Devices
    ) -> None:
        """Prepare the clock of a run without faults.

        Args:
            services: one for each server; with several there are transfers.
        """
        super().__init__(devices.transfers)
        self.conversations = devices.conversations or Conversations(len(services))
        self.conditions: Conditions | None = None
        self.strikes: Strikes | None = None
        self.aggregators: Aggregators | None = None
        self._services = services
        self._stage = stage
        self._busy = devices.busy
        self._role = devices.role
        servers = self.conversations.servers
        self.workers = {
            worker: TimedWorker.joining(devices.role(worker), servers, *devices.lines(worker))
            for worker in devices.workers
        }
        self._stopped = [False] * len(services)
        # By server: the time limit that is among the events, or was.
        self._limits: list[float | None] = [None] * len(services)
        self._certain: list[tuple[float, int, int]] = []
        self._ahead = 0

    def _begin(self) -> None:
        if not self._services[0].begun:
            if self.strikes is not None:
                self.strikes.begin()
            for server, service in enumerate(self._services):
                self._stage.record(server, service.begin())
            self.send_due()

    @property
    def finished(self) -> bool:
        """True if the run's updates are complete at every server."""
        return all(service.finished for service in self._services)

    def has_any_but_faults(self) -> bool:
        """Return True if anything but faults is to come, and not too late."""
        transfers = math.inf if self.transfers is None else self.transfers.next_end
        return transfers <= LATEST or self.events.has_any_but_faults(LATEST)

    def acting(self) -> Iterator[int]:
        """Yield the workers of which anything is to come, and not too late; a worker may come twice.

        Of aggregators only what they send counts: what they are sent is of no use without devices.
        """
        for rank, number in self.events.but_faults(LATEST):
            if rank == EXPIRED:
                yield from self._waiting_for(number)
                continue
            worker = self.conversations.worker(number)
            is_sent = rank in (FINISHED, ARRIVED) or self.conversations.below(worker) is None
            if worker in self.workers and is_sent:
                yield worker
        if self.transfers is not None and self.transfers.next_end <= LATEST:
            for transfer in self.transfers.under_way():
                worker = self.conversations.worker(transfer.conversation)
                if transfer.up or self.conversations.below(worker) is None:
                    yield worker

    def _waiting_for(self, server: int) -> Iterator[int]:
        """Yield the workers that may send something when a server's time limit is over."""
        above = self.conversations.above(server)
        yield from self.workers if above is None else {above} & self.workers.keys()

    def drain(self) -> None:
        """Count the messages that workers were told to send and that come too late for an update."""
        for transfer in () if self.transfers is None else self.transfers.uploads():
            self._drain(transfer.conversation, is_received=transfer.size is not None)
        for _, rank, number, what in self.events.in_order():
            worker = self.conversations.worker(number)
            if worker not in self.workers:
                continue
            if rank == ARRIVED and (what == EXACT or self.transfers is None):
                self._drain(number, is_received=what == EXACT)
            elif rank == FINISHED and self.workers[worker].ahead:
                for one in self.conversations.of_worker(worker):
                    self._drain(one, is_received=False, is_sent=True)

    def _drain(self, number: int, *, is_received: bool, is_sent: bool = False) -> None:
        """Count a late message; one that is yet to be made is not, if its worker is cut off."""
        worker, place = self._place(number)
        arrived: Arrived | None = None
        if is_received:
            arrived = self.workers[worker].waiting[place].popleft()
        elif is_sent or self.conditions is None or not self.conditions.is_cut_off(worker):
            arrived = self.receive(number, keep=False)
        if arrived is not None:
            self.count_late(number, arrived)

    def _ends(self, conversation: int) -> tuple[int, int]:
        """Return the worker and the server of a conversation."""
        return self.conversations.worker(conversation), self.conversations.server(conversation)

    def _place(self, conversation: int) -> tuple[int, int]:
        """Return the worker of a conversation, and the conversation's place among the worker's."""
        return self.conversations.worker(conversation), self.conversations.place(conversation)

    def count_late(self, conversation: int, arrived: Arrived) -> None:
        """Count a message that comes too late for an update."""
        worker, server = self._ends(conversation)
        self._services[server].count_late(worker, 0, arrived.payload_bytes)
        self._services[server].count(worker, arrived.size)

    def _handle(self, time: float, rank: int, number: int, what: float) -> None:
        if rank == FAULT:
            assert self.strikes is not None
            self.now = time
            self.strikes.strike(number)
            return
        if rank == EXPIRED:
            self._expire(time, number)
        elif self.conditions is None or not self.conditions.delays(time, rank, number, what):
            self._take_place(time, rank, number, what)
        if self.strikes is not None:  # an update also results when a worker is given up
            self.strikes.strike_at_iteration()

    def _take_place(self, time: float, rank: int, number: int, what: float) -> None:
        worker, server = self._ends(number)
        state = self.workers.get(worker)
        if state is None:
            return
        self.now = time
        if rank <= PARAMETERS:
            place = self.conversations.place(number)
            event: Event = Stopped(place)
            if what != STOPPED:
                self._stage.arrived(number, int(what))
                event = Received(place, int(what))
            for action in state.role.handle(event):
                if isinstance(action, Compute):
                    self._compute(worker, state, action.job)
        elif rank == FINISHED:
            if what == state.begun:  # otherwise it was interrupted
                self.computing.finish(worker)
                self.finish(worker, state)
        elif rank == ARRIVED:
            self._arrive(number, state, what)
        elif rank == SILENT:
            self._look_at_silence(number, state)
        else:
            self._ask_or_free(worker, server, rank)

    def _expire(self, time: float, server: int) -> None:
        """Let the time limit of a server, or of an aggregator's combination, be over."""
        above = self.conversations.above(server)
        if above is not None and above not in self.workers:
            return
        self.now = time
        service = self._services[server]
        deadline = service.half.deadline
        if deadline is not None and deadline <= time and not service.finished:
            self._stage.record(server, service.expire())
            self.send_due()

    def _ask_or_free(self, worker: int, server: int, rank: int) -> None:
        """Let a worker ask for parameters, or its link have room again."""
        if rank == ASKED and not self._stopped[server]:
            self._stage.record(server, self._services[server].asked(worker, self.now))
        elif rank == FREE and self.conditions is not None:
            self.conditions.freed(worker)
        self.send_due()

    def _compute(self, worker: int, state: TimedWorker, job: Job) -> None:
        if self.aggregators is not None and self.conversations.below(worker) is not None:
            self.aggregators.adopt(worker, job.bases[0])
            return
        if self.conditions is not None:
            self.conditions.begins(worker)
        state.begun += 1
        state.finished = False
        self._stage.compute(worker, job.bases)
        computing, waiting = self._busy(worker, self.now, state.role.gradients)
        seconds = computing + waiting
        if self.conditions is not None:
            factor = self.conditions.factor(worker)
            computing, seconds = computing * factor, seconds * factor
        self.computing.begin(worker, self.now, computing)
        end = self.now + seconds
        self.events.add(end, FINISHED, self.conversations.of_worker(worker)[0], state.begun)
        if state.role.certain:
            heapq.heappush(self._certain, (end, worker, state.begun))

    def _prepare(self) -> None:
        """Announce the ends of computations that are certain."""
        while self._certain and self._ahead < AHEAD:
            _, worker, begun = heapq.heappop(self._certain)
            state = self.workers.get(worker)
            if state is None or state.begun != begun or state.finished:
                continue
            if self.conditions is None or self.conditions.is_reachable(worker):
                state.ahead = True
                self._ahead += 1
                self._stage.finish(worker, ())

    def finish(self, worker: int, state: TimedWorker) -> None:
        """Let a worker send what it has computed, or an aggregator what it has combined."""
        assert state.role.job is not None
        reports, following = [], None
        for action in state.role.handle(Computed(state.role.job)):
            if isinstance(action, Compute):
                following = action.job
            elif isinstance(action, Send) and isinstance(action.message, Report):
                reports.append(action.conversation)
        if state.ahead:
            self.clear_ahead(state)
        else:
            self._stage.finish(worker, reports)
        state.finished = True
        if self.transfers is not None:
            for number in self.conversations.of_worker(worker):
                self.transfers.begin(self.now, Transfer(number, up=True, size=None))
        else:
            earliest = state.up.earliest(self.now, HEADER.size)
            self.events.add(earliest, ARRIVED, worker, self.now)
        if following is not None:
            self._compute(worker, state, following)

    def _end_transfer(self, transfers: SharedTransfers, time: float, transfer: Transfer) -> None:
        """End the next transfer, or wait for the message if its size is not known yet."""
        number = transfer.conversation
        worker, place = self._place(number)
        state = self.workers[worker]
        if self._is_unheard(worker, transfer, state):
            transfers.end(time, transfer)
            return
        self.now = time
        if transfer.size is None and self.conditions is not None:
            thaw = self.conditions.thaw(worker)
            if thaw > self.now:
                transfers.suspend(self.now, transfer)
                if thaw < math.inf:
                    self.events.add(thaw, ARRIVED, number, thaw)
                return
        if transfer.size is None:
            arrived = self.receive(number, keep=True)
            if arrived is None:
                self.remove(worker)
                return
            state.waiting[place].append(arrived)
            transfers.measured(transfer, arrived.size)
            if transfers.next_end > self.now or transfers.ending() is not transfer:
                return
        arrival = transfers.end(self.now, transfer)
        if transfer.up:
            self.events.add(arrival, ARRIVED, number, EXACT)
            return
        self.events.add(arrival, PARAMETERS, number, transfer.version)
        if not state.role.asks:
            self.events.add(self.now, FREE, number)

    def _is_unheard(self, worker: int, transfer: Transfer, state: TimedWorker) -> bool:
        """Return True if the end of a transfer matters to nobody: its receiver is lost for good."""
        if transfer.up or not state.role.asks or self.conditions is None:
            return False
        return self.conditions.thaw(worker) == math.inf

    def _arrive(self, number: int, state: TimedWorker, sent: float) -> None:
        worker, place = self._place(number)
        if sent == EXACT:
            arrived: Arrived | None = state.waiting[place].popleft()
        elif self.transfers is not None:
            self.transfers.resume(self.now, number)  # its worker has thawed
            return
        else:
            arrived = self.receive(number, keep=not state.up.instant)
            if arrived is not None:
                exact = state.up.send(sent, arrived.size)
                if exact > self.now:
                    state.waiting[place].append(arrived)
                    self.events.add(exact, ARRIVED, number, EXACT)
                    return
        if arrived is None:
            self.remove(worker)
            return
        self._take_in(number, state, arrived)

    def _take_in(self, number: int, state: TimedWorker, arrived: Arrived) -> None:
        worker, server = self._ends(number)
        service = self._services[server]
        late = service.finished
        push = arrived.push
        service.count(worker, arrived.sizes[0])
        if push is not None:
            try:
                entries = service.pushed(worker, push, self.now, self._stage.host_time())
            except ValueError as error:
                self._stage.refuse(number, error)
                self.remove(worker)
                return
            self._stage.record(server, entries)
        for size in arrived.sizes[1:]:
            service.count(worker, size)
        has_update = push is not None and push.update is not None
        if has_update and self.strikes and not (late or self.conversations.place(number)):
            self.strikes.pushed(worker)
        if self.aggregators is not None and not has_update:
            self.aggregators.rests(worker)
        elif arrived.asks and state.role.asks and worker in self.workers:
            self.events.add(self.now, ASKED, number)
        else:
            self._time_silence(number, state)
        self.send_due()

    def asks(self, worker: int, size: int) -> None:
        """Let a worker ask every server of its own, by a message of ``size`` bytes, at this moment."""
        for number in self.conversations.of_worker(worker):
            self._services[self.conversations.server(number)].count(worker, size)
            self.events.add(self.now, ASKED, number)

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        """Return the next message of a worker, or None if it is gone; see ``Stage.receive``."""
        early = None if self.conditions is None else self.conditions.early(conversation)
        return self._stage.receive(conversation, keep) if early is None else early

    def come_back(self, worker: int, begun: int, up: Line, down: Line) -> None:
        """Add a worker that was removed and has joined the services again.

        Args:
            begun: a number above that of its earlier computations.
        """
        state = TimedWorker.joining(self._role(worker), self.conversations.servers, up, down)
        state.begun = begun
        self.workers[worker] = state
        for number in self.conversations.of_worker(worker):
            server = self.conversations.server(number)
            if self._stopped[server]:  # its last parameters are all that it sends
                self._send(worker, server)
                self.events.add(self.now, PARAMETERS, number, STOPPED)

    # -- silence, departures and answers

    def _time_silence(self, number: int, state: TimedWorker) -> None:
        """Check a worker's silence when it will have lasted too long, unless a check comes earlier."""
        worker, server = self._ends(number)
        place, deadline = self.conversations.place(number), self._services[server].deadline(worker)
        if deadline is not None and deadline < state.timed[place]:
            state.timed[place] = deadline
            self.events.add(deadline, SILENT, number)

    def _look_at_silence(self, number: int, state: TimedWorker) -> None:
        (worker, server), place = self._ends(number), self.conversations.place(number)
        if self.now != state.timed[place]:
            return  # an earlier check was posted after this one
        state.timed[place] = math.inf
        deadline = self._services[server].deadline(worker)
        if deadline is None or deadline > self.now:
            self._time_silence(number, state)
            return
        if self._stopped[server]:
            return
        self._stage.record(server, self._services[server].suspect(worker, self.now))
        self.send_due()  # others may have waited for the suspected worker

    def clear_ahead(self, state: TimedWorker) -> None:
        """Note that the end which a worker was told ahead has come, or never will."""
        state.ahead = False
        self._ahead -= 1

    def remove(self, worker: int) -> None:
        """Remove a worker that is gone; others may have waited for it."""
        state = self.workers.pop(worker)
        self.retire(worker, state)
        if state.ahead:
            self.clear_ahead(state)
        if self.transfers is not None:
            self.transfers.drop(self.now, worker)
        for number in self.conversations.of_worker(worker):
            server = self.conversations.server(number)
            place = self.conversations.place(number)
            for arrived in state.waiting[place]:  # sent, but too late to be an update
                self.count_late(number, arrived)
            self._stage.record(server, self._services[server].leave(worker))
        self.send_due()

    def retire(self, worker: int, state: TimedWorker) -> None:
        """Keep account of what a worker has done that is gone."""
        self.computing.cut(worker, self.now)
        self.line_bytes.retire(worker, self.now, (state.up, state.down))

    def send_due(self) -> None:
        """Send parameters to the workers that are due, and note which servers have finished."""
        if self.aggregators is not None:
            self.aggregators.push_due()
        for server, service in enumerate(self._services):
            self._send_due(server, service)
            deadline = service.half.deadline
            if deadline is not None and deadline != self._limits[server]:
                self._limits[server] = deadline
                self.events.add(deadline, EXPIRED, server)
            if service.finished and not self._stopped[server]:
                self._stop(server)

    def _send_due(self, server: int, service: ParameterService) -> None:
        for worker in service.due(partial(self._has_room, server), self.now):
            self._send(worker, server)

    def _send(self, worker: int, server: int) -> None:
        """Send a worker a server's parameters."""
        number, service = self.conversations.between(worker, server), self._services[server]
        size = self._stage.answer(number)
        service.sent(worker, self.now)
        state = self.workers[worker]
        deque(state.role.handle(Coming(self.conversations.place(number))), maxlen=0)
        self._time_silence(number, state)
        version = service.half.version
        if self.transfers is not None:
            transfer = Transfer(number, up=False, size=size, version=version)
            self.transfers.begin(self.now, transfer)
            return
        arrival = state.down.send(self.now, size)
        self.events.add(arrival, PARAMETERS, number, version)
        self.announce_room(worker, state)

    def _stop(self, server: int) -> None:
        """Let no worker wait any more for a server whose updates are complete."""
        self._stopped[server] = True
        if self.aggregators is not None:
            self.aggregators.stop()
        if not self.finished:
            for worker in self.workers:
                number = self.conversations.between(worker, server)
                self.events.add(self.now, PARAMETERS, number, STOPPED)

    def announce_room(self, worker: int, state: TimedWorker) -> None:
        """Have a worker that is sent every version sent the newest when its downlink is free."""
        if self.transfers is None and state.down.free > self.now and not state.role.asks:
            self.events.add(state.down.free, FREE, worker)

    def _has_room(self, server: int, worker: int) -> bool:
        """Return True if what a worker was sent before by a server has left its downlink."""
        if self.transfers is not None:
            return self.transfers.has_room(self.conversations.between(worker, server))
        return self.workers[worker].down.free <= self.now

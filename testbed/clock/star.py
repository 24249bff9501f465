"""The order of events around parameter servers, under the virtual clock.

Durations are drawn, so when a worker finishes does not depend on what it computes, and all of them
compute meanwhile. Only the time at which a message has *arrived* may depend on its size, and then the
clock waits for its sender.

A worker that is sent every version is sent the newest when its downlink is free: versions that became
old in the queue are not sent.

Each of several servers has a part of the parameters and a service of its own. They do not know of one
another: only a worker brings them together, which computes with all parts (``training.gathering``), or
an aggregator, which serves all parts to its workers.

Each worker, server and aggregator has a role (``testbed.engine``), which decides for it. Those that
serve are told what happens, and then answer. An aggregator is one of the roles that serve, and one of
the workers of the server above. It combines in place of computing, so the clock draws no duration for
it.

``event_queue`` says which of two events at one moment comes first. Where faults may strike, the clock
consults two objects: the workers' ``conditions`` about each event, and the ``strikes`` after it.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from testbed.clock.conversations import Conversations
from testbed.clock.device_conditions import DeviceConditions
from testbed.clock.event_clock import LATEST, EventClock
from testbed.clock.event_queue import (
    ASKED,
    EXACT,
    EXPIRED,
    FINISHED,
    FREE,
    HANDLED,
    KEPT,
    READY,
    SERVED,
    SILENT,
    STOPPED,
    TAKEN,
    WAITED,
)
from testbed.clock.server_processors import Outgoing, ServerProcessors
from testbed.clock.serving_roles import ServingRoles
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.clock.stage import Arrived, Stage
from testbed.clock.struck_aggregators import StruckAggregators
from testbed.clock.timed_workers import Devices, TimedWorker
from testbed.clock.transfers import Line
from testbed.engine.aggregator import above
from testbed.engine.events import (
    Action,
    Closed,
    Coming,
    Compute,
    Computed,
    Due,
    Job,
    Received,
    Report,
    Send,
    Stopped,
    Token,
    What,
)
from testbed.training.parameter_service import ParameterService
from testbed.wire.frames import HEADER

_OF_PROCESSORS = frozenset({HANDLED, READY})
"""Ranks of events of a server's processor, whose number is the server's index."""
_SENT = frozenset({FINISHED, KEPT, SERVED})
"""Ranks of events of which a worker's message comes."""
AHEAD = 16
"""The number of computations whose certain end may be told before the clock gets there.

Enough that the host never waits for a message, few enough that bytes pass in the clock's order.
"""


class StarClock(EventClock[TimedWorker]):
    """Runs the events of one run.

    Attributes:
        devices: the workers that take part, and the aggregators.
        co_located: the number of workers, the first ones, with a server on their machine.
        conditions: None in a run without faults.
        struck: None in a run without aggregators, or without faults.
        processors: of the roles that serve; None where messages take them no time.
    """

    not_saved = frozenset(
        {"conversations", "struck", "_services", "_stage", "_busy", "_role", "co_located"}
    )
    nothing_follows = "no worker will push any longer"

    def __init__(
        self, services: Sequence[ParameterService], stage: Stage, devices: Devices
    ) -> None:
        """Prepare the clock of a run without faults.

        Args:
            services: one for each server; with several there are transfers.
        """
        super().__init__(devices.transfers, devices.background)
        self.conversations = devices.conversations or Conversations.with_all(
            1 + max(devices.workers), len(services)
        )
        self.conditions: DeviceConditions[TimedWorker] | None = None
        self.struck: StruckAggregators | None = None
        self.serving = ServingRoles(self, services, stage)
        self._services = services
        self._stage = stage
        self._busy = devices.busy
        self._role = devices.role
        self.co_located = devices.co_located
        self.processors: ServerProcessors | None = None
        if devices.costs is not None:
            held = [service.parameters for service in services]
            self.processors = ServerProcessors(devices.costs, held)
        self.devices = {
            worker: self._joining(worker, *devices.lines(worker)) for worker in devices.workers
        }
        self._certain: list[tuple[float, int, int]] = []
        self._ahead = 0

    def _joining(self, worker: int, up: Line, down: Line) -> TimedWorker:
        called = len(self.conversations.of_worker(worker))
        return TimedWorker.joining(self._role(worker), called, up, down)

    def _begin(self) -> None:
        if not self._services[0].begun:
            if self.strikes is not None:
                self.strikes.begin()
            self.serving.begin()

    @property
    def version(self) -> int:
        return self._services[0].half.version

    @property
    def finished(self) -> bool:
        return all(service.finished for service in self._services)

    def device(self, number: int) -> int:
        return self.conversations.worker(number)

    def acting(self) -> Iterator[int]:
        """Yield the workers of which anything is to come, and not too late; a worker may come twice.

        Of aggregators only what they send counts: what they are sent is of no use without devices.
        """
        for rank, number in self.events.but_faults(LATEST):
            if rank == EXPIRED:
                yield from self._waiting_for(number)
                continue
            if rank in _OF_PROCESSORS:
                yield from self._handled_for(number)
                continue
            worker = self.conversations.worker(number)
            if rank == FREE and worker < self.co_located:
                yield from self.devices  # any may wait for a message over its machine's link
                continue
            is_sent = rank in _SENT or self.conversations.below(worker) is None
            if worker in self.devices and is_sent:
                yield worker
        if self.transfers is not None and self.transfers.next_end <= LATEST:
            for transfer in self.transfers.under_way():
                worker = self.conversations.worker(transfer.conversation)
                if transfer.up or self.conversations.below(worker) is None:
                    yield worker

    def _waiting_for(self, server: int) -> Iterator[int]:
        """Yield the workers that may send something when a server's time limit is over."""
        above = self.conversations.above(server)
        yield from self.devices if above is None else {above} & self.devices.keys()

    def _handled_for(self, server: int) -> Iterator[int]:
        """Yield the workers whose messages a server's processor handles, now or later."""
        assert self.processors is not None
        for number, message in self.processors.tasks(server):
            worker = self.conversations.worker(number)
            is_sent = isinstance(message, Arrived) or self.conversations.below(worker) is None
            if worker in self.devices and is_sent:
                yield worker

    def drain(self) -> None:
        """Count the messages that workers were told to send and that come too late for an update."""
        for transfer in () if self.transfers is None else self.transfers.uploads():
            self._drain(transfer.conversation, is_received=transfer.size is not None)
        for worker in self.devices:
            self._drop_unhandled(worker)
        for _, rank, number, what in self.events.in_order():
            if rank not in _SENT:
                continue
            worker = self.conversations.worker(number)
            if worker not in self.devices:
                continue
            if rank == KEPT or (rank == SERVED and (what == EXACT or self.transfers is None)):
                self._drain(number, is_received=what == EXACT)
            elif rank == FINISHED and self.devices[worker].ahead:
                for one in self.conversations.of_worker(worker):
                    self._drain(one, is_received=False, is_sent=True)

    def _drain(self, number: int, *, is_received: bool, is_sent: bool = False) -> None:
        """Count a late message; one that is yet to be made is not, if its worker is cut off."""
        worker, place = self._place(number)
        arrived: Arrived | None = None
        if is_received:
            arrived = self.devices[worker].waiting[place].popleft()
        elif is_sent or self.conditions is None or not self.conditions.is_cut_off(worker):
            arrived = self.receive(number, keep=False)
        if arrived is not None:
            self.count_late(number, arrived)

    def ends(self, conversation: int) -> tuple[int, int]:
        return self.conversations.worker(conversation), self.conversations.server(conversation)

    def _place(self, conversation: int) -> tuple[int, int]:
        return self.conversations.worker(conversation), self.conversations.place(conversation)

    def count_late(self, conversation: int, arrived: Arrived) -> None:
        """Count a message that comes too late for an update."""
        worker, server = self.ends(conversation)
        self._services[server].count_late(worker, 0, arrived.payload_bytes)
        self._services[server].count(worker, arrived.size)

    def _handle(self, time: float, rank: int, number: int, what: float) -> None:
        if rank == EXPIRED or rank in _OF_PROCESSORS:
            if self.struck is None or not self.struck.delays_role(time, rank, number):
                self._take_place_at(time, rank, number)
        elif not self._is_delayed(time, rank, number, what):
            self._take_place(time, rank, number, what)

    def _is_delayed(self, time: float, rank: int, number: int, what: float) -> bool:
        """Return True if an event does not take place now, as one of its ends is struck."""
        if self.conditions is None:
            return False
        if self.conditions.delays(time, rank, number, what):
            return True
        return self.struck is not None and self.struck.delays(time, rank, number, what)

    def _take_place_at(self, time: float, rank: int, server: int) -> None:
        """Carry out an event of a server or of an aggregator, by its index, and of no worker."""
        if rank == EXPIRED:
            self._expire(time, server)
        else:
            self.now = time
            self._go_on(server, has_handled=rank == HANDLED)

    def _take_place(self, time: float, rank: int, number: int, what: float) -> None:
        worker, server = self.ends(number)
        state = self.devices.get(worker)
        if state is None:
            if rank == FREE and worker < self.co_located and self.conditions is not None:
                self.now = time
                self.conditions.freed(worker)  # its machine's link is its server's as well
            return
        self.now = time
        if rank in {WAITED, TAKEN}:
            self._receive(number, state, what)
        elif rank == FINISHED:
            if what != state.begun:  # it was interrupted
                return
            if state.held_up:
                self.events.add(time + state.held_up, FINISHED, number, what)
                state.held_up = 0.0
                return
            self.computing.finish(worker)
            self._finish(worker, state)
        elif rank in {KEPT, SERVED}:
            self._arrive(number, state, what)
        else:
            if rank == ASKED:
                self.serving.tell(server, Due(Token(What.ASKED, worker), time))
            elif rank == SILENT:
                self.serving.tell(server, Due(Token(What.SILENT, worker), what))
            elif self.conditions is not None:
                self.conditions.freed(worker)
            self.serving.settle()

    def _receive(self, number: int, state: TimedWorker, what: float) -> None:
        """Deliver parameters to a worker or an aggregator, or word that none will come any more."""
        (worker, place), version = self._place(number), int(what)
        if what != STOPPED:
            self._stage.arrived(number, version)
        below = self.conversations.below(worker)
        at = place if below is None else above(place)
        event = Stopped(at) if what == STOPPED else Received(at, version)
        if below is not None:
            self.serving.tell(below, event)
            self.serving.settle()
            return
        self._act(worker, state, state.role.handle(event))

    def _expire(self, time: float, server: int) -> None:
        """End the time limit of a server, or of an aggregator's combination."""
        above = self.conversations.above(server)
        if above is None or above in self.devices:
            self.now = time
            self.serving.tell(server, Due(Token(What.EXPIRED), time))
            self.serving.settle()

    def _compute(self, worker: int, state: TimedWorker, job: Job) -> None:
        factor = 1.0 if self.conditions is None else self.conditions.begins(worker)
        state.begun += 1
        state.finished = False
        self._stage.compute(worker, job.bases)
        computing, waiting = self._busy(worker, self.now, state.role.gradients)
        self.computing.begin(worker, self.now, computing * factor)
        state.held_up = 0.0
        if self.processors is not None and worker < self.co_located:
            self._hold_up(worker, self.processors.free(worker))
        end = self.now + (computing + waiting) * factor
        self.events.add(end, FINISHED, self.conversations.of_worker(worker)[0], state.begun)
        if state.role.sends_at_once:
            heapq.heappush(self._certain, (end, worker, state.begun))

    def _prepare(self) -> None:
        while self._certain and self._ahead < AHEAD:
            _, worker, begun = heapq.heappop(self._certain)
            state = self.devices.get(worker)
            if state is None or state.begun != begun or state.finished:
                continue
            if self.conditions is None or self.conditions.is_reachable(worker):
                state.ahead = True
                self._ahead += 1
                self._stage.finish(worker, ())

    def _finish(self, worker: int, state: TimedWorker) -> None:
        assert state.role.job is not None
        state.finished = True
        self._act(worker, state, state.role.handle(Computed(state.role.job)))

    def _act(self, worker: int, state: TimedWorker, actions: Iterable[Action]) -> None:
        """Do what a worker's role says: send what it has computed, and begin to compute."""
        sends, reports, following = False, [], None
        for action in actions:
            if isinstance(action, Compute):
                following = action.job
            elif isinstance(action, Send):
                sends = True
                if isinstance(action.message, Report):
                    reports.append(action.conversation)
        if sends:
            if state.ahead:
                self.clear_ahead(state)
            else:
                self._stage.finish(worker, reports)
            self.send_up(worker)
        if following is not None:
            self._compute(worker, state, following)

    def send_up(self, worker: int) -> None:
        if self.transfers is not None:
            for number in self.conversations.of_worker(worker):
                self.transfers.begin(self.now, Transfer(number, up=True, size=None))
        else:
            earliest = self.devices[worker].up.earliest(self.now, HEADER.size)
            self.events.add(earliest, SERVED, worker, self.now)

    def _end_transfer(self, transfers: SharedTransfers, time: float, transfer: Transfer) -> None:
        number = transfer.conversation
        worker, place = self._place(number)
        state = self.devices[worker]
        if self._is_unheard(worker, transfer, state):
            transfers.end(time, transfer)
            return
        self.now = time
        if transfer.size is None and self.conditions is not None:
            thaw = self.conditions[worker].frozen
            if thaw > self.now:
                transfers.suspend(self.now, transfer)
                if thaw < math.inf:
                    self.events.add(thaw, SERVED, number, thaw)
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
            self.events.add(arrival, SERVED, number, EXACT)
            return
        self.events.add(arrival, TAKEN, number, transfer.version)
        if not state.role.asks:
            self.events.add(self.now, FREE, number)

    def _is_unheard(self, worker: int, transfer: Transfer, state: TimedWorker) -> bool:
        """Return True if the end of a transfer matters to nobody: its receiver is lost for good."""
        if transfer.up or not state.role.asks or self.conditions is None:
            return False
        return self.conditions[worker].frozen == math.inf

    def _arrive(self, number: int, state: TimedWorker, sent: float) -> None:
        (worker, server), place = self.ends(number), self.conversations.place(number)
        if sent == EXACT:
            if self._keeps(number):
                return
            arrived: Arrived | None = state.waiting[place].popleft()
        elif self.transfers is not None:
            self.transfers.resume(self.now, number)  # its worker has thawed
            return
        else:
            waits = self.processors is not None or not state.up.instant or self.is_frozen(server)
            arrived = self.receive(number, keep=waits)
            if arrived is not None:
                exact = state.up.send(sent, arrived.size)
                if exact > self.now or self._keeps(number):
                    state.waiting[place].append(arrived)
                    if exact > self.now:
                        self.events.add(exact, SERVED, number, EXACT)
                    return
        if arrived is None:
            self.remove(worker)
        elif self.processors is None:
            self.serving.take_in(number, arrived)
        elif self.processors.arrive(server, number, arrived, self.now):
            self.events.add(self.now, READY, server)

    def _keeps(self, number: int) -> bool:
        """Return True if what has arrived at an aggregator waits there for its thaw."""
        return self.struck is not None and self.struck.keeps(number)

    def is_frozen(self, server: int) -> bool:
        return self.struck is not None and self.struck.is_frozen(server)

    def _go_on(self, server: int, *, has_handled: bool) -> None:
        """Do what a server's processor has handled, or have it begin with what is next."""
        assert self.processors is not None
        if not has_handled:
            is_over = self._services[server].finished
            end = self.processors.begin(server, self.now, is_over=is_over)
            if end is not None:
                self.events.add(end, HANDLED, server)
                self._hold_up(server, end)
            return
        task = self.processors.handled(server)
        self.events.add(self.now, READY, server)
        if task is None:
            return
        number, message = task
        if isinstance(message, Outgoing):
            self._leave(number, message.size, message.version)
            self.serving.settle()
        else:
            self.serving.take_in(number, message)

    def _hold_up(self, server: int, until: float) -> None:
        """Stop the computation of the worker on a server's machine while its processor is occupied."""
        if server >= self.co_located or until <= self.now:
            return
        frozen = 0.0 if self.conditions is None else self.conditions[server].frozen
        if frozen <= self.now and self.computing.is_under_way(server, self.now):
            self.devices[server].held_up += until - self.now
            self.computing.freeze(server, self.now, until)

    def receive(self, conversation: int, keep: bool) -> Arrived | None:
        """Return the next message of a worker, or None if it is gone; see ``Stage.receive``."""
        worker, place = self._place(conversation)
        early = self.devices[worker].early[place]
        return early.popleft() if early else self._stage.receive(conversation, keep)

    def come_back(self, worker: int, begun: int, up: Line, down: Line) -> None:
        """Add a worker that was removed and has joined the services again.

        Args:
            begun: a number above that of its earlier computations.
        """
        state = self._joining(worker, up, down)
        state.begun = begun
        self.devices[worker] = state
        for number in self.conversations.of_worker(worker):
            server = self.conversations.server(number)
            if self.serving.is_over(server):  # its last parameters are all that it sends
                self.answer(worker, server)
                self.events.add(self.now, TAKEN, number, STOPPED)

    def clear_ahead(self, state: TimedWorker) -> None:
        """Forget that a worker was told its computation's end ahead: that has come, or never will."""
        state.ahead = False
        self._ahead -= 1

    def remove(self, worker: int) -> None:
        state = self.devices.pop(worker)
        self.retire(worker, state)
        if state.ahead:
            self.clear_ahead(state)
        if self.transfers is not None:
            self.transfers.leave(self.now, worker)
        for number in self.conversations.of_worker(worker):
            place = self.conversations.place(number)
            for arrived in state.waiting[place]:  # sent, but too late to be an update
                self.count_late(number, arrived)
            self.serving.tell(self.conversations.server(number), Closed(worker))
        self.serving.settle()

    def retire(self, worker: int, state: TimedWorker) -> None:
        """Keep account of what a worker has done that is gone."""
        self.computing.cut(worker, self.now)
        self.line_bytes.retire(worker, self.now, (state.up, state.down))
        self._drop_unhandled(worker)

    def _drop_unhandled(self, worker: int) -> None:
        """Drop what servers have not handled of a worker's messages, and count it as late."""
        if self.processors is not None:
            for number in self.conversations.of_worker(worker):
                for arrived in self.processors.drop(self.conversations.server(number), number):
                    self.count_late(number, arrived)

    def answer(self, worker: int, server: int) -> None:
        number = self.conversations.between(worker, server)
        size, version = self._stage.answer(number), self._services[server].half.version
        place, below = self.conversations.place(number), self.conversations.below(worker)
        if below is None:
            deque(self.devices[worker].role.handle(Coming(place)), maxlen=0)
        else:
            self.serving.tell(below, Coming(above(place)))
        if self.processors is None:
            self._leave(number, size, version)
        elif self.processors.send(server, number, Outgoing(size, version)):
            self.events.add(self.now, READY, server)

    def _leave(self, number: int, size: int, version: int) -> None:
        worker = self.conversations.worker(number)
        state = self.devices[worker]
        if self.transfers is not None:
            transfer = Transfer(number, up=False, size=size, version=version)
            self.transfers.begin(self.now, transfer)
            return
        arrival = state.down.send(self.now, size)
        self.events.add(arrival, TAKEN, number, version)
        self.announce_room(worker, state)

    def stop(self, server: int) -> None:
        if not self.finished:
            for number in self.conversations.of_server(server):
                if self.conversations.worker(number) in self.devices:
                    self.events.add(self.now, TAKEN, number, STOPPED)

    def announce_room(self, worker: int, state: TimedWorker) -> None:
        """Have a worker that is sent every version sent the newest when its downlink is free."""
        if self.transfers is None and state.down.free > self.now and not state.role.asks:
            self.events.add(state.down.free, FREE, worker)

    def has_room(self, server: int, worker: int) -> bool:
        number = self.conversations.between(worker, server)
        if self.processors is not None and self.processors.is_sending(number):
            return False
        if self.transfers is not None:
            return self.transfers.has_room(number)
        return self.devices[worker].down.free <= self.now

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

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from testbed.checkpoints.stateful import Stateful
from testbed.clock import timed_workers
from testbed.clock.events import ARRIVED, EXACT, FINISHED, FREE, PARAMETERS, THAWED
from testbed.clock.stage import Arrived, FaultStage
from testbed.clock.star import StarClock
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
        early: messages that were received before they were sent, by the clock; for each conversation.
        lost: True if nothing more will come from it.
        away: its links while it is killed, and one more than the computations it had begun.
        slow: the faults that slow it down, by their strike's number and in the order in which they
            began.
        factor: the factor by which its durations are multiplied.
    """

    incarnation: int = 0
    frozen: float = 0.0
    owed: float = 0.0
    early: list[deque[Arrived]] = field(default_factory=list)
    lost: bool = False
    away: tuple[Line, Line, int] | None = None
    slow: dict[int, Fault] = field(default_factory=dict)
    factor: float = 1.0


STORED: tuple[type, ...] = (*timed_workers.STORED, Condition, Fault)
"""The classes in a clock's state, besides plain values and arrays."""


class WorkerConditions(Stateful):
    """The conditions of a run's workers: the clock consults them, and faults change them."""

    not_saved = frozenset({"_clock", "_services", "_stage"})

    def __init__(
        self, clock: StarClock, services: Sequence[ParameterService], stage: FaultStage
    ) -> None:
        """Begin with workers that are all well."""
        self._clock = clock
        self._services = services
        self._stage = stage
        of_worker = clock.conversations.of_worker
        self._conditions = {
            worker: Condition(early=[deque() for _ in of_worker(worker)])
            for worker in clock.workers
        }

    def __getitem__(self, worker: int) -> Condition:
        """Return a worker's condition."""
        return self._conditions[worker]

    @property
    def away(self) -> list[int]:
        """The killed workers that are to come back."""
        return [worker for worker, one in self._conditions.items() if one.away is not None]

    # -- what the clock asks

    def delays(self, time: float, rank: int, conversation: int, what: float) -> bool:
        """Return True if an event does not take place now; it was added again for later."""
        worker = self._clock.conversations.worker(conversation)
        condition = self._conditions[worker]
        if rank <= PARAMETERS and condition.frozen > time:
            self._put_off(condition.frozen, THAWED, conversation, what)
        elif rank == ARRIVED and what != EXACT and condition.frozen > time:
            # Not received yet: a later outage computes its time again, and it waits here once more.
            self._put_off(condition.frozen, ARRIVED, conversation, what)
        elif rank == FINISHED and condition.owed and self._is_computing(worker, what):
            self._put_off(time + condition.owed, FINISHED, conversation, what)
            condition.owed = 0.0
        else:
            return False
        return True

    def _put_off(self, time: float, rank: int, conversation: int, what: float) -> None:
        """Add an event for a later time; at an infinite time it never happens."""
        if time < inf:
            self._clock.events.add(time, rank, conversation, what)

    def _is_computing(self, worker: int, begun: float) -> bool:
        """Return True if ``begun`` is the worker's computation under way, not an interrupted one."""
        state = self._clock.workers.get(worker)
        return state is not None and state.begun == begun

    def factor(self, worker: int) -> float:
        """Return the factor by which a worker's durations are multiplied."""
        return self._conditions[worker].factor

    def begins(self, worker: int) -> None:
        """Note that a worker begins a computation, which no freeze has made late yet."""
        self._conditions[worker].owed = 0.0

    def is_reachable(self, worker: int) -> bool:
        """Return True if a worker receives what it is told."""
        return self._conditions[worker].frozen <= self._clock.now and not self.is_cut_off(worker)

    def is_cut_off(self, worker: int) -> bool:
        """Return True if the worker's link is down."""
        state = self._clock.workers.get(worker)
        return state is not None and state.up.down > self._clock.now

    def thaw(self, worker: int) -> float:
        """Return the time at which a worker's last freeze ends, in seconds."""
        return self._conditions[worker].frozen

    def freed(self, worker: int) -> None:
        """Let transfers pass a worker's link again, if it is up."""
        self._set_rates(worker)

    def _set_rates(self, worker: int) -> None:
        """Apply to transfers over shared links what faults have done to the worker's own link."""
        state = self._clock.workers.get(worker)
        if self._clock.transfers is not None and state is not None:
            pace = Pace.under(self._conditions[worker].slow.values())
            self._clock.transfers.set_rates(
                self._clock.now,
                worker,
                pace.uplink,
                pace.downlink,
                is_down=state.up.down > self._clock.now,
            )

    def early(self, conversation: int) -> Arrived | None:
        """Take a message that was received before it was sent, by the clock; None: there is none."""
        numbers = self._clock.conversations
        early = self._conditions[numbers.worker(conversation)].early[numbers.place(conversation)]
        return early.popleft() if early else None

    # -- what faults do to a worker, once its messages are received

    def fetch(self, worker: int) -> bool:
        """Receive what a worker was told to send before it is stopped; return False if it is gone."""
        state = self._clock.workers[worker]
        if not self.is_reachable(worker):
            return True  # done when it was stopped; nothing has got through since
        if self._clock.transfers is not None:
            for transfer in self._clock.transfers.unmeasured(worker):
                arrived = self._receive(transfer.conversation)
                if arrived is None:
                    return False
                self._clock.transfers.measured(transfer, arrived.size)
                place = self._clock.conversations.place(transfer.conversation)
                state.waiting[place].append(arrived)
            return self._fetch_early(worker)
        arrivals = self._clock.events.of(worker, ARRIVED)
        unread = [(time, sent) for time, sent in arrivals if sent != EXACT]
        exact: list[float] = []
        for _, sent in unread:
            arrived = self._receive(worker)
            if arrived is None:
                return False
            exact.append(state.up.send(sent, arrived.size))
            state.waiting[0].append(arrived)
        if not self._fetch_early(worker):
            return False
        self._clock.events.move(
            (worker,), (ARRIVED,), lambda time, what: None if what != EXACT else time
        )
        for (earliest, _), time in zip(unread, exact, strict=True):
            self._clock.events.add(max(earliest, time), ARRIVED, worker, EXACT)
        return True

    def _receive(self, conversation: int) -> Arrived | None:
        """Receive the next message of a worker, which is removed if it is gone."""
        arrived = self._clock.receive(conversation, keep=True)
        if arrived is None:
            self._clock.remove(self._clock.conversations.worker(conversation))
        return arrived

    def _fetch_early(self, worker: int) -> bool:
        """Receive what a worker was told to send ahead of the clock; return False if it is gone."""
        condition = self._conditions[worker]
        if self._clock.workers[worker].ahead and not any(condition.early):
            conversations = self._clock.conversations.of_worker(worker)
            for number, early in zip(conversations, condition.early, strict=True):
                arrived = self._receive(number)
                if arrived is None:
                    return False
                early.append(arrived)
        return True

    def freeze(self, worker: int, until: float) -> None:
        """Stop a worker until a time."""
        state, condition = self._clock.workers[worker], self._conditions[worker]
        if until <= condition.frozen:
            return
        if state.begun and not state.finished:
            begin = max(condition.frozen, self._clock.now)
            condition.owed += until - begin
            self._clock.computing.freeze(worker, begin, until)
        condition.frozen = until

    def cut_off(self, worker: int, until: float) -> None:
        """Take a worker's link down until a time."""
        state = self._clock.workers[worker]
        self._change_lines(
            worker, state.up.hold(self._clock.now, until), state.down.hold(self._clock.now, until)
        )
        if self._clock.transfers is not None:
            self._set_rates(worker)
            self._clock.events.add(until, FREE, self._clock.conversations.of_worker(worker)[0])

    def _change_lines(
        self, worker: int, up: Callable[[float], float], down: Callable[[float], float]
    ) -> None:
        """Give what is under way on a worker's links its new arrival times."""
        state = self._clock.workers[worker]
        conversations = self._clock.conversations.of_worker(worker)

        def again(time: float, sent: float) -> float:
            """Return when a message that was not received yet can have arrived."""
            return (
                time if self._clock.transfers is not None else state.up.earliest(sent, HEADER.size)
            )

        self._clock.events.move(
            conversations,
            (ARRIVED,),
            lambda time, what: max(
                self._clock.now, up(time) if what == EXACT else again(time, what)
            ),
        )
        self._clock.events.move(
            conversations, (PARAMETERS,), lambda time, what: max(self._clock.now, down(time))
        )
        self._clock.announce_room(worker, state)

    def slow(self, worker: int, strike: int, fault: Fault | None) -> None:
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
        if self._clock.transfers is not None:
            if worker in self._clock.workers and self.fetch(worker):
                self._set_rates(worker)
        elif condition.away is not None:
            up, down, _ = condition.away
            up.change(self._clock.now, pace.uplink)
            down.change(self._clock.now, pace.downlink)
        elif worker in self._clock.workers and self.fetch(worker):
            state = self._clock.workers[worker]
            ways = (
                state.up.change(self._clock.now, pace.uplink),
                state.down.change(self._clock.now, pace.downlink),
            )
            self._change_lines(worker, *ways)

    def lose(self, worker: int, arriving: bool) -> None:
        """Make a worker silent for good; what is under way from it arrives only if ``arriving``."""
        state, condition = self._clock.workers[worker], self._conditions[worker]
        condition.lost, condition.frozen, condition.owed = True, inf, 0.0
        self._clock.computing.cut(worker, self._clock.now)
        self._give_up(worker, arriving)
        if self._clock.transfers is not None and state.role.asks:
            for number in self._clock.conversations.of_worker(worker):
                self._clock.transfers.drop_downloads(self._clock.now, number)
        state.begun += 1  # so that the computation under way does not finish
        state.finished = True
        self._stage.lose(worker)

    def _give_up(self, worker: int, arriving: bool) -> None:
        """Count as late what a worker sent and will not arrive, and drop what it waits for."""
        state, condition = self._clock.workers[worker], self._conditions[worker]
        conversations = self._clock.conversations.of_worker(worker)
        for place, number in enumerate(conversations):
            if self._clock.transfers is not None:
                now = self._clock.now
                self._clock.transfers.drop_uploads(now, number, unmeasured_only=arriving)
            early, waiting = condition.early[place], state.waiting[place]
            if not arriving:
                early.extendleft(reversed(waiting))
                waiting.clear()
            while early:
                self._clock.count_late(number, early.popleft())
        if state.ahead:
            self._clock.clear_ahead(state)
        # The server's events about the worker stay: it does not know of the fault.
        self._clock.events.move(
            conversations,
            (THAWED, PARAMETERS, FINISHED, ARRIVED),
            lambda time, what: time if arriving and what == EXACT else None,
        )

    def kill(self, worker: int, until: float) -> None:
        """Kill a worker, which may come back at a time."""
        state, condition = self._clock.workers[worker], self._conditions[worker]
        self._give_up(worker, arriving=False)
        del self._clock.workers[worker]
        self._clock.retire(worker, state)
        if self._clock.transfers is not None:
            self._clock.transfers.drop(self._clock.now, worker)
        condition.frozen = condition.owed = 0.0
        condition.incarnation += 1
        condition.lost = until == inf
        if not condition.lost:
            condition.away = (state.up, state.down, state.begun + 1)
        for server, service in self._services_of(worker).items():
            self._stage.record(server, service.leave(worker))
        self._stage.killed(worker)

    def _services_of(self, worker: int) -> dict[int, ParameterService]:
        """Return the services that a worker talks to, by their servers."""
        numbers = self._clock.conversations
        servers = [numbers.server(number) for number in numbers.of_worker(worker)]
        return {server: self._services[server] for server in servers}

    def link_up(self, worker: int) -> float:
        """Return the time at which the link of a killed worker is up, in seconds."""
        away = self._conditions[worker].away
        assert away is not None
        return away[0].down

    def revive(self, worker: int) -> None:
        """Let a killed worker whose link is up join again; it is lost if it does not come."""
        condition = self._conditions[worker]
        assert condition.away is not None
        up, down, begun = condition.away
        condition.away = None
        sizes = self._stage.returned(worker, condition.incarnation)
        if sizes is None:
            condition.lost = True
            return
        up.forget(self._clock.now)
        down.forget(self._clock.now)
        services = self._services_of(worker)
        for service in services.values():
            service.join(worker, self._clock.now)
            for size in sizes:
                service.count(worker, size)
        self._clock.come_back(worker, begun, up, down)
        self._set_rates(worker)
        if self._clock.workers[worker].role.asks:
            for server, service in services.items():
                self._stage.record(server, service.asked(worker, self._clock.now))

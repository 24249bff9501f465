"""Workers that faults strike, under the virtual clock.

What a device was told to send before it was stopped, it sends: the message is received before the
device is stopped, and counts as late if it is not an update any more. No device is told ahead of the
clock while it is stopped or cut off, so that the clock never waits for one that cannot answer. A worker
that is frozen or cut off for good stays joined: the server cannot know.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf

from testbed.clock import fault_agenda, timed_workers
from testbed.clock.conversations import Way
from testbed.clock.device_conditions import Condition, DeviceConditions
from testbed.clock.event_clock import TimedDevice
from testbed.clock.event_queue import EXACT, FINISHED, FREE, KEPT, SERVED, TAKEN, WAITED
from testbed.clock.fault_strikes import FaultStrikes
from testbed.clock.stage import Arrived, Stage
from testbed.clock.star import StarClock
from testbed.clock.struck_aggregators import StruckAggregators
from testbed.clock.timed_workers import Devices, TimedWorker
from testbed.engine.events import Closed
from testbed.faults.fault import Fault
from testbed.faults.schedule import Schedule
from testbed.messages.fault_changes import FaultChange
from testbed.training.parameter_service import ParameterService
from testbed.wire.frames import HEADER

STORED: tuple[type, ...] = (*timed_workers.STORED, TimedDevice, Condition, *fault_agenda.STORED)
"""The classes in a clock's state, besides plain values and arrays."""


class WorkerConditions(DeviceConditions[TimedWorker]):
    """The conditions of a run's workers."""

    not_saved = frozenset({"_stage"})
    _clock: StarClock

    def __init__(self, clock: StarClock, stage: Stage) -> None:
        super().__init__(clock, stage.fault)
        self._stage = stage
        numbers = clock.conversations
        for device, one in self._conditions.items():
            one.shares_link = device < clock.co_located or numbers.below(device) is not None
        aggregated = any(numbers.below(device) is not None for device in clock.devices)
        clock.struck = StruckAggregators(clock, self) if aggregated else None
        # By killed worker: the computations that it had begun.
        self._begun: dict[int, int] = {}

    def _at_thaw(self, rank: int, what: float) -> int | None:
        if rank in {WAITED, TAKEN}:
            return WAITED
        # Not received yet: a later outage computes its time again, and it waits here once more.
        return SERVED if rank == SERVED and what != EXACT else None

    def _is_under_way(self, device: int, begun: float) -> bool:
        timed = self._clock.devices.get(device)
        return timed is not None and timed.begun == begun

    def _is_computing(self, device: int) -> bool:
        timed, struck = self._clock.devices[device], self._clock.struck
        if struck is not None and struck.is_handling(device):
            return True
        return bool(timed.begun) and not timed.finished

    def freeze(self, device: int, until: float) -> None:
        super().freeze(device, until)
        numbers = self._clock.conversations
        if numbers.below(device) is not None and until < inf:
            # It answers those that are due then, though nothing arrives.
            self._clock.events.add(until, FREE, numbers.of_worker(device)[0])

    # -- what a worker was told to send

    def fetch(self, device: int) -> bool:
        clock, timed = self._clock, self._clock.devices[device]
        if not self.is_reachable(device):
            return True  # done when it was stopped; nothing has got through since
        if clock.transfers is not None:
            for transfer in clock.transfers.unmeasured(device):
                arrived = self._receive(transfer.conversation)
                if arrived is None:
                    return False
                clock.transfers.measured(transfer, arrived.size)
                place = clock.conversations.place(transfer.conversation)
                timed.waiting[place].append(arrived)
            return self._fetch_early(device)
        unread = [one for one in clock.events.of(device, SERVED) if one[1] != EXACT]
        exact: list[float] = []
        for _, sent in unread:
            arrived = self._receive(device)
            if arrived is None:
                return False
            exact.append(timed.up.send(sent, arrived.size))
            timed.waiting[0].append(arrived)
        if not self._fetch_early(device):
            return False
        clock.events.move((device,), (SERVED,), lambda time, what: None if what != EXACT else time)
        for (earliest, _), time in zip(unread, exact, strict=True):
            clock.events.add(max(earliest, time), SERVED, device, EXACT)
        return True

    def _receive(self, conversation: int) -> Arrived | None:
        """Receive the next message of a worker, which is removed if it is gone."""
        arrived = self._clock.receive(conversation, keep=True)
        if arrived is None:
            self._clock.remove(self._clock.device(conversation))
        return arrived

    def _fetch_early(self, worker: int) -> bool:
        """Receive what a worker was told to send ahead of the clock; return False if it is gone."""
        timed = self._clock.devices[worker]
        if timed.ahead and not any(timed.early):
            conversations = self._clock.conversations.of_worker(worker)
            for number, early in zip(conversations, timed.early, strict=True):
                arrived = self._receive(number)
                if arrived is None:
                    return False
                early.append(arrived)
        return True

    # -- what faults do to a worker, once its messages are received

    def cut_off(self, device: int, until: float) -> None:
        transfers = self._clock.transfers
        if transfers is None:
            super().cut_off(device, until)
            return
        one, now = self[device], self._clock.now
        ways = transfers.over(device)
        before = [self._held_until(way) for way in ways]
        if one.shares_link:
            one.down = max(until, one.down)
        else:
            timed = self._clock.devices[device]
            timed.up.hold(now, until)
            timed.down.hold(now, until)
        for way, held in zip(ways, before, strict=True):
            # What another link on the way holds already is late only by what is added to that.
            if (by := self._held_until(way) - max(now, held)) > 0:
                self._delay(way, by)
        self.freed(device)
        self._await_link(device, until)

    def _held_until(self, way: Way) -> float:
        """Return when all links of devices on a way are up, in seconds: at most now if they are."""
        assert self._clock.transfers is not None
        return max((self._down_until(device) for device in self._devices_on(way)), default=0.0)

    def _devices_on(self, way: Way) -> list[int]:
        """Return the devices whose links a way passes."""
        assert self._clock.transfers is not None
        return [device for device, _ in self._clock.transfers.links_of(way)]

    def _down_until(self, device: int) -> float:
        """Return when the link of a device is up, in seconds: at most now if it is."""
        one, timed = self[device], self._clock.devices.get(device)
        if one.shares_link or timed is None:
            return one.down
        return timed.up.down

    def _delay(self, way: Way, by: float) -> None:
        """Have what has left the links of a way, and is under way on it, arrive later."""
        number, up = way
        now = self._clock.now

        def later(time: float, what: float) -> float:
            # What is not received yet has not left: its transfer stands still.
            return time if up and what != EXACT else max(now, time + by)

        self._clock.events.move((number,), (SERVED if up else TAKEN,), later)

    def _await_link(self, device: int, until: float) -> None:
        if self._clock.transfers is not None and until < inf:
            self._clock.events.add(until, FREE, self._clock.conversations.of_worker(device)[0])

    def _change_lines(
        self,
        device: int,
        up: Callable[[float], float] | None,
        down: Callable[[float], float] | None,
    ) -> None:
        clock, timed = self._clock, self._clock.devices[device]

        def again(sent: float) -> float:
            """Return when a message that was not received yet can have arrived."""
            return timed.up.earliest(sent, HEADER.size)

        if up is not None:
            clock.events.move(
                (device,),
                (SERVED,),
                lambda time, what: max(clock.now, up(time) if what == EXACT else again(what)),
            )
        if down is not None:
            clock.events.move((device,), (TAKEN,), lambda time, _: max(clock.now, down(time)))
        clock.announce_room(device, timed)

    def lose(self, device: int, fault: Fault) -> None:
        clock, timed, one = self._clock, self._clock.devices[device], self[device]
        if one.shares_link and fault.kind != "freeze":
            # It goes on as far as its own server lets it; none of the others gets any further, either.
            self.cut_off(device, inf)
            return
        one.lost, one.frozen, one.owed = True, inf, 0.0
        clock.computing.cut(device, clock.now)
        # What a frozen worker's kernel has arrives.
        self._give_up(device, arriving=fault.kind == "freeze")
        if clock.transfers is not None and timed.role.asks:
            clock.transfers.drop(clock.now, clock.conversations.ways(device, up=False))
        timed.begun += 1  # so that the computation under way does not finish
        timed.finished = True
        self._stage.lose(device)

    def _give_up(self, worker: int, *, arriving: bool) -> None:
        """Count as late what a worker sent and will not arrive, and drop what it waits for.

        Args:
            arriving: True if what is under way from it still arrives.
        """
        clock, timed = self._clock, self._clock.devices[worker]
        conversations = clock.conversations.of_worker(worker)
        for number, early, waiting in zip(conversations, timed.early, timed.waiting, strict=True):
            if clock.transfers is not None:
                clock.transfers.drop(clock.now, [(number, True)], unmeasured_only=arriving)
            if not arriving:
                early.extendleft(reversed(waiting))
                waiting.clear()
            while early:
                clock.count_late(number, early.popleft())
        if timed.ahead:
            clock.clear_ahead(timed)
        # The server's events about the worker stay: it does not know of the fault.
        clock.events.move(
            conversations,
            (WAITED, TAKEN, FINISHED, KEPT, SERVED),
            lambda time, what: time if arriving and what == EXACT else None,
        )

    def kill(self, device: int, until: float) -> None:
        clock, timed = self._clock, self._clock.devices[device]
        self._give_up(device, arriving=False)
        self._died(device, until)
        self._begun[device] = timed.begun
        del clock.devices[device]
        clock.retire(device, timed)
        if clock.transfers is not None:
            clock.transfers.leave(clock.now, device)
        for number in clock.conversations.of_worker(device):
            clock.serving.tell(clock.conversations.server(number), Closed(device))
        self._stage.killed(device)

    def revive(self, device: int, fault: Fault) -> float | None:
        """Have a killed worker join again, if it can greet; it is lost if it never can.

        Its own link is to be up, and those of all machines with what it greets, and no aggregator
        frozen.
        """
        clock, one = self._clock, self[device]
        timed = one.away
        assert timed is not None
        able = max([timed.up.down, *self._able_to_answer(device)])
        if able == inf:
            one.lost, one.away = True, None
            return None
        if able > clock.now:
            return able
        self.tell(fault, "end", [device])
        one.away = None
        sizes = self._stage.returned(device, one.incarnation)
        if sizes is None:
            one.lost = True
            return None
        timed.up.forget(clock.now)
        timed.down.forget(clock.now)
        clock.serving.join(device, sizes)
        clock.come_back(device, self._begun.pop(device) + 1, timed.up, timed.down)
        self.freed(device)
        self.tell_background(device)
        clock.serving.take_questions()
        return None

    def _able_to_answer(self, device: int) -> Iterator[float]:
        """Yield the times from which on what a worker greets can answer; at most now if it can."""
        clock, numbers = self._clock, self._clock.conversations
        for server in map(numbers.server, numbers.of_worker(device)):
            above = numbers.above(server)
            if above is not None:
                yield max(self[above].down, self[above].frozen)
            elif server < clock.co_located and server in self._conditions:
                yield self[server].down

    def settle(self) -> None:
        self._clock.serving.settle()  # others may have waited for the killed workers

    def server_killed(self, server: int, number: int, *records: FaultChange) -> None:
        self._stage.server_killed(server, number, *records)


def star_clock(
    services: Sequence[ParameterService], stage: Stage, devices: Devices, schedule: Schedule
) -> StarClock:
    """Make the clock of a run; a run without faults pays nothing for them."""
    clock = StarClock(services, stage, devices)
    if schedule.rules:
        clock.conditions = conditions = WorkerConditions(clock, stage)
        clock.strikes = FaultStrikes(clock, conditions, schedule)
    return clock

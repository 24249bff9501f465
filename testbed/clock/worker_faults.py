"""Workers that faults strike, under the virtual clock.

What a device was told to send before it was stopped, it sends: the message is received before the
device is stopped, and counts as late if it is not an update any more. No device is told ahead of the
clock while it is stopped or cut off, so that the clock never waits for one that cannot answer. A worker
that is frozen or cut off for good stays joined: the server cannot know.
"""

from collections.abc import Callable, Sequence
from math import inf

from testbed.clock import fault_agenda, timed_workers
from testbed.clock.device_conditions import Condition, DeviceConditions
from testbed.clock.event_clock import TimedDevice
from testbed.clock.event_queue import EXACT, FINISHED, FREE, SERVED, TAKEN, WAITED
from testbed.clock.fault_strikes import FaultStrikes
from testbed.clock.stage import Arrived, Stage
from testbed.clock.star import StarClock
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
        timed = self._clock.devices[device]
        return bool(timed.begun) and not timed.finished

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

    def _await_link(self, device: int, until: float) -> None:
        if self._clock.transfers is not None:
            self._clock.events.add(until, FREE, self._clock.conversations.of_worker(device)[0])

    def _change_lines(
        self,
        device: int,
        up: Callable[[float], float] | None,
        down: Callable[[float], float] | None,
    ) -> None:
        clock, timed = self._clock, self._clock.devices[device]
        conversations = clock.conversations.of_worker(device)

        def again(time: float, sent: float) -> float:
            """Return when a message that was not received yet can have arrived."""
            return time if clock.transfers is not None else timed.up.earliest(sent, HEADER.size)

        if up is not None:
            clock.events.move(
                conversations,
                (SERVED,),
                lambda time, what: max(clock.now, up(time) if what == EXACT else again(time, what)),
            )
        if down is not None:
            clock.events.move(conversations, (TAKEN,), lambda time, _: max(clock.now, down(time)))
        clock.announce_room(device, timed)

    def lose(self, device: int, fault: Fault) -> None:
        clock, timed, one = self._clock, self._clock.devices[device], self[device]
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
            (WAITED, TAKEN, FINISHED, SERVED),
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
        """Have a killed worker whose link is up join again; it is lost if it does not come."""
        clock, one = self._clock, self[device]
        timed = one.away
        assert timed is not None
        if timed.up.down > clock.now:
            return timed.up.down
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

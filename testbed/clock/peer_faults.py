"""Peers that faults strike, under the virtual clock.

Messages that arrive at a frozen peer wait there, and it takes them in at its thaw; what its kernel has
to send leaves all the same. A peer that is cut off computes on, as far as its half and its uplink let
it. Those that are frozen or cut off for good are lost, and the others go on sending to them.
"""

from collections.abc import Callable, Sequence
from math import inf

from testbed.clock import background, fault_agenda, rate_courses, shared_transfers, usage_counters
from testbed.clock.device_conditions import Condition, DeviceConditions
from testbed.clock.event_clock import TimedDevice
from testbed.clock.event_queue import AT_CORE, BACK, BEGIN, FREE, SILENT, TAKEN, WAITED
from testbed.clock.fault_strikes import FaultStrikes
from testbed.clock.mesh import OF_MESSAGES, Mesh, MeshClock, MeshStage, TimedPeer
from testbed.clock.traced_line import TracedLine
from testbed.clock.transfers import Line
from testbed.engine.events import Began, Job, Opened
from testbed.engine.peer import PeerState
from testbed.faults.fault import Fault
from testbed.faults.schedule import Schedule
from testbed.training.exchange import ExchangeService
from testbed.training.settings import Settings
from testbed.training.silence import Silence

STORED: tuple[type, ...] = (
    *(PeerState, Job, Silence, TimedDevice, Condition, Line, TracedLine),
    *(*rate_courses.STORED, *background.STORED),
    *(*shared_transfers.STORED, *usage_counters.STORED, *fault_agenda.STORED),
)
"""The classes in a clock's state, besides plain values and arrays."""
_AT_THAW = {TAKEN: WAITED, WAITED: WAITED, BEGIN: BEGIN, SILENT: SILENT}
"""The ranks that events of a frozen peer have at its thaw."""


class PeerConditions(DeviceConditions[TimedPeer]):
    """The conditions of a run's peers."""

    not_saved = frozenset({"_service", "_stage"})
    _clock: MeshClock

    def __init__(self, clock: MeshClock, service: ExchangeService, stage: MeshStage) -> None:
        super().__init__(clock, stage.fault)
        self._service, self._stage = service, stage
        # By killed peer: the fault whose end brings it back, and when its process would have looked
        # at those that it waited for.
        self._killed_by: dict[int, Fault] = {}
        self._looks: dict[int, float] = {}
        # The peers whose thaw the stage was not told yet.
        self._frozen: set[int] = set()

    def delays(self, time: float, rank: int, number: int, what: float) -> bool:
        self._thaw_due()
        peer = self._clock.device(number)
        if rank == BACK:
            self._back(peer)
            return True
        if self[peer].lost and rank in OF_MESSAGES:
            return True  # it takes nothing in any more
        return super().delays(time, rank, number, what)

    def _at_thaw(self, rank: int, what: float) -> int | None:
        return _AT_THAW.get(rank)

    def _is_computing(self, device: int) -> bool:
        return self._clock.devices[device].role.state is PeerState.COMPUTING

    def _thaw_due(self) -> None:
        """Thaw the peers whose freeze has ended.

        Not at the end of a freeze itself: another one may begin, or end, at the same moment.
        """
        for peer in sorted(self._frozen):
            if self[peer].frozen <= self._clock.now:
                self._frozen.remove(peer)
                self._stage.thaw(peer)

    # -- faults

    def prepare(self, fault: Fault, struck: Sequence[int]) -> None:
        """Have the others forget killed peers; have what others sent reach their kernels."""
        if fault.kind == "kill":
            for peer in struck:
                self._stage.kill(peer)
                self._clock.forget(peer)
        elif fault.kind != "slow":
            self._stage.stop(struck)

    def freeze(self, device: int, until: float) -> None:
        super().freeze(device, until)
        if device not in self._frozen:
            self._frozen.add(device)
            self._stage.freeze(device)

    def lose(self, device: int, fault: Fault) -> None:
        """Make a peer silent for good: what its kernel has leaves it unless it is cut off."""
        clock, one, timed = self._clock, self[device], self._clock.devices[device]
        one.lost = True
        if fault.kind == "freeze":
            self.freeze(device, inf)
        else:
            one.frozen = inf  # what it computes is of no use
            timed.up.down = timed.down.down = inf
            clock.drop(clock.sent_by(device), (AT_CORE,))
            if clock.transfers is not None:
                ways = clock.conversations.ways(device, up=True)
                for transfer in clock.transfers.drop(clock.now, ways):
                    clock.has_left(transfer)
            self._absorb(device)
            self.freed(device)
        clock.stop(device)

    def kill(self, device: int, until: float) -> None:
        clock = self._clock
        self._died(device, until)
        self._looks[device] = clock.devices[device].role.look
        self._frozen.discard(device)
        clock.drop(clock.sent_by(device), OF_MESSAGES)
        clock.drop(clock.sent_to(device), OF_MESSAGES)
        clock.leave(device)

    # -- links

    def _change_lines(
        self,
        device: int,
        up: Callable[[float], float] | None,
        down: Callable[[float], float] | None,
    ) -> None:
        clock = self._clock
        sent, coming = clock.sent_by(device), clock.sent_to(device)
        if up is not None:
            clock.events.move(sent, (AT_CORE,), lambda time, _: max(clock.now, up(time)))
        if down is not None:
            clock.events.move(coming, (TAKEN,), lambda time, _: max(clock.now, down(time)))
        if up is not None:
            begin = clock.devices[device].free_from(clock.now)
            clock.events.move({coming[0]}, (BEGIN,), lambda _time, _what: begin)

    def _await_link(self, device: int, until: float) -> None:
        self._absorb(device)
        self._clock.add(until, FREE, device)

    def _absorb(self, peer: int) -> None:
        """Release the senders of what is on its way to a peer whose link is down: kernels keep it.

        This is about shared links, where a transfer leaves its sender only as fast as it arrives.
        """
        if self._clock.transfers is not None:
            for transfer in self._clock.transfers.toward(peer):
                self._clock.has_left(transfer)
                transfer.version = 0

    # -- killed peers that come back

    def revive(self, device: int, fault: Fault) -> None:
        self._killed_by[device] = fault
        self._clock.add(self._clock.now, BACK, device)

    def _back(self, peer: int) -> None:
        """Bring a killed peer back, once it and all others can talk."""
        clock, one = self._clock, self[peer]
        away = one.away
        assert away is not None
        others = [
            other
            for other in clock.conversations.neighbours(peer)
            if other in clock.devices and not self[other].lost
        ]
        links_up = (clock.devices[other].up.down for other in others)
        thaws = (self[other].frozen for other in others)
        when = max(away.up.down, *links_up, *thaws, 0.0)
        if when > clock.now:
            clock.add(when, BACK, peer)
            return
        one.away = None
        record = self.record(self._killed_by.pop(peer), "end", [peer])
        if not self._stage.come_back(peer, others, record):
            one.lost = True
            return
        for line in (away.up, away.down):
            line.forget(clock.now)
        for other in others:
            clock.tell(other, clock.devices[other].role, Opened(peer))
        self._stage.record(self._service.returned(peer, others, clock.now))
        role = clock.new_role(peer)
        # As the earlier process would have: what it has waited for may be due later than its own.
        role.look = self._looks.pop(peer)
        clock.devices[peer] = clock.timed(away.up, away.down, role)
        clock.tell(peer, role, Began())
        self.freed(peer)
        self.tell_background(peer)


def mesh_clock(
    settings: Settings,
    service: ExchangeService,
    stage: MeshStage,
    busy: Callable[[int, float], tuple[float, float]],
) -> MeshClock:
    """Return the clock of a run of peers, with its faults if there are any."""
    clock = MeshClock(service, stage, Mesh.of(settings, busy))
    schedule = settings.schedule()
    if schedule.rules:
        add_faults(clock, service, stage, schedule)
    return clock


def add_faults(
    clock: MeshClock, service: ExchangeService, stage: MeshStage, schedule: Schedule
) -> None:
    """Give a clock the faults of a schedule, which strike its peers."""
    clock.conditions = conditions = PeerConditions(clock, service, stage)
    clock.strikes = FaultStrikes(clock, conditions, schedule, "step")

"""The order of events among peers, under the virtual clock.

Where peers share links, messages are transfers (``testbed.clock.shared_transfers``): all that a peer
sends leaves at once, and shares its uplink. A message has left when its transfer ends. Where every peer
has a link to itself, a message takes its sender's uplink and then its receiver's downlink, on each of
which it waits for those before it.
"""

import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from testbed.checkpoints.stateful import State
from testbed.clock.background import Background, background
from testbed.clock.conversations import PeerConversations
from testbed.clock.device_conditions import DeviceConditions
from testbed.clock.event_clock import LATEST, EventClock, TimedDevice
from testbed.clock.event_queue import AT_CORE, BEGIN, FINISHED, FREE, SILENT, TAKEN, WAITED
from testbed.clock.lines import lines
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.clock.transfers import Line
from testbed.engine.events import (
    At,
    Began,
    Closed,
    Compute,
    Computed,
    Due,
    End,
    OfPeer,
    Tell,
    Token,
    ToPeer,
    UpdateArrived,
    What,
    WhenLeft,
)
from testbed.engine.peer import Peer, PeerHands
from testbed.messages.fault_changes import FaultChange
from testbed.training import computation
from testbed.training.exchange import Answered, ExchangeService, Step, Told
from testbed.training.peer_bytes import Message
from testbed.training.service_entries import Entry
from testbed.training.settings import Settings

_DEVICES = "peers"
OF_MESSAGES = (AT_CORE, WAITED, TAKEN)
"""Ranks of events of messages, whose numbers are those of a receiver and a sender."""
_RANKS = {What.BEGIN: BEGIN, What.SILENT: SILENT}
_DUE = {rank: Due(Token(what)) for what, rank in _RANKS.items()}


class MeshStage(Protocol):
    """The peers' processes, as the clock needs them."""

    def hands(self, peer: int) -> PeerHands:
        """Return what carries out what the role of a peer's present process decides."""

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began."""

    def record(self, entries: Sequence[Entry]) -> None:
        """Record what the service has returned."""

    # -- faults

    def kill(self, peer: int) -> None:
        """Kill a peer; what it has under way to the others is lost as they forget it."""

    def come_back(self, peer: int, others: Sequence[int], record: FaultChange) -> bool:
        """Make the end of a kill real, and write its record down: a new process takes the peer's place.

        Returns:
            False if it does not come.
        """

    def fault(self, record: FaultChange) -> None:
        """Make the beginning or the end of a fault real, and write its record down."""

    def stop(self, peers: Sequence[int]) -> None:
        """Have all that peers sent, by the clock, reach the others: they are frozen or cut off now."""

    def freeze(self, peer: int) -> None:
        """Freeze a peer: it carries out nothing that it is told before its thaw."""

    def thaw(self, peer: int) -> None:
        """Thaw a frozen peer, which then carries out what it was told."""


@dataclass(frozen=True, slots=True)
class Mesh:
    """The peers of a run, as its clock has to know them.

    Attributes:
        computing: the number of peers that compute, from 0 on; the others only answer.
        busy: returns the seconds that a peer computes, and those that it then waits, from a moment on;
            called once for each computation, in order.
        transfers: where peers share links, what passes them; the lines are not used then.
        background: the run's background traffic; None without.
        patience: the seconds for which a peer that is waited for may be silent; None: no limit.
        queue: the rounds whose messages may wait to leave a peer while it computes; inf: any.
    """

    neighbours: Sequence[Sequence[int]]
    computing: int
    busy: Callable[[int, float], tuple[float, float]]
    lines: Callable[[int], tuple[Line, Line]]
    transfers: SharedTransfers | None = None
    background: Background | None = None
    patience: float | None = None
    queue: float = 1

    @classmethod
    def of(cls, settings: Settings, busy: Callable[[int, float], tuple[float, float]]) -> "Mesh":
        neighbours = computation.neighbours(settings)
        shared, beside = bool(settings.network.route_of), background(settings)
        return cls(
            neighbours,
            computation.computing(settings),
            busy,
            lambda peer: (
                (Line(None), Line(None)) if shared else lines(settings, peer, peer, beside)
            ),
            SharedTransfers(settings, PeerConversations(neighbours), beside) if shared else None,
            beside,
            settings.timing.suspect_after,
            math.inf if settings.send_queue is None else settings.send_queue,
        )


@dataclass(slots=True)
class TimedPeer(TimedDevice):
    """One peer, as the clock sees it.

    The uplink's marks are the times when what it sent in its last steps has left, the last one first:
    one more than may wait. It has none if any number may.

    Attributes:
        queue: the steps whose messages may wait to leave while it computes; inf: any.
        leaving: by step, in order, the messages that have not left, where links are shared.
    """

    role: Peer
    queue: float
    steps: int = 0
    leaving: dict[int, int] = field(default_factory=dict)

    def must_leave(self, step: int) -> bool:
        """Return True if it computes only when the messages of a step have left."""
        return step <= self.steps - self.queue

    @property
    def is_held(self) -> bool:
        """True if messages that must leave first have not, where links are shared."""
        oldest = next(iter(self.leaving), None)
        return oldest is not None and self.must_leave(oldest)

    def free_from(self, now: float) -> float:
        """Return when it may compute again, as far as its own uplink lets it, if it steps now."""
        return max([now, *self.up.marks[-1:]])


class MeshClock(EventClock[TimedPeer]):
    """Runs the events of one run.

    Attributes:
        conditions: None in a run without faults.

    An event's number is that of a receiver and a sender, or of a peer and 0: the one is multiplied by
    the number of peers.
    """

    not_saved = frozenset(
        {"devices", "conversations", "_service", "_stage", "_mesh", "_all", "_arrivals"}
    )
    nothing_follows = "no peer will take a step any longer"

    def __init__(self, service: ExchangeService, stage: MeshStage, mesh: Mesh) -> None:
        super().__init__(mesh.transfers, mesh.background)
        self._service, self._stage, self._mesh = service, stage, mesh
        self.conversations = PeerConversations(mesh.neighbours)
        self.conditions: DeviceConditions[TimedPeer] | None = None
        self._all = len(mesh.neighbours)
        self._arrivals = [UpdateArrived(sender) for sender in range(self._all)]
        self.devices = {
            peer: self.timed(*mesh.lines(peer), self.new_role(peer)) for peer in range(self._all)
        }
        self._at_core: dict[int, deque[int]] = {}
        """The bytes of the messages on their way to the core, by the numbers of their events."""

    def new_role(self, peer: int) -> Peer:
        hands, computes = self._stage.hands(peer), peer < self._mesh.computing
        return Peer(hands, computes=computes, patience=self._mesh.patience)

    def timed(self, up: Line, down: Line, role: Peer) -> TimedPeer:
        """Return the state of a peer that has taken no step."""
        queue = self._mesh.queue
        up.marks = [] if queue == math.inf else [0.0] * (int(queue) + 1)
        return TimedPeer(up, down, role, queue)

    def state(self) -> State:
        devices = {
            peer: (one.up, one.down, one.role.kept(), one.steps, one.leaving)
            for peer, one in self.devices.items()
        }
        return super().state() | {_DEVICES: devices}

    def restore(self, state: State) -> None:
        """Go on from a state; the stage has the hands of the peers that are there in it."""
        own = dict(state)
        devices = own.pop(_DEVICES)
        super().restore(own)
        self.devices.clear()
        for peer, (up, down, saved, *counts) in devices.items():
            role = self.new_role(peer)
            role.go_on(saved)
            self.devices[peer] = TimedPeer(up, down, role, self._mesh.queue, *counts)

    def _begin(self) -> None:
        if self._service.begun:
            return
        self._stage.record(self._service.begin())
        for peer, one in self.devices.items():
            self.tell(peer, one.role, Began())
        if self.strikes is not None:
            self.strikes.begin()

    @property
    def version(self) -> int:
        return self._service.updates

    def device(self, number: int) -> int:
        return number // self._all

    @property
    def finished(self) -> bool:
        return self._service.finished

    def acting(self) -> Iterator[int]:
        """Yield the peers of which anything is to come, and not too late; a peer may come twice.

        A message is its sender's: what a peer is sent by one that takes no step is of no use to it.
        """
        for rank, number in self.events.but_faults(LATEST):
            peer, sender = divmod(number, self._all)
            yield sender if rank in OF_MESSAGES else peer
        if self.transfers is not None and self.transfers.next_end <= LATEST:
            for transfer in self.transfers.under_way():
                yield self.conversations.ends((transfer.conversation, transfer.up))[0]

    def lines(self, peer: int) -> tuple[Line, ...]:
        """Return a peer's uplink and downlink; nothing if the peer is gone."""
        one = self.devices.get(peer)
        return () if one is None else (one.up, one.down)

    def remove(self, peer: int) -> None:
        """Remove a peer that is gone by itself."""
        if peer in self.devices:
            self.forget(peer)
            self.leave(peer)

    def forget(self, peer: int) -> None:
        """Tell the other peers that a peer dies; they may have waited for it."""
        self.stop(peer)
        for other, one in list(self.devices.items()):
            if other != peer:
                self.tell(other, one.role, Closed(peer))

    def leave(self, peer: int) -> None:
        self._service.lose(peer)
        self.line_bytes.retire(peer, self.now, self.lines(peer))
        del self.devices[peer]
        if self.transfers is not None:
            for transfer in self.transfers.leave(self.now, peer):
                self.has_left(transfer)

    def stop(self, peer: int) -> None:
        """End a peer's computation, and start no other one."""
        self.drop({peer * self._all}, (FINISHED, BEGIN))
        self.computing.cut(peer, self.now)
        self.tell(peer, self.devices[peer].role, End())

    def drop(self, numbers: Container[int], ranks: Sequence[int]) -> None:
        if AT_CORE in ranks:
            for number in [number for number in self._at_core if number in numbers]:
                del self._at_core[number]
        self.events.move(numbers, ranks, lambda _time, _what: None)

    def sent_by(self, peer: int) -> range:
        """Return the numbers of the events of messages of a peer."""
        return range(peer, self._all * self._all, self._all)

    def sent_to(self, peer: int) -> range:
        """Return the numbers of the events of messages to a peer."""
        return range(peer * self._all, (peer + 1) * self._all)

    def add(self, time: float, rank: int, peer: int, sender: int = 0) -> None:
        self.events.add(time, rank, peer * self._all + sender)

    def _handle(self, time: float, rank: int, number: int, what: float) -> None:
        self.now = time
        peer, sender = divmod(number, self._all)
        size = self._at_core[number].popleft() if rank == AT_CORE else 0
        if self.conditions is not None and self.conditions.delays(time, rank, number, what):
            return
        if peer not in self.devices:
            return
        if rank == AT_CORE:
            self.add(self.devices[peer].down.send(time, size), TAKEN, peer, sender)
        elif rank in (WAITED, TAKEN):
            self._service.arrived(peer, sender)
            self.tell(peer, self.devices[peer].role, self._arrivals[sender])
        elif rank == FINISHED:
            self.computing.finish(peer)
            role = self.devices[peer].role
            assert role.job is not None
            self.tell(peer, role, Computed(role.job))
        elif rank == FREE:
            assert self.conditions is not None
            self.conditions.freed(peer)
        else:
            self.tell(peer, self.devices[peer].role, _DUE[rank])

    # -- what roles say

    def tell(self, peer: int, role: Peer, event: ToPeer) -> None:
        """Tell a role of an event, and carry out what it says; the peer may be removed meanwhile."""
        for action in role.handle(event, self.now):
            self._carry(peer, role, action)

    def _carry(self, peer: int, role: Peer, action: OfPeer) -> None:
        if isinstance(action, Tell):
            self._told(peer, action.what)
        elif isinstance(action, Compute):
            self._begin_computing(peer, role)
        elif isinstance(action, At):
            self.add(action.time, _RANKS[action.token.what], peer)
        elif isinstance(action, WhenLeft):
            one = self.devices[peer]
            one.up.marks[1:] = one.up.marks[:-1]
            one.steps += 1
            if not one.is_held:
                self.add(one.free_from(self.now), BEGIN, peer)
        else:
            self.remove(peer)

    def _begin_computing(self, peer: int, role: Peer) -> None:
        role.hands.compute()
        computing, waiting = self._mesh.busy(peer, self.now)
        factor = 1.0 if self.conditions is None else self.conditions.begins(peer)
        computing, waiting = factor * computing, factor * waiting
        self.computing.begin(peer, self.now, computing)
        self.add(self.now + (computing + waiting), FINISHED, peer)

    def _told(self, peer: int, what: Told) -> None:
        one = self.devices.get(peer)
        if one is not None and isinstance(what, Step):
            self._send(peer, what.messages, one.steps)
            if one.up.marks:
                one.up.marks[0] = one.up.free
        elif one is not None and isinstance(what, Answered):
            self._send(peer, what.messages)
        self._stage.record(self._service.told(peer, what, self.now, self._stage.host_time()))
        if isinstance(what, Step) and self.strikes is not None:
            self.strikes.pushed(peer)

    def _send(self, peer: int, messages: Sequence[Message], step: int = 0) -> None:
        """Put a peer's messages on its uplink.

        Args:
            step: the number of the step that they are a part of; 0 if they are answers.
        """
        one = self.devices[peer]
        for receiver, size, _ in messages:
            if receiver not in self.devices:
                continue
            if self.transfers is not None:
                number, up = self.conversations.way(peer, receiver)
                part_of = 0 if self.is_cut_off(receiver) else step
                if part_of:
                    one.leaving[part_of] = one.leaving.get(part_of, 0) + 1
                self.transfers.begin(self.now, Transfer(number, up, size, part_of))
                continue
            number = receiver * self._all + peer
            self._at_core.setdefault(number, deque()).append(size)
            self.events.add(one.up.send(self.now, size), AT_CORE, number)

    def _end_transfer(self, transfers: SharedTransfers, time: float, transfer: Transfer) -> None:
        self.now = time
        arrival = transfers.end(time, transfer)
        sender, receiver = self.conversations.ends((transfer.conversation, transfer.up))
        self.add(arrival, TAKEN, receiver, sender)
        self.has_left(transfer)

    def has_left(self, transfer: Transfer) -> None:
        """Count a message that has left its sender, which may have waited for that to compute."""
        sender, _ = self.conversations.ends((transfer.conversation, transfer.up))
        one = self.devices.get(sender)
        if one is None or not transfer.version:
            return
        one.leaving[transfer.version] -= 1
        if not one.leaving[transfer.version]:
            del one.leaving[transfer.version]
            if one.must_leave(transfer.version) and not one.is_held:
                self.add(self.now, BEGIN, sender)

    # -- what faults change

    def is_cut_off(self, peer: int) -> bool:
        return self.conditions is not None and self.conditions.is_cut_off(peer)

    def unreachable(self) -> Iterable[int]:
        """Return the peers that are frozen, cut off or lost now."""
        return () if self.conditions is None else self.conditions.unreachable()

"""The order of events among peers, under the virtual clock.

Peers compute all the time and send to each other. A peer begins to compute at its model as it is then.
When it has finished, it takes its step and sends. It begins again when what it sent the time before has
left it and its half is ready.

Where peers share links, messages are transfers (``testbed.clock.shared_transfers``): all that a peer
sends leaves at once, and shares its uplink. A message has left when its transfer ends. Where every peer
has a link to itself, a message takes its sender's uplink and then its receiver's downlink, on each of
which it waits for those before it.

Of events at one moment, faults come first; then killed peers come back; then messages that waited at a
frozen peer, and those that arrive, are taken in, then computations end, then computations begin. Within
each kind, the peer with the lower number comes first, and of its messages the one of the lower sender;
those of one sender come in the order in which it sent them.

Where faults may strike, the clock consults two objects: the peers' ``Conditions`` about each event
(``testbed.clock.peer_conditions``), and the ``Strikes`` after it (``testbed.clock.peer_faults``).
"""

from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from testbed.clock.conversations import PeerConversations
from testbed.clock.event_clock import LATEST, EventClock
from testbed.clock.events import FAULT
from testbed.clock.lines import lines
from testbed.clock.mesh_interface import Conditions, MeshStage, Strikes
from testbed.clock.peer_silence import PeerSilence
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.clock.transfers import Line
from testbed.training.exchange import ExchangeService, Message
from testbed.training.settings import Settings

BACK, AT_CORE, WAITED, ARRIVED, FINISHED, BEGIN, FREE, SILENT = range(FAULT + 1, FAULT + 9)
"""Ranks of events.

At ``BACK`` a killed peer comes back, if it can. A message passes the core, and arrives. One that has
``WAITED`` arrived at a frozen peer, and is taken in at its thaw, whatever happens to the link. ``FREE``
is the end of an outage of a peer's link, and at ``SILENT`` a peer may have waited for others for too
long.
"""
_OF_MESSAGES = (AT_CORE, WAITED, ARRIVED)
"""Ranks of events of messages, whose numbers are those of a receiver and a sender."""


@dataclass(slots=True)
class TimedPeer:
    """One peer, as the clock sees it.

    Attributes:
        up, down: its links, if they are its own. The uplink's marks are the times when what it sent in
            its last step, and in the one before, has left.
        steps: its steps so far.
        leaving: messages of the last step that have not left, where links are shared.
        held: messages of the step before that have not left; it begins again when they have.
        computes: True while it computes.
    """

    up: Line
    down: Line
    steps: int = 0
    leaving: int = 0
    held: int = 0
    computes: bool = False

    def __post_init__(self) -> None:
        self.up.marks = [0.0, 0.0]

    @property
    def may_begin(self) -> float:
        """The time from which on it may begin, as what it sent the step before has left; in seconds."""
        return self.up.marks[1]


class MeshClock(EventClock):
    """Runs the events of one run.

    Attributes:
        peers: the peers that are there, by number.
        conditions, strikes: None in a run without faults.
        conversations: the numbers of which peers talk to each other.

    An event's number is that of a receiver and a sender, or of a peer and 0: the one is multiplied by
    the number of peers.
    """

    nothing_follows = "no peer will take a step any longer"

    def __init__(
        self,
        service: ExchangeService,
        stage: MeshStage,
        *,
        neighbours: Sequence[Sequence[int]],
        computing: int,
        busy: Callable[[int, float], tuple[float, float]],
        lines: Callable[[int], tuple[Line, Line]],
        transfers: SharedTransfers | None = None,
        patience: float | None = None,
    ) -> None:
        """Prepare the clock.

        Args:
            neighbours: the peers that each peer talks to, by the peers' numbers.
            computing: the number of peers that compute, from 0 on; the others only answer.
            busy: returns the seconds that a peer computes, and those that it then waits, from a moment
                on; called once for each computation, in order.
            lines: makes a peer's uplink and downlink.
            transfers: where peers share links, what passes them; the lines are not used then.
            patience: the seconds for which a peer that is waited for may be silent; None: no limit.
        """
        super().__init__(transfers)
        self.conditions: Conditions | None = None
        self.strikes: Strikes | None = None
        self._service = service
        self._stage = stage
        self.conversations = PeerConversations(neighbours)
        self._computing = computing
        self._busy = busy
        self._all = len(neighbours)
        self.peers = {peer: TimedPeer(*lines(peer)) for peer in range(self._all)}
        self._at_core: dict[int, deque[int]] = {}
        """The bytes of the messages on their way to the core, by the numbers of their events."""
        self._blocked: set[int] = set()
        self._silence = PeerSilence(self._all, patience, service)

    def _begin(self) -> None:
        self._stage.record(self._service.begin())
        if self.strikes is not None:
            self.strikes.begin()
        for peer in range(self._computing):
            self._add(0.0, BEGIN, peer)

    @property
    def finished(self) -> bool:
        """True if the run's updates are complete."""
        return self._service.finished

    def acting(self) -> Iterator[int]:
        """Yield the peers of which anything is to come, and not too late; a peer may come twice.

        A message is its sender's: what a peer is sent by one that takes no step is of no use to it.
        """
        for rank, number in self.events.but_faults(LATEST):
            peer, sender = divmod(number, self._all)
            yield sender if rank in _OF_MESSAGES else peer
        if self.transfers is not None and self.transfers.next_end <= LATEST:
            for transfer in self.transfers.under_way():
                yield self.conversations.ends((transfer.conversation, transfer.up))[0]

    def lines(self, peer: int) -> tuple[Line, ...]:
        """Return a peer's uplink and downlink; nothing if the peer is gone."""
        one = self.peers.get(peer)
        return () if one is None else (one.up, one.down)

    def remove(self, peer: int) -> None:
        """Remove a peer that is gone; others may have waited for it."""
        self._service.lose(peer)
        self.computing.cut(peer, self.now)
        self.line_bytes.retire(peer, self.now, self.lines(peer))
        if self.peers.pop(peer, None) is not None and self.transfers is not None:
            for transfer in self.transfers.drop(self.now, peer):
                self._has_left(transfer)
        for blocked in sorted(self._blocked):
            self._add(self.now, BEGIN, blocked)
        self._blocked.clear()

    def kill(self, peer: int) -> None:
        """Remove a peer with all that is under way from it and to it."""
        self.stop(peer)
        self._drop(self._from(peer), _OF_MESSAGES)
        self._drop(self._to(peer), _OF_MESSAGES)
        self.remove(peer)

    def come_back(self, peer: int, others: Sequence[int], up: Line, down: Line) -> None:
        """Add a peer that was killed; it computes as soon as it is ready.

        Args:
            others: the peers that it has connected to.
            up, down: its links, if they are its own.
        """
        self._service.returned(peer, others)
        self.peers[peer] = TimedPeer(up, down)
        self._stage.record(self._silence.returned(peer, self.now))
        if peer < self._computing:
            self._add(self.now, BEGIN, peer)

    def stop(self, peer: int) -> None:
        """Let a peer neither finish nor begin a computation any more."""
        self._drop({peer * self._all}, (FINISHED, BEGIN))
        self.computing.cut(peer, self.now)
        self._blocked.discard(peer)

    def drop_what_leaves(self, peer: int) -> None:
        """Forget what a peer has sent, and what has not left it."""
        self._drop(self._from(peer), (AT_CORE,))
        if self.transfers is not None:
            for transfer in self.transfers.drop_from(self.now, peer):
                self._has_left(transfer)

    def _drop(self, numbers: Container[int], ranks: Sequence[int]) -> None:
        if AT_CORE in ranks:
            for number in [number for number in self._at_core if number in numbers]:
                del self._at_core[number]
        self.events.move(numbers, ranks, lambda _time, _what: None)

    def _from(self, peer: int) -> range:
        """Return the numbers of the events of messages of a peer."""
        return range(peer, self._all * self._all, self._all)

    def _to(self, peer: int) -> range:
        """Return the numbers of the events of messages to a peer."""
        return range(peer * self._all, (peer + 1) * self._all)

    def change_lines(
        self, peer: int, up: Callable[[float], float], down: Callable[[float], float]
    ) -> None:
        """Give what is under way on a peer's own links its new times.

        Args:
            up, down: functions from old to new arrivals, at the core and at the peer.
        """
        self.events.move(self._from(peer), (AT_CORE,), lambda time, _: max(self.now, up(time)))
        self.events.move(self._to(peer), (ARRIVED,), lambda time, _: max(self.now, down(time)))
        begin = max(self.now, self.peers[peer].may_begin)
        self.events.move({peer * self._all}, (BEGIN,), lambda _time, _what: begin)

    def absorb(self, peer: int) -> None:
        """Let what is on its way to a peer whose link is down hold no sender: kernels keep it.

        This is about shared links, where a transfer leaves its sender only as fast as it arrives.
        """
        if self.transfers is not None:
            for transfer in self.transfers.toward(peer):
                self._has_left(transfer)
                transfer.version = 0

    def add(self, time: float, rank: int, peer: int, sender: int = 0) -> None:
        """Add an event of a peer, or of a message to it."""
        self._add(time, rank, peer, sender)

    def _add(self, time: float, rank: int, peer: int, sender: int = 0) -> None:
        self.events.add(time, rank, peer * self._all + sender)

    def _handle(self, time: float, rank: int, number: int, what: float) -> None:
        self.now = time
        if rank == FAULT:
            assert self.strikes is not None
            self.strikes.strike(number)
            return
        peer, sender = divmod(number, self._all)
        size = self._at_core[number].popleft() if rank == AT_CORE else 0
        if self.conditions is not None:
            self.conditions.thaw_due()
            if self.conditions.delays(time, rank, peer, sender):
                return
        if rank == BACK:
            assert self.strikes is not None
            self.strikes.come_back(peer)
            return
        if peer not in self.peers:
            return
        if rank == AT_CORE:
            self._add(self.peers[peer].down.send(time, size), ARRIVED, peer, sender)
        elif rank in (WAITED, ARRIVED):
            self._send(peer, self._stage.arrive(peer, sender))
            self._stage.record(self._silence.heard(peer, sender, self.now))
            self._ask_again(peer)
        elif rank == FINISHED:
            self.computing.finish(peer)
            self._finish(peer)
        elif rank == FREE:
            assert self.conditions is not None
            self.conditions.freed(peer)
        elif rank == SILENT:
            self._suspect(peer)
        elif self._stage.ready(peer):
            self._begin_computing(peer)
        else:
            self._blocked.add(peer)
            self._time_silence(peer)

    def _ask_again(self, peer: int) -> None:
        """Let a peer that waits for others begin if it need not any more."""
        if peer not in self._blocked:
            return
        if self._stage.ready(peer):
            self._blocked.remove(peer)
            self._add(self.now, BEGIN, peer)
        self._time_silence(peer)

    def _time_silence(self, peer: int) -> None:
        """Time those that a peer waits for, if it waits for any."""
        awaited = self._stage.waits_for(peer) if peer in self._blocked else ()
        look = self._silence.time(peer, awaited, self.now)
        if look is not None:
            self._add(look, SILENT, peer)

    def _suspect(self, peer: int) -> None:
        """Let a peer wait no longer for those that have been silent for too long."""
        self._silence.looks(peer)
        if peer in self._blocked:
            for other in self._silence.overdue(peer, self.now):
                self._stage.record(self._silence.suspect(peer, other, self.now))
                self._stage.suspect(peer, other)
        self._ask_again(peer)

    def _begin_computing(self, peer: int) -> None:
        self._stage.begin(peer)
        computing, waiting = self._busy(peer, self.now)
        if self.conditions is not None:
            self.conditions.begins(peer)
            factor = self.conditions.factor(peer)
            computing, waiting = factor * computing, factor * waiting
        self.computing.begin(peer, self.now, computing)
        self.peers[peer].computes = True
        self._add(self.now + (computing + waiting), FINISHED, peer)

    def _finish(self, peer: int) -> None:
        one = self.peers[peer]  # the stage may remove the peer while it finishes
        step = self._stage.finish(peer)
        one.computes = False
        if step is None:
            self.remove(peer)
            return
        # A peer computes while it sends, and at most one step's messages wait to be sent.
        marks = one.up.marks
        marks[1] = marks[0]
        begin = max(self.now, one.may_begin)
        one.steps, one.leaving, one.held = one.steps + 1, 0, one.leaving
        is_held = one.held > 0
        self._send(peer, step.messages, one.steps)
        one.up.marks[0] = one.up.free
        if not is_held:
            self._add(begin, BEGIN, peer)
        stepped = self._service.stepped(peer, step, self.now, self._stage.host_time())
        self._stage.record(stepped)
        if self.strikes is not None:
            self.strikes.stepped()

    def _send(self, peer: int, messages: Sequence[Message], step: int = 0) -> None:
        """Let messages leave a peer.

        Args:
            step: the number of the step that they are a part of; 0 if they are answers.
        """
        one = self.peers.get(peer)
        for message in messages:
            receiver = message.receiver
            if one is None or receiver not in self.peers:
                continue
            # Counted when it is sent, as wire bytes are, not when it arrives.
            self._service.count(receiver, message)
            if self.transfers is not None:
                number, up = self.conversations.way(peer, receiver)
                absorbed = self.conditions is not None and self.conditions.is_cut_off(receiver)
                part_of = 0 if absorbed else step
                one.leaving += part_of > 0
                self.transfers.begin(self.now, Transfer(number, up, message.size, part_of))
                continue
            number = receiver * self._all + peer
            self._at_core.setdefault(number, deque()).append(message.size)
            self.events.add(one.up.send(self.now, message.size), AT_CORE, number)

    def _end_transfer(self, transfers: SharedTransfers, time: float, transfer: Transfer) -> None:
        self.now = time
        arrival = transfers.end(time, transfer)
        sender, receiver = self.conversations.ends((transfer.conversation, transfer.up))
        self._add(arrival, ARRIVED, receiver, sender)
        self._has_left(transfer)

    def _has_left(self, transfer: Transfer) -> None:
        """Let the sender of a message begin to compute if it waited for that to leave."""
        sender, _ = self.conversations.ends((transfer.conversation, transfer.up))
        one = self.peers.get(sender)
        if one is None or not transfer.version:
            return
        if transfer.version == one.steps:
            one.leaving -= 1
            return
        one.held -= 1
        if not one.held:
            self._add(self.now, BEGIN, sender)


def mesh_clock(
    settings: Settings,
    service: ExchangeService,
    stage: MeshStage,
    *,
    neighbours: Sequence[Sequence[int]],
    computing: int,
    busy: Callable[[int, float], tuple[float, float]],
) -> MeshClock:
    """Return the clock of a run of peers; the arguments are those of ``MeshClock``."""
    transfers = None
    if settings.network.route_of:
        transfers = SharedTransfers(settings, PeerConversations(neighbours))
    return MeshClock(
        service,
        stage,
        neighbours=neighbours,
        computing=computing,
        busy=busy,
        lines=lambda peer: lines(settings, peer) if transfers is None else (Line(None), Line(None)),
        transfers=transfers,
        patience=settings.timing.suspect_after,
    )

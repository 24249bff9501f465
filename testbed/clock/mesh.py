"""The order of events among peers, under the virtual clock.

Peers compute all the time and send to each other. A peer begins to compute at its model as it is then.
When it has finished, it takes its step and sends. It begins again when what it sent the time before has
left it and its half is ready.

Where peers share links, messages are transfers (``testbed.clock.shared_transfers``): all that a peer
sends leaves at once, and shares its uplink. A message has left when its transfer ends. Where every peer
has a link to itself, a message takes its sender's uplink and then its receiver's downlink, on each of
which it waits for those before it.

Of events at one moment, messages arrive first, then computations end, then computations begin. Within
each kind, the peer with the lower number comes first, and of its messages the one of the lower sender;
those of one sender come in the order in which it sent them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.clock.conversations import PeerConversations
from testbed.clock.event_clock import EventClock
from testbed.clock.events import ASKED, FAULT, FINISHED, PARAMETERS, THAWED
from testbed.clock.lines import lines
from testbed.clock.shared_transfers import SharedTransfers, Transfer
from testbed.clock.transfers import Line
from testbed.training.exchange import ExchangeService, Message, Step
from testbed.training.settings import Settings

_AT_CORE, _ARRIVED, _BEGIN = THAWED, PARAMETERS, ASKED
"""Ranks of events: those of the events around servers that are like them."""
_UNDER_WAY = (_AT_CORE, _ARRIVED)
"""Ranks of events of messages, which are lost with a sender that is killed."""


class MeshStage(Protocol):
    """The peers: a stage carries out what the clock decides."""

    def begin(self, peer: int) -> None:
        """Make the peer begin to compute at its model as it is now."""

    def finish(self, peer: int) -> Step | None:
        """Make the peer take its step and send; return the step, or None if the peer is gone."""

    def arrive(self, receiver: int, sender: int) -> Sequence[Message]:
        """Deliver the sender's next message to the receiver; return what the receiver sends."""

    def ready(self, peer: int) -> bool:
        """Return True if the peer may compute its next gradient."""

    def host_time(self) -> float:
        """Return the seconds of the host's clock since training began."""


class MeshFaultStage(MeshStage, Protocol):
    """Peers that faults may strike."""

    def kill(self, peer: int) -> None:
        """Let a peer die: the others forget it, and what it has under way to them is lost."""

    def fault(self, record: dict[str, Any]) -> None:
        """Make the beginning of a fault real, and write its record down."""


class Strikes(Protocol):
    """The faults of a run of peers."""

    def begin(self) -> None:
        """Add the first fault to the events."""

    def strike(self) -> None:
        """Let the fault of an event begin."""

    def stepped(self) -> None:
        """Let faults strike that are due at the number of updates that was reached."""


@dataclass(slots=True)
class _Peer:
    """One peer.

    Attributes:
        up, down: its links, if they are its own.
        left: the time when what it sent in its last step has left, on a link of its own.
        steps: its steps so far.
        leaving: messages of the last step that have not left, where links are shared.
        held: messages of the step before that have not left; it begins again when they have.
    """

    up: Line
    down: Line
    left: float = 0.0
    steps: int = 0
    leaving: int = 0
    held: int = 0


class MeshClock(EventClock):
    """Runs the events of one run.

    Attributes:
        strikes: None in a run without faults.
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
    ) -> None:
        """Prepare the clock.

        Args:
            neighbours: the peers that each peer talks to, by the peers' numbers.
            computing: the number of peers that compute, from 0 on; the others only answer.
            busy: returns the seconds that a peer computes, and those that it then waits, from a moment
                on; called once for each computation, in order.
            lines: makes a peer's uplink and downlink.
            transfers: where peers share links, what passes them; the lines are not used then.
        """
        super().__init__(transfers)
        self.strikes: Strikes | None = None
        self._service = service
        self._stage = stage
        self.conversations = PeerConversations(neighbours)
        self._computing = computing
        self._busy = busy
        self._all = len(neighbours)
        self._peers = {peer: _Peer(*lines(peer)) for peer in range(self._all)}
        self._at_core: dict[int, deque[int]] = {}
        """The bytes of the messages on their way to the core, by the numbers of their events."""
        self._blocked: set[int] = set()
        self._killed: set[int] = set()

    def _begin(self) -> None:
        self._service.begin()
        if self.strikes is not None:
            self.strikes.begin()
        for peer in range(self._computing):
            self._add(0.0, _BEGIN, peer)

    @property
    def finished(self) -> bool:
        """True if the run's updates are complete."""
        return self._service.finished

    def is_there(self, peer: int) -> bool:
        """Return True if a peer is not gone."""
        return peer in self._peers

    def lines(self, peer: int) -> tuple[Line, ...]:
        """Return a peer's uplink and downlink; nothing if the peer is gone."""
        one = self._peers.get(peer)
        return () if one is None else (one.up, one.down)

    def kill(self, peer: int) -> None:
        """Remove a peer with all that it has under way to others."""
        self._killed.add(peer)
        self.remove(peer)

    def remove(self, peer: int) -> None:
        """Remove a peer that is gone; others may have waited for it."""
        self._service.lose(peer)
        self.computing.cut(peer, self.now)
        self.line_bytes.retire(peer, self.now, self.lines(peer))
        if self._peers.pop(peer, None) is not None and self.transfers is not None:
            for transfer in self.transfers.drop(self.now, peer):
                self._has_left(transfer)
        for blocked in sorted(self._blocked):
            self._add(self.now, _BEGIN, blocked)
        self._blocked.clear()

    def _add(self, time: float, rank: int, peer: int, sender: int = 0) -> None:
        self.events.add(time, rank, peer * self._all + sender)

    def _handle(self, time: float, rank: int, number: int, what: float) -> None:
        peer, sender = divmod(number, self._all)
        if rank == FAULT:
            assert self.strikes is not None
            self.now = time
            self.strikes.strike()
            return
        if peer not in self._peers or (rank in _UNDER_WAY and sender in self._killed):
            return
        self.now = time
        if rank == _AT_CORE:
            size = self._at_core[number].popleft()
            self._add(self._peers[peer].down.send(time, size), _ARRIVED, peer, sender)
        elif rank == _ARRIVED:
            self._send(peer, self._stage.arrive(peer, sender))
            if peer in self._blocked and self._stage.ready(peer):
                self._blocked.remove(peer)
                self._add(self.now, _BEGIN, peer)
        elif rank == FINISHED:
            self.computing.finish(peer)
            self._finish(peer)
        elif self._stage.ready(peer):
            self._stage.begin(peer)
            computing, waiting = self._busy(peer, self.now)
            self.computing.begin(peer, self.now, computing)
            self._add(self.now + (computing + waiting), FINISHED, peer)
        else:
            self._blocked.add(peer)

    def _finish(self, peer: int) -> None:
        one = self._peers[peer]  # the stage may remove the peer while it finishes
        step = self._stage.finish(peer)
        if step is None:
            self.remove(peer)
            return
        # A peer computes while it sends, and at most one step's messages wait to be sent.
        begin = max(self.now, one.left)
        one.steps, one.leaving, one.held = one.steps + 1, 0, one.leaving
        is_held = one.held > 0
        self._send(peer, step.messages, one.steps)
        one.left = one.up.free
        if not is_held:
            self._add(begin, _BEGIN, peer)
        self._service.stepped(peer, step, self.now, self._stage.host_time())
        if self.strikes is not None:
            self.strikes.stepped()

    def _send(self, peer: int, messages: Sequence[Message], step: int = 0) -> None:
        """Let messages leave a peer.

        Args:
            step: the number of the step that they are a part of; 0 if they are answers.
        """
        one = self._peers.get(peer)
        for message in messages:
            receiver = message.receiver
            if one is None or receiver not in self._peers:
                continue
            # Counted when it is sent, as wire bytes are, not when it arrives.
            self._service.count(receiver, message)
            if self.transfers is not None:
                number, up = self.conversations.way(peer, receiver)
                one.leaving += step > 0
                self.transfers.begin(self.now, Transfer(number, up, message.size, step))
                continue
            number = receiver * self._all + peer
            self._at_core.setdefault(number, deque()).append(message.size)
            self.events.add(one.up.send(self.now, message.size), _AT_CORE, number)

    def _end_transfer(self, transfers: SharedTransfers, time: float, transfer: Transfer) -> None:
        self.now = time
        arrival = transfers.end(time, transfer)
        sender, receiver = self.conversations.ends((transfer.conversation, transfer.up))
        self._add(arrival, _ARRIVED, receiver, sender)
        self._has_left(transfer)

    def _has_left(self, transfer: Transfer) -> None:
        """Let the sender of a message begin to compute if it waited for that to leave."""
        sender, _ = self.conversations.ends((transfer.conversation, transfer.up))
        one = self._peers.get(sender)
        if one is None or not transfer.version:
            return
        if transfer.version == one.steps:
            one.leaving -= 1
            return
        one.held -= 1
        if not one.held:
            self._add(self.now, _BEGIN, sender)


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
    )

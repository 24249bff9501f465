"""The order of events among peers, under the virtual clock.

Events are in conservative discrete-event order, as around a server (``testbed.clock.star``), but peers
compute all the time and send to each other. A peer begins to compute at its model as it is then. When
it has finished, it takes its step and sends. It begins again when what it sent the time before has left
its uplink and its half is ready. A message takes its sender's uplink and then its receiver's downlink.

Of events at one moment, messages arrive first, then computations end, then computations begin. Within
each kind, the peer with the lower number comes first, and of its messages the one of the lower sender;
those of one sender come in the order in which it sent them.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.clock.star import LATEST
from testbed.clock.transfers import Line
from testbed.training.exchange import ExchangeService, Message, Step

_AT_CORE, _ARRIVED, _FINISHED, _BEGIN = range(4)
_NOTHING = Message(0, 0, 0)


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


@dataclass(slots=True)
class _Peer:
    """One peer's links, and the time when what it sent in its last step has left."""

    up: Line
    down: Line
    left: float = 0.0


class MeshClock:
    """Runs the events of one run.

    Attributes:
        now: virtual seconds since training began.
    """

    def __init__(
        self,
        service: ExchangeService,
        stage: MeshStage,
        *,
        peers: Sequence[int],
        computing: int,
        busy: Callable[[int, float], float],
        lines: Callable[[int], tuple[Line, Line]],
    ) -> None:
        """Prepare the clock.

        Args:
            peers: the peers' numbers.
            computing: the number of peers that compute, from 0 on; the others only answer.
            busy: returns the seconds that a peer computes and then waits, from a moment on; called once
                for each computation, in order.
            lines: makes a peer's uplink and downlink.
        """
        self.now = 0.0
        self._service = service
        self._stage = stage
        self._computing = computing
        self._busy = busy
        self._peers = {peer: _Peer(*lines(peer)) for peer in peers}
        self._events: list[tuple[float, int, int, int, int, Message]] = []
        self._posted = itertools.count()
        self._blocked: set[int] = set()

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """Run until the service has finished, or nothing more will happen.

        Args:
            between: called between two events.
        """
        self._service.begin()
        for peer in self._peers:
            if peer < self._computing:
                self._post(0.0, _BEGIN, peer)
        while self._events and not (self._service.finished or self.is_beyond):
            between()
            time, rank, peer, sender, _, message = heapq.heappop(self._events)
            if peer in self._peers:
                self.now = time
                self._handle(rank, peer, sender, message)

    @property
    def is_beyond(self) -> bool:
        """True if the next event is too late to take place."""
        return bool(self._events) and self._events[0][0] > LATEST

    def remove(self, peer: int) -> None:
        """Remove a peer that is gone; others may have waited for it."""
        self._peers.pop(peer, None)
        for blocked in sorted(self._blocked):
            self._post(self.now, _BEGIN, blocked)
        self._blocked.clear()

    def _post(
        self, time: float, rank: int, peer: int, sender: int = -1, message: Message = _NOTHING
    ) -> None:
        heapq.heappush(self._events, (time, rank, peer, sender, next(self._posted), message))

    def _handle(self, rank: int, peer: int, sender: int, message: Message) -> None:
        if rank == _AT_CORE:
            arrival = self._peers[peer].down.send(self.now, message.size)
            self._post(arrival, _ARRIVED, peer, sender, message)
        elif rank == _ARRIVED:
            self._send(peer, self._stage.arrive(peer, sender))
            if peer in self._blocked and self._stage.ready(peer):
                self._blocked.remove(peer)
                self._post(self.now, _BEGIN, peer)
        elif rank == _FINISHED:
            self._finish(peer)
        elif self._stage.ready(peer):
            self._stage.begin(peer)
            self._post(self.now + self._busy(peer, self.now), _FINISHED, peer)
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
        self._send(peer, step.messages)
        one.left = one.up.free
        self._post(begin, _BEGIN, peer)
        self._service.stepped(peer, step, self.now, self._stage.host_time())

    def _send(self, peer: int, messages: Sequence[Message]) -> None:
        one = self._peers.get(peer)
        for message in messages:
            if one is not None and message.receiver in self._peers:
                # Counted when it is sent, as wire bytes are, not when it arrives.
                self._service.count(message.receiver, message)
                left = one.up.send(self.now, message.size)
                self._post(left, _AT_CORE, message.receiver, peer, message)

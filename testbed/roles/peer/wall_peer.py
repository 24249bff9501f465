"""A peer under the wall clock, whose role is here: events are told as they come.

What has come is taken in before a computation, and during the waiting after it. A peer that does not
take what it was sent is waited for like one that has nothing to say, and may be suspected.
"""

import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping

from testbed.engine import peer as engine
from testbed.engine.events import (
    At,
    Began,
    Closed,
    Compute,
    Computed,
    Due,
    Job,
    Opened,
    Taken,
    Tell,
    ToPeer,
    UpdateArrived,
    WhenLeft,
)
from testbed.roles.orders import OrderKind
from testbed.roles.pace import PacedTimes, WakeUp
from testbed.roles.peer.channels import REPORT_PERIOD
from testbed.roles.peer.peer_process import Parts, PeerProcess
from testbed.training.exchange import Step

SENDING_LOOK = 0.002
"""Seconds between two looks at what has left."""
LONGEST = 60.0
"""Seconds after which messages that have not left are no longer waited for."""


class SendingRate:
    """The rate at which a peer's first messages leave it: its measured bandwidth.

    The peer looks again and again at which connections still have bytes that the other's kernel has
    not received. One that receives nothing (it is frozen, or its link is down) must not hold the
    measurement up for ever: after a limit only the connections that have become empty count. Moments
    are seconds of CLOCK_MONOTONIC.

    Attributes:
        is_over: True if all messages have left, or are no longer waited for.
    """

    def __init__(self, before: Mapping[int, int], after: Mapping[int, int], now: float) -> None:
        """Start to measure a step's messages.

        Args:
            before, after: the bytes handed over to each connection before and after the step.
        """
        self.is_over = False
        self._waiting = {peer: size - before.get(peer, 0) for peer, size in after.items()}
        self._began = self._last = now
        self._left = 0

    def look(self, under_way: Collection[int], now: float) -> None:
        """Record which connections have bytes under way; those of peers that are gone have none."""
        for peer in [peer for peer in self._waiting if peer not in under_way]:
            self._left += self._waiting.pop(peer)
            self._last = now
        self.is_over = not self._waiting or now - self._began > LONGEST

    @property
    def bandwidth(self) -> float:
        """Bytes per second; inf where nothing was sent, or left at once."""
        elapsed = self._last - self._began
        return self._left / elapsed if self._left and elapsed > 0 else math.inf


class WallPeer(PeerProcess):
    """A peer whose role is in its own process."""

    def __init__(self, *parts: *Parts, times: PacedTimes | None) -> None:
        """Start as ``PeerProcess`` does.

        Args:
            times: durations of its computations and waits; None if it computes nothing.
        """
        super().__init__(*parts)
        patience = self._settings.timing.suspect_after
        self._role = engine.Peer(self, computes=times is not None, patience=patience)
        self._times = times
        self._stopped = False
        self._training = self._began = time.monotonic()
        self._reported = 0.0
        """When it last reported what it has received."""
        self._job: Job | None = None
        self._wake = WakeUp(0.0, 0.0, 0.0)
        self._timers: list[tuple[float, int, ToPeer]] = []
        self._count = itertools.count()
        # What was handed over to the kernel before each of the last steps, of as many as may wait, by
        # peer; and how much of it those that have not taken all had taken at the last look.
        self._queue = self._settings.send_queue
        self._handed_over: deque[dict[int, int]] = deque(maxlen=self._queue or 1)
        self._taken: Mapping[int, int] = {}
        # How long the first gradient took, and how fast its messages leave, while that is measured.
        self._took = 0.0
        self._sending: SendingRate | None = None

    def _work(self) -> None:
        self._connections.also(self._orders.fileno())
        while not self._stopped:
            self._obey()
            for event in self._events():
                self._tell(event)
            job, self._job = self._job, None
            if job is not None:
                self._compute(job)

    def _tell(self, event: ToPeer) -> None:
        if isinstance(event, Computed):
            self._wake.tell(self._line.woke)
        for action in self._role.handle(event, time.monotonic() - self._training):
            if isinstance(action, Tell):
                self._report_received()
                self._orders.report(action.what)
            elif isinstance(action, Compute):
                self._job = action.job
            elif isinstance(action, At):
                self._add(self._training + action.time, Due(action.token))
            elif isinstance(action, WhenLeft):
                # It is ready as soon as this has left.
                self._handed_over.append(self._connections.handed_over())
                self._add(0.0, Due(action.token))
        if time.monotonic() - self._reported > REPORT_PERIOD:
            self._report_received()

    def _report_received(self) -> None:
        """Report what has come so far, which is counted at the next evaluation."""
        self._reported = time.monotonic()
        self._orders.report(self._connections.received_so_far)

    def _add(self, due: float, event: ToPeer) -> None:
        heapq.heappush(self._timers, (due, next(self._count), event))

    def _compute(self, job: Job) -> None:
        """Compute, and have the computation end when its time, and the waiting after it, are over."""
        assert self._times is not None
        self._began = time.monotonic()
        computing, waiting = self._times.draw(self._began - self._training)
        self.compute()
        self._wake = WakeUp.after(self._began, computing, waiting)
        self._add(self._wake.at, Computed(job))

    # -- what happens

    def _obey(self) -> None:
        """Wait until something comes or is due; carry out the coordinator's order, if one came."""
        if not self._connections.turn(self._patience()):
            return
        order = self._orders.take()
        assert order is not None
        if order.what is OrderKind.BEGIN:
            self._training = time.monotonic()
            self._tell(Began())
        elif order.what is OrderKind.STOP:
            self._stopped = True
        elif order.what is OrderKind.EVALUATE:
            self._connections.evaluate(order.number, self._half.parameters)

    def _patience(self) -> float | None:
        """Return the seconds until something is due; None: only what comes from outside will be."""
        if self._sending is not None:
            return SENDING_LOOK
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _events(self) -> Iterator[ToPeer]:
        """Yield what has happened, until there is nothing more, or the run is over."""
        while not self._stopped:
            self._report_losses()
            while self._connections.returned:
                yield Opened(self._connections.returned.pop(0))
            for sender in self._connections.senders():
                yield UpdateArrived(sender)
            if self._sending is not None:
                self._measure(self._sending)
            if self._role.state is engine.PeerState.BLOCKED:
                yield from self._room()
            if not self._timers or self._timers[0][0] > time.monotonic():
                return
            yield heapq.heappop(self._timers)[2]

    def _room(self) -> Iterator[ToPeer]:
        """Yield what follows as others have taken what they were sent."""
        before, self._taken = self._taken, self._unsent()
        yield from (Taken(n) for n, size in self._taken.items() if before.get(n, size) != size)
        if self.ready:
            yield Due(engine.BEGIN)

    def _measure(self, sending: SendingRate) -> None:
        """Look at what has left of the first step; once all has, tell the half how long that took."""
        sending.look(self._connections.under_way(), time.monotonic())
        if sending.is_over:
            self._sending = None
            self._half.profiled(self._took, sending.bandwidth)

    def _lose(self, peer: int) -> None:
        self._tell(Closed(peer))

    # -- what carries out what the role decides

    @property
    def ready(self) -> bool:
        """True if it may compute, and no more of what it sent waits to leave than may."""
        return self._sending is None and self._half.ready and not self._unsent()

    @property
    def waits_for(self) -> set[int]:
        """The peers that it waits for, those among them that do not take what they were sent."""
        return {*self._unsent(), *(() if self._half.ready else self._half.waits_for)}

    def _unsent(self) -> dict[int, int]:
        """Return the peers that have not taken messages that must leave first, and what they took."""
        if self._queue is None or len(self._handed_over) < self._queue:
            return {}
        return self._connections.unsent(self._handed_over[0], self._role.suspected)

    def step(self) -> Step:
        self._took = time.monotonic() - self._began
        step = super().step()
        if self._half.needs_profile:
            now, after = time.monotonic(), self._connections.handed_over()
            self._sending = SendingRate(self._handed_over[-1], after, now)
        return step

    def joined(self, peer: int) -> None:
        """Take a peer in that was killed and is back: nothing of what was sent before waits for it."""
        super().joined(peer)
        for counts in self._handed_over:
            counts.pop(peer, None)

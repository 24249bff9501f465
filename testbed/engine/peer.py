"""A peer: it computes and sends, and takes in what the other peers send.

==========  =================================  ==========  =========================================
state       event                              next        actions
==========  =================================  ==========  =========================================
START       Began, it computes                 HELD        At(now, BEGIN)
START       Began, it only answers             SERVING     none
HELD        Due(BEGIN), ready                  COMPUTING   Compute
HELD        Due(BEGIN), not ready              BLOCKED     At(SILENT), for those that it waits for
COMPUTING   Computed                           HELD        WhenLeft(BEGIN); Tell(Step)
COMPUTING   Computed, its device is gone       HELD        WhenLeft(BEGIN); Over
BLOCKED     Arrived, ready now                 HELD        At(now, BEGIN)
BLOCKED     Arrived or Taken, not ready        BLOCKED     At(SILENT)
BLOCKED     Due(SILENT), some are silent       as Arrived  Tell(Suspects) for each, and as Arrived
BLOCKED     Closed                             HELD        At(now, BEGIN)
any         Arrived                            the same    Tell(Answered); Tell(Hears) if suspected
any         Opened: it was killed and is back  the same    Tell(Hears) if it was suspected
any         End                                SERVING     none; it computes no more
==========  =================================  ==========  =========================================

What happens to a half, a model and messages is up to ``PeerHands``, which may be elsewhere. A peer
computes while it sends, but messages of no more steps than its run allows wait to leave it then. Those
that it waits for must not be silent for too long: it suspects them, and waits for them again as soon as
something of them comes.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto
from typing import Protocol

from testbed.checkpoints.stateful import State
from testbed.engine.events import (
    At,
    Began,
    Closed,
    Compute,
    Computed,
    Due,
    End,
    Job,
    OfPeer,
    Opened,
    Over,
    Taken,
    Tell,
    Token,
    ToPeer,
    UpdateArrived,
    What,
    WhenLeft,
)
from testbed.training.exchange import Answered, Hears, Step, Suspects
from testbed.training.peer_bytes import Message
from testbed.training.silence import Silence

BEGIN = Token(What.BEGIN)
SILENT = Token(What.SILENT)
_WHEN_LEFT = WhenLeft(BEGIN)


class PeerState(Enum):
    """The state of a peer."""

    START = auto()
    SERVING = auto()
    HELD = auto()
    BLOCKED = auto()
    COMPUTING = auto()


class PeerHands(Protocol):
    """The half of the algorithm, the model and the messages of a peer: they obey its role."""

    @property
    def ready(self) -> bool:
        """True if the peer may compute its next gradient now."""

    @property
    def waits_for(self) -> Collection[int]:
        """The peers of which any has to do something before ``ready`` is true again."""

    def compute(self) -> None:
        """Start to compute at the model as it is now; drivers call it, roles do not."""

    def step(self) -> Step | None:
        """Take the step of what was computed, and send; return it, or None if the peer is gone."""

    def receive(self, sender: int) -> Sequence[Message]:
        """Take in another peer's next update; return the messages that are sent because of it."""

    def suspect(self, peer: int) -> None:
        """Wait for a silent peer no longer, until something comes of it."""

    def forget(self, peer: int) -> None:
        """Drop all that is kept for a peer that is gone."""

    def joined(self, peer: int) -> None:
        """Take in a peer that was gone and is back."""


class Peer:
    """One incarnation of a peer.

    Attributes:
        job: the computation under way, or the last one; None before the first.
        suspected: the peers for which it waits no longer, as they were silent.
        look: when it looks next at those that it waits for; inf if it does not.
    """

    def __init__(
        self, hands: PeerHands, *, computes: bool = True, patience: float | None = None
    ) -> None:
        """Set up the peer, whose conversations are open.

        Args:
            computes: False if it only answers.
            patience: the seconds for which one that it waits for may be silent; None: no limit.
        """
        self.state = PeerState.START
        self.hands = hands
        self.job: Job | None = None
        self.suspected: set[int] = set()
        self._computes = computes
        self._silence = Silence(patience)
        self.look = math.inf

    def kept(self) -> State:
        """Return what a checkpoint keeps of the role: all but its hands."""
        return {name: value for name, value in vars(self).items() if name != "hands"}

    def go_on(self, kept: State) -> None:
        vars(self).update(kept)

    def handle(self, event: ToPeer, now: float = 0.0) -> Iterator[OfPeer]:
        """Return the actions that follow an event; carry out each before the next is taken."""
        if isinstance(event, UpdateArrived):
            return self._arrived(event.conversation, now)
        if isinstance(event, Computed):
            return self._computed(event.job)
        if isinstance(event, Due):
            return self._begin(now) if event.token == BEGIN else self._suspect(now)
        return self._changed(event, now)

    # -- computing

    def _begin(self, now: float) -> Iterator[OfPeer]:
        if self.state is not PeerState.HELD and self.state is not PeerState.BLOCKED:
            return
        if not self.hands.ready:
            self.state = PeerState.BLOCKED
            yield from self._time(now)
            return
        self._silence.only((), now)
        self.state = PeerState.COMPUTING
        self.job = Job(1 if self.job is None else self.job.number + 1, ())
        yield Compute(self.job)

    def _computed(self, job: Job) -> Iterator[OfPeer]:
        if self.state is not PeerState.COMPUTING or job != self.job:
            return
        self.state = PeerState.HELD
        yield _WHEN_LEFT
        step = self.hands.step()
        yield Over() if step is None else Tell(step)

    # -- the others

    def _arrived(self, sender: int, now: float) -> Iterator[OfPeer]:
        answers = self.hands.receive(sender)
        self._silence.ends(sender)
        suspected = sender in self.suspected
        if suspected:
            self.suspected.remove(sender)
            self._silence.was_slow(sender)
        else:
            self._silence.was_in_time(sender)
        if answers or suspected or self.state is PeerState.BLOCKED:
            return self._follows(answers, sender if suspected else None, now)
        return iter(())  # as nearly always

    def _follows(
        self, answers: Sequence[Message], heard: int | None, now: float
    ) -> Iterator[OfPeer]:
        """Yield what follows an arrival; ``heard`` is its sender if that was suspected."""
        if answers:
            yield Tell(Answered(answers))
        if heard is not None:
            yield Tell(Hears(heard))
        if self.state is PeerState.BLOCKED:
            yield from self._ask_again(now)

    def _changed(self, event: ToPeer, now: float) -> Iterator[OfPeer]:
        """Yield what follows the beginning or the end of training, or of a conversation."""
        if isinstance(event, Began):
            self.state = PeerState.HELD if self._computes else PeerState.SERVING
            if self._computes:
                yield At(now, BEGIN)
        elif isinstance(event, Closed):
            self.hands.forget(event.conversation)
            if self.state is PeerState.BLOCKED:
                self.state = PeerState.HELD
                yield At(now, BEGIN)
        elif isinstance(event, Opened):
            yield from self._opened(event.conversation, now)
        elif isinstance(event, Taken):
            self._silence.ends(event.conversation)
            yield from self._time(now)
        elif isinstance(event, End):
            self.state = PeerState.SERVING

    def _opened(self, peer: int, now: float) -> Iterator[OfPeer]:
        self.hands.joined(peer)
        self._silence.ends(peer)
        self._silence.was_in_time(peer)
        if peer in self.suspected:
            self.suspected.remove(peer)
            yield Tell(Hears(peer))
        yield from self._time(now)

    def _ask_again(self, now: float) -> Iterator[OfPeer]:
        if self.hands.ready:
            self._silence.only((), now)
            self.state = PeerState.HELD
            yield At(now, BEGIN)
        else:
            yield from self._time(now)

    def _time(self, now: float) -> Iterator[OfPeer]:
        """Time those that it waits for now, and no others."""
        if self.state is not PeerState.BLOCKED:
            return
        self._silence.only(self.hands.waits_for, now)
        deadline = self._silence.next_deadline
        if deadline is not None and max(now, deadline) < self.look:
            self.look = max(now, deadline)
            yield At(self.look, SILENT)

    def _suspect(self, now: float) -> Iterator[OfPeer]:
        """Wait no longer for those that have been silent for too long."""
        self.look = math.inf
        if self.state is not PeerState.BLOCKED:
            return
        for peer in self._silence.overdue(now):
            self.suspected.add(peer)
            yield Tell(Suspects(peer, self._silence.lasts(peer, now)))
            self._silence.ends(peer)
            self.hands.suspect(peer)
        yield from self._ask_again(now)

"""The worker: it computes at parameters of one or several servers, and sends what it has computed.

==========  ==========================  ==========  ===========================================
state       event                       next        actions
==========  ==========================  ==========  ===========================================
START       Opened, the last one        ASKED       asking: Pull to all
                                        LISTENING   sent every version: none
ASKED       Received, the last one      COMPUTING   Compute
LISTENING   Received, complete          COMPUTING   Compute
COMPUTING   Received, Push & Wait       COMPUTING   none; it is noted
COMPUTING   Received, Push & Interrupt  COMPUTING   Compute; the job before is dropped
COMPUTING   Computed, leg asks          ASKED       Push if the leg pushes, and Pull, to each
COMPUTING   Computed, leg does not ask  COMPUTING   Push to each; Compute at the same bases
COMPUTING   Computed, late              COMPUTING   Report to all; Compute at the newest
COMPUTING   Computed, in time           LISTENING   Push, or Report where it pushed before
COMPUTING   Lost                        ASKED       none; the server is greeted and asked again
any         Stopped, the last one       OVER        Over
any         Opened again                the same    asking: Pull; what is older is not sent there
==========  ==========================  ==========  ===========================================

``Gathering`` says at which versions of several servers to compute, and what newer parameters do to a
computation; the legs of the half say what is sent after it.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto

from testbed.algorithms.server_half import Protocol
from testbed.algorithms.worker_half import ONE_GRADIENT, Leg
from testbed.engine.events import (
    Action,
    Coming,
    Compute,
    Computed,
    Event,
    Job,
    Lost,
    Opened,
    Over,
    Pull,
    Push,
    Received,
    Report,
    Send,
    Stopped,
)
from testbed.training.gathering import Gathering


class State(Enum):
    """The state of a worker."""

    START = auto()
    ASKED = auto()
    LISTENING = auto()
    COMPUTING = auto()
    OVER = auto()
    COMPUTED = auto()


class Worker:
    """One incarnation of a worker.

    Attributes:
        asks: True if it asks for parameters: then a job is always finished, and what it computes sent.
        job: the computation under way, or the last one; None before the first.
    """

    def __init__(
        self,
        protocol: Protocol,
        servers: int,
        legs: Sequence[Leg] = ONE_GRADIENT,
    ) -> None:
        self.state = State.START
        self.job: Job | None = None
        self._legs, self._ended = tuple(legs), 0
        self.asks = protocol == "pull"
        self._gathering = Gathering(protocol, servers)
        # By conversation: its session, and that in which the parameters of the job came.
        self._sessions = [-1] * servers
        self._based_on = [-1] * servers
        self._stopped = [False] * servers
        # By conversation: the version for which the worker pushed, if that was the last that came.
        self._pushed: list[int | None] = [None] * servers
        # Parameters that have arrived of servers that were restored while a worker computes that asks.
        self._early: list[Received] = []

    @property
    def sends_at_once(self) -> bool:
        """True if what it computes is certain to be sent as soon as it is computed."""
        return self.asks

    @property
    def gradients(self) -> int:
        assert self.job is not None
        return self._legs[self.job.leg].gradients

    def is_current(self, conversation: int) -> bool:
        """Return True unless the role there was greeted again since the job's parameters came."""
        return self._sessions[conversation] == self._based_on[conversation]

    def handle(self, event: Event, now: float = 0.0) -> Iterator[Action]:
        """Return the actions that follow an event; carry out each before the next is taken."""
        if isinstance(event, Received):
            return self._received(event)
        if isinstance(event, Computed):
            is_over = event.job == self.job and self.state is State.COMPUTING
            sends = self._sent_and_asked if self.asks else self._sent
            return sends(event.job) if is_over else iter(())
        if isinstance(event, Coming):
            self._gathering.sent(event.conversation)
            return iter(())
        return self._conversation(event)

    def _conversation(self, event: Event) -> Iterator[Action]:
        """Yield the actions that follow the beginning, the end or the loss of a conversation."""
        if isinstance(event, Opened):
            yield from self._opened(event.conversation, event.session)
        elif isinstance(event, Stopped):
            self._stopped[event.conversation] = True
            if all(self._stopped):
                self.state = State.OVER
                yield Over()
            else:
                yield from self._goes_on_without(event.conversation)
        elif isinstance(event, Lost):
            self.state = State.ASKED if self.asks else State.LISTENING
            yield from self._take_early()

    def _goes_on_without(self, conversation: int) -> Iterator[Action]:
        """Wait no longer for a server that has stopped."""
        return self._begin(self._gathering.stopped(conversation))

    def _opened(self, conversation: int, session: int) -> Iterator[Action]:
        again = self._sessions[conversation] >= 0
        self._sessions[conversation] = session
        if again:
            self._gathering.restored(conversation)
            self._early = [one for one in self._early if one.conversation != conversation]
            if self.asks and self.state is not State.START:
                yield Send(conversation, Pull())
        if self.state is State.START and min(self._sessions) >= 0:
            self.state = State.ASKED if self.asks else State.LISTENING
            if self.asks:
                yield from (Send(one, Pull()) for one in range(len(self._sessions)))

    def _received(self, received: Received) -> Iterator[Action]:
        if self.asks and self.state is State.COMPUTING:
            self._early.append(received)
            return
        if self._pushed[received.conversation] == received.version:
            # The server had suspected this worker, and starts anew.
            self._pushed[received.conversation] = None
        versions = self._gathering.arrived(received.conversation, received.version)
        yield from self._begin(versions)

    def _begin(self, versions: Sequence[int] | None) -> Iterator[Action]:
        """Start to compute at versions, by conversation; None: not now."""
        if versions is None:
            return
        self._based_on = list(self._sessions)
        self.state = State.COMPUTING
        yield self._compute(tuple(versions))

    def _compute(self, bases: tuple[int, ...]) -> Compute:
        number = 1 if self.job is None else self.job.number + 1
        self.job = Job(number, bases, self._ended % len(self._legs))
        return Compute(self.job)

    def _sent_and_asked(self, job: Job) -> Iterator[Action]:
        leg = self._legs[job.leg]
        self._ended += 1
        for one in range(len(self._sessions)):
            # A server that was greeted again was asked then, and takes nothing of before.
            if self.is_current(one):
                if leg.pushes:
                    yield Send(one, Push(job))
                if leg.asks:
                    yield Send(one, Pull())
        if not leg.asks:
            yield self._compute(job.bases)  # at the worker's own copy
            return
        self.state = State.ASKED
        yield from self._take_early()

    def _take_early(self) -> Iterator[Action]:
        """Take in what has come from restored servers in the meantime."""
        early, self._early = self._early, []
        for received in early:
            yield from self._received(received)

    def _sent(self, job: Job) -> Iterator[Action]:
        late, following = self._gathering.finished()
        for one, base in enumerate(job.bases):
            if not self.is_current(one):
                continue
            if late or self._pushed[one] == base:
                yield Send(one, Report(base))
            else:
                self._pushed[one] = base
                yield Send(one, Push(job))
        self.state = State.LISTENING
        yield from self._begin(following)

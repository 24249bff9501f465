"""A worker that computes its next gradient while its last push leaves and the answer to it comes.

==========  ============================  ==========  ==============================================
state       event                         next        actions
==========  ============================  ==========  ==============================================
START       Opened, the last one          ASKED       Pull to all
ASKED       Received, the last one        COMPUTING   Compute
COMPUTING   Received                      COMPUTING   none; it is noted
COMPUTING   Computed, all have answered   COMPUTING   Push and Pull to each; Compute at the newest
COMPUTING   Computed, one has not         COMPUTED    none
COMPUTED    Received, the last one        COMPUTING   Push and Pull to each; Compute at the newest
any         Stopped, the last one         OVER        Over
any         Opened again                  the same    Pull; what is older is not sent there
==========  ============================  ==========  ==============================================

At most one push is on its way, and what is computed meanwhile is pushed once that has been answered.
The first gradient is followed by another one at the same parameters, as there are no newer ones then.
An answer at the version that the worker has brings nothing: a server gives it where it took no push in,
as it had suspected the worker; what a rule then estimates anew for the worker is of the same version.
"""

from collections.abc import Iterator, Sequence

from testbed.algorithms.server_half import Protocol
from testbed.algorithms.worker_half import ONE_GRADIENT, Leg
from testbed.engine.events import Action, Coming, Event, Job, Pull, Push, Received, Send
from testbed.engine.worker import State, Worker
from testbed.training import computation
from testbed.training.settings import Settings


class OverlappingWorker(Worker):
    """One incarnation of such a worker; each of its legs pushes and asks."""

    def __init__(self, servers: int, legs: Sequence[Leg] = ONE_GRADIENT) -> None:
        super().__init__("pull", servers, legs)
        # By conversation: the version that came last, whether an answer is to come, and whether it
        # was sent.
        self._newest = [-1] * servers
        self._awaited = [False] * servers
        self._on_the_way = [False] * servers

    @property
    def sends_at_once(self) -> bool:
        return False

    def handle(self, event: Event, now: float = 0.0) -> Iterator[Action]:
        if isinstance(event, Coming):
            self._on_the_way[event.conversation] = True
            return iter(())
        return super().handle(event, now)

    def _opened(self, conversation: int, session: int) -> Iterator[Action]:
        for action in super()._opened(conversation, session):
            if isinstance(action, Send):
                self._awaited[action.conversation] = True
            yield action

    def _received(self, received: Received) -> Iterator[Action]:
        one = received.conversation
        self._newest[one] = received.version
        self._awaited[one] = self._on_the_way[one] = False
        yield from self._go_on()

    def _goes_on_without(self, conversation: int) -> Iterator[Action]:
        self._awaited[conversation] = self._on_the_way[conversation]
        yield from self._go_on()

    def _sent_and_asked(self, job: Job) -> Iterator[Action]:
        self.state = State.COMPUTED
        yield from self._go_on()

    def _go_on(self) -> Iterator[Action]:
        """Send what was computed, and compute again, unless an answer is to come first."""
        if self.state not in (State.ASKED, State.COMPUTED) or any(self._awaited):
            return
        if self.state is State.COMPUTED:
            assert self.job is not None
            for one, session in enumerate(self._sessions):
                # A server that was greeted again takes nothing of before.
                if session == self._based_on[one]:
                    yield Send(one, Push(self.job))
                yield Send(one, Pull())
                self._awaited[one] = not self._stopped[one]
        yield from self._begin(self._newest)


def worker_of(settings: Settings, protocol: Protocol, servers: int, number: int) -> Worker:
    """Return the role of a run's worker, or of an aggregator by its number as one."""
    legs = computation.legs(settings, number)
    if computation.overlaps(settings):
        return OverlappingWorker(servers, legs)
    return Worker(protocol, servers, legs)

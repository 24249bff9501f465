"""The aggregator: a server of its cluster's devices, and a worker of the server above.

=========  ==============================  =========  ================================================
state      event                           next       actions
=========  ==============================  =========  ================================================
CLOSED     Opened(ABOVE)                   CLOSED     Send(ABOVE, Pull)
CLOSED     Received(ABOVE)                 COMBINING  Compute: take the parameters over
COMBINING  Settled, and it has closed      CLOSED     Send(ABOVE, Sum, Pull)
COMBINING  Settled, with nothing in it     CLOSED     Send(ABOVE, Report), WhenLeft(RESTED)
CLOSED     Due(RESTED)                     RESTING    none
RESTING    Settled, and a device is there  CLOSED     Send(ABOVE, Pull)
any        Opened(ABOVE) again             CLOSED     Send(ABOVE, Pull); what devices compute is lost
any        Stopped(ABOVE)                  the same   Over
=========  ==============================  =========  ================================================

What comes of a device, and every moment that is due, is the server's below. It greets the server above
when training begins below, so that training begins when all devices of all clusters are there. An
aggregator whose devices are all gone rests: the server waits for it no longer.
"""

from collections.abc import Iterator

from testbed.algorithms.aggregator_half import CombiningHalf
from testbed.checkpoints.stateful import Stateful
from testbed.engine.events import (
    Action,
    Computed,
    Due,
    End,
    Event,
    Lost,
    Opened,
    Pull,
    Received,
    Report,
    Send,
    Settled,
    Stopped,
    Sum,
    Token,
    What,
    WhenLeft,
)
from testbed.engine.server import Server
from testbed.engine.worker import State, Worker
from testbed.training.aggregator_service import AggregatorService

ABOVE = -1
"""The conversation with the server above; those with devices have the devices' numbers."""


class Aggregator(Stateful):
    """One aggregator of a run.

    Attributes:
        below: the server of its devices.
    """

    not_saved = frozenset({"_half", "_service"})

    def __init__(self, below: Server, half: CombiningHalf) -> None:
        assert isinstance(below.service, AggregatorService)
        self.below = below
        self._service, self._half = below.service, half
        self._above = Worker("pull", 1)
        self._rests = False

    def handle(self, event: Event, now: float = 0.0) -> Iterator[Action]:
        """Yield the actions that follow an event; carry out each before the next is taken.

        Parameters from above are received as the service adopts them, when ``Compute`` is carried out.

        Args:
            now: seconds since all devices were there; 0 before that.

        Raises:
            UnexpectedMessageError: a device, or the server, has sent what it must not.
        """
        if isinstance(event, Opened | Received | Stopped) and event.conversation == ABOVE:
            yield from self._from_above(event, now)
            return
        if isinstance(event, Due) and event.token.what is What.RESTED:
            self._rests = True
            return
        if isinstance(event, Settled) and not self._service.finished:
            yield from self._to_above()
        yield from self.below.handle(event, now)

    def _from_above(self, event: Opened | Received | Stopped, now: float) -> Iterator[Action]:
        if isinstance(event, Received):
            yield from self._above.handle(Received(0, event.version))
        elif isinstance(event, Opened):
            if event.session:
                self._service.lose_server()
                self._give_up()
            self._rests = False
            yield from _upwards(self._above.handle(Opened(0, event.session)))
        else:
            self._service.stop()
            yield from self.below.handle(End(), now)

    def _to_above(self) -> Iterator[Action]:
        """Push a combination that has closed, or ask again if a device has come."""
        if self._half.is_due:
            combined = self._half.take()
            job = self._above.job
            assert job is not None
            if combined is not None:
                for action in _upwards(self._above.handle(Computed(job))):
                    pushes = not isinstance(action.message, Pull)
                    yield Send(ABOVE, Sum(combined)) if pushes else action
                return
            self._give_up()
            yield Send(ABOVE, Report(self._half.version))
            yield WhenLeft(Token(What.RESTED))
        elif self._rests and not self._service.is_deserted:
            self._rests = False
            yield Send(ABOVE, Pull())

    def _give_up(self) -> None:
        job = self._above.job
        if job is not None and self._above.state is State.COMPUTING:
            list(self._above.handle(Lost(job)))


def _upwards(actions: Iterator[Action]) -> Iterator[Send]:
    """Yield what a worker sends to its only server, as sent above."""
    for action in actions:
        if isinstance(action, Send):
            yield Send(ABOVE, action.message)

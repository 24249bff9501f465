"""The aggregator: a server of its cluster's devices, and a worker of the servers above.

=========  ==============================  =========  ================================================
state      event                           next       actions
=========  ==============================  =========  ================================================
CLOSED     Opened above, the last one      CLOSED     Pull to all above
CLOSED     Received above, the last one    COMBINING  Compute: take the parameters over
COMBINING  Settled, and it has closed      CLOSED     Sum and Pull to each above
COMBINING  Settled, with nothing in it     CLOSED     Report to each above; WhenLeft(RESTED)
CLOSED     Due(RESTED)                     RESTING    none
RESTING    Settled, and a device is there  CLOSED     Pull to all above
any        Opened above again              CLOSED     Pull; of an only one, what devices compute is lost
any        Stopped above, the last one     the same   Over
=========  ==============================  =========  ================================================

What comes of a device, and every moment that is due, is the server's below. Above it is a ``Worker``
of another aggregator, of the only server, or of several, of which each has a slice of the parameters.
It greets them when training begins below, so that training begins when all devices of all clusters are
there. An aggregator whose devices are all gone rests: the servers wait for it no longer.

An only server that was killed has no use for a sum of later parameters than it has, so that the
combination is dropped. Of several, those that were not killed still take their parts of the sum.
"""

from collections.abc import Iterator
from dataclasses import replace

from testbed.algorithms.aggregator_half import CombiningHalf
from testbed.checkpoints.stateful import Stateful
from testbed.engine.events import (
    Action,
    Coming,
    Computed,
    Due,
    End,
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


def above(place: int) -> int:
    """Return the number of the conversation with a role above, by its place among those, and back.

    Conversations with devices have the devices' numbers; these are below 0.
    """
    return -1 - place


class Aggregator(Stateful):
    """One aggregator of a run.

    Attributes:
        below: the server of its devices.
        places: those of the roles above, from 0.
    """

    not_saved = frozenset({"_half", "_service", "places"})

    def __init__(self, below: Server, half: CombiningHalf) -> None:
        assert isinstance(below.service, AggregatorService)
        self.below = below
        self._service, self._half = below.service, half
        self.places = range(self._service.calls)
        self._above = Worker("pull", self._service.calls)
        self._rests = False

    def handle(self, event: Event, now: float = 0.0) -> Iterator[Action]:
        """Yield the actions that follow an event; carry out each before the next is taken.

        Parameters from above are received as the service adopts them, when ``Compute`` is carried out.

        Args:
            now: seconds since all devices were there; 0 before that.

        Raises:
            UnexpectedMessageError: a device, or a server, has sent what it must not.
        """
        if isinstance(event, Opened | Coming | Received | Stopped) and event.conversation < 0:
            yield from self._from_above(event, now)
            return
        if isinstance(event, Due) and event.token.what is What.RESTED:
            self._rests = True
            return
        if isinstance(event, Settled) and not self._service.finished:
            yield from self._to_above()
        yield from self.below.handle(event, now)

    def _from_above(
        self, event: Opened | Coming | Received | Stopped, now: float
    ) -> Iterator[Action]:
        place, rested = above(event.conversation), False
        if isinstance(event, Opened):
            rested, self._rests = self._rests, False
            if event.session and len(self.places) == 1:
                self._service.lose_server()
                self._give_up()
        for action in self._above.handle(replace(event, conversation=place)):
            if isinstance(action, Over):
                self._service.stop()
                yield from self.below.handle(End(), now)
            else:
                yield _upwards(action)
        if rested:  # one of them is asked again, so that all are
            yield from (Send(above(one), Pull()) for one in self.places if one != place)

    def _to_above(self) -> Iterator[Action]:
        """Push a combination that has closed, or ask again if a device has come."""
        if self._half.is_due:
            combined = self._half.take()
            job = self._above.job
            assert job is not None
            if combined is None:
                yield from self._report(job)
                return
            for action in self._above.handle(Computed(job)):
                if isinstance(action, Send) and isinstance(action.message, Push):
                    yield Send(above(action.conversation), Sum(combined))
                else:
                    yield _upwards(action)
        elif self._rests and not self._service.is_deserted:
            self._rests = False
            yield from (Send(above(one), Pull()) for one in self.places)

    def _report(self, job: Job) -> Iterator[Action]:
        """Report that nothing was combined, and rest, unless a role above has asked anew meanwhile.

        One that was greeted again since is to get a report of what it sends now: so the others are
        asked once more, and all get it after that.
        """
        current = [one for one in self.places if self._above.is_current(one)]
        rests = len(current) == len(self.places)
        for one in current:
            yield Send(above(one), Report(job.bases[one]))
            if not rests:
                yield Send(above(one), Pull())
        yield from map(_upwards, self._give_up())
        if rests:
            yield WhenLeft(Token(What.RESTED))

    def _give_up(self) -> list[Action]:
        job = self._above.job
        if job is not None and self._above.state is State.COMPUTING:
            return list(self._above.handle(Lost(job)))
        return []


def _upwards(action: Action) -> Action:
    """Return what the worker says, with the aggregator's number of the conversation."""
    if isinstance(action, Send):
        return replace(action, conversation=above(action.conversation))
    return action

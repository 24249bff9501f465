"""The server: it gathers its callers, takes in what they push, and answers those that are due.

=========  ================================  =========  ============================================
phase      event                             next       actions
=========  ================================  =========  ============================================
GATHERING  Opened, others are missing        GATHERING  Record(Connected); At(GATHERED)
GATHERING  Opened, the last one              TRAINING   Record(Connected, EvaluationDue,
                                                        TrainingBegan)
GATHERING  Due(GATHERED), some are there     TRAINING   Record(Remark, ..., TrainingBegan)
GATHERING  Began                             TRAINING   Record(EvaluationDue, TrainingBegan)
GATHERING  Restored                          GATHERING  At(BACK)
GATHERING  Opened, the last of those before  TRAINING   Record(Connected, TrainingBegan)
GATHERING  Due(BACK)                         TRAINING   Record(TrainingBegan)
any        Heard(Pull)                       the same   At(ASKED), at this moment
any        Due(ASKED)                        the same   Record(Welcomed) of a suspected one
TRAINING   Heard(Pushed)                     TRAINING   Record(Row, Diagnosed, EvaluationDue, ...)
TRAINING   the run's updates are complete    OVER       Over
TRAINING   Settled                           TRAINING   to each that is due: Send(Parameters)
TRAINING   Due(SILENT), and it is            TRAINING   Record(Suspected, ...)
TRAINING   Due(EXPIRED)                      TRAINING   Record of the update that this makes
TRAINING   Closed, too few are left          OVER       Record(Remark); Over
TRAINING   Closed, and may come back         TRAINING   At(RETURNED), and then as above
TRAINING   GivenUp, too few may come back    as Closed  as above, if too few are there
any        End                               OVER       Over
OVER       Opened                            OVER       Record(Connected); Send(Stop)
OVER       Heard                             OVER       none; it is counted
OVER       Closed                            OVER       none, though others waited for this one
=========  ================================  =========  ============================================

``ParameterService`` decides about the callers, each in a state of ``worker_states``. A server that is
restored after its last update waits in OVER for those that were there, and is over when they have had
their time. Who is still to come, and whether anything is, the virtual clock knows: under it a server
begins when it is told ``Began``, and ends with its last update.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from enum import Enum, auto

from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.checkpoints.stateful import Stateful
from testbed.engine.events import (
    Action,
    At,
    Began,
    Closed,
    Due,
    End,
    Event,
    GivenUp,
    Heard,
    Opened,
    Over,
    Parameters,
    Pull,
    Record,
    Restored,
    Send,
    Settled,
    Stop,
    Token,
    What,
)
from testbed.training.parameter_service import ParameterService
from testbed.training.service_entries import Connected, Entry, Remark, TrainingBegan

GATHERING_TIMEOUT = 30.0
"""Seconds without a further greeting after which training begins with those that are there."""
BACK_TIMEOUT = 2.0
"""Seconds without another one coming back after which a restored server goes on."""
RETURN_TIMEOUT = 30.0
"""Seconds that a killed caller may take to come back, in addition to its planned absence."""


class Phase(Enum):
    """The phase of a server."""

    GATHERING = auto()
    TRAINING = auto()
    OVER = auto()


class Server(Stateful):
    """One server of a run."""

    not_saved = frozenset({"service", "_callers", "_others", "_returning", "_given_up"})

    def __init__(
        self,
        service: ParameterService,
        callers: int | None,
        *,
        absence: float = 0.0,
        others: bool = False,
    ) -> None:
        """Set up the server, without callers.

        Args:
            callers: how many of them there will be; None: the clock knows.
            absence: the longest time that a killed one stays away, in seconds; 0: none comes back.
            others: True if there are other servers, with which a caller may train on.
        """
        self.phase = Phase.GATHERING
        self.service = service
        self._callers, self._others = callers, others
        self._returning = absence + RETURN_TIMEOUT if absence else 0.0
        self._given_up: set[int] = set()
        # Of a restored server that has not gone on yet: those that are still to come back.
        self._awaited: set[int] | None = None
        # How many have greeted, have come back and have gone: of their timers the last one counts.
        self._greetings = self._returns = self._departures = 0
        # By caller: when it is looked at next, as it may have been silent for too long.
        self._looks: dict[int, float] = {}
        self._expires: float | None = None

    @property
    def callers_return(self) -> bool:
        """True if a caller that is gone may come back."""
        return self._returning > 0

    def handle(self, event: Event, now: float = 0.0) -> Iterator[Action]:
        """Yield the actions that follow an event; carry out each before the next is taken.

        Args:
            now: seconds since training began, by the run's clock; 0 before that.

        Raises:
            UnexpectedMessageError: a caller has sent what it must not.
        """
        if isinstance(event, Heard):
            yield from self._heard(event, now)
        elif isinstance(event, Settled):
            yield from self._settled(event, now)
        elif isinstance(event, Opened):
            yield from self._opened(event, now)
        elif isinstance(event, Due):
            yield from self._due(event.token, event.time, now)
        elif isinstance(event, Closed):
            yield from self._closed(event.conversation, now)
        elif isinstance(event, Began):
            yield from self._begin(now)
        elif isinstance(event, Restored):
            yield from self._restored(event.there, now)
        elif isinstance(event, GivenUp):
            yield from self._give_up(event.callers)
        elif isinstance(event, End):
            yield from self._end()
        if self.phase is Phase.TRAINING:
            if self.service.finished:
                yield from self._end()
            elif self.service.half.deadline != self._expires:
                yield from self._limit()

    # -- gathering

    def _opened(self, opened: Opened, now: float) -> Iterator[Action]:
        caller, service = opened.conversation, self.service
        service.join(caller, now)
        service.count(caller, opened.size)
        if self._callers is None:
            return
        self._greetings += 1
        yield Record(Connected(service.workers))
        if self.phase is Phase.OVER:
            yield Send(caller, Stop())
        if self._awaited is not None:
            yield from self._came_back(caller, now)
        elif self.phase is Phase.GATHERING:
            if service.workers == self._callers:
                yield from self._begin(now)
            else:
                yield At(now + GATHERING_TIMEOUT, Token(What.GATHERED, number=self._greetings))
        yield from self._look(caller)

    def _begin(self, now: float) -> Iterator[Action]:
        self.phase = Phase.TRAINING
        yield from _records(self.service.begin())
        yield Record(TrainingBegan())
        yield from self._all_looks()
        yield from self._check()

    def _restored(self, there: Collection[int], now: float) -> Iterator[Action]:
        self._awaited = set(there)
        self._returning = max(self._returning, RETURN_TIMEOUT)
        if self.service.finished:
            self.phase = Phase.OVER
        yield At(now + BACK_TIMEOUT, Token(What.BACK))

    def _came_back(self, caller: int, now: float) -> Iterator[Action]:
        """Go on once those that were there are back, because an update may need several of them."""
        assert self._awaited is not None
        before = len(self._awaited)
        self._awaited.discard(caller)
        if not self._awaited:
            yield from self._go_on(now)
        elif len(self._awaited) < before:
            # One that faults kill and bring back again and again must not delay the others.
            self._returns += 1
            yield At(now + BACK_TIMEOUT, Token(What.BACK, number=self._returns))

    def _go_on(self, now: float) -> Iterator[Action]:
        self._awaited = None
        if self.phase is Phase.OVER:
            yield Over()
            return
        self.phase = Phase.TRAINING
        self.service.begin_again(now)
        yield Record(TrainingBegan())
        yield from self._all_looks()
        yield from self._gone(now)

    # -- training

    def _heard(self, heard: Heard, now: float) -> Iterator[Action]:
        caller, message, service = heard.conversation, heard.message, self.service
        service.count(caller, heard.size)
        if isinstance(message, Pull):
            if self._trains_on:
                return
            if service.is_asking(caller):
                raise UnexpectedMessageError(
                    "a pull before the parameters of the last one were read"
                )
            # It is sent the newest version of this moment, and its bytes are those of what it asks by.
            yield At(now, Token(What.ASKED, caller))
            return
        if self.phase is Phase.GATHERING:
            raise UnexpectedMessageError("a push before training began")
        if self.phase is Phase.OVER:
            service.count_late(caller, 0, message.payload_bytes)
        else:
            host_time = now if heard.host_time is None else heard.host_time
            yield from _records(service.pushed(caller, message, now, host_time))
        if not heard.more:
            yield from self._look(caller)

    @property
    def _trains_on(self) -> bool:
        """True if callers that ask are answered by other servers only."""
        return self._others and self.phase is Phase.OVER

    def _settled(self, settled: Settled, now: float) -> Iterator[Action]:
        if self.phase is not Phase.TRAINING:
            return
        service = self.service
        for caller in service.due(settled.room, now):
            yield Send(caller, Parameters())
            service.sent(caller, now)
            yield from self._look(caller)
        if self._callers is not None and service.stalled and service.half.deadline is None:
            yield Record(
                Remark("all workers wait for parameters, and none will push", is_error=True)
            )
            yield from self._end()

    def _due(self, token: Token, time: float, now: float) -> Iterator[Action]:
        if token.what is What.ASKED:
            if not self._trains_on:
                yield from _records(self.service.asked(token.conversation, now))
        elif token.what is What.SILENT:
            yield from self._look_again(token.conversation, time, now)
        elif token.what is What.GATHERED:
            if self.phase is Phase.GATHERING and token.number == self._greetings:
                yield from self._begin_without_some(now)
        elif token.what is What.BACK:
            if self._awaited is not None and token.number == self._returns:
                yield from self._go_on(now)
        elif token.what is What.RETURNED:
            if token.number == self._departures:
                yield from self._check()
        elif token.what is What.EXPIRED:
            deadline = self.service.half.deadline
            if self.phase is Phase.TRAINING and deadline is not None and time >= deadline:
                yield from _records(self.service.expire())

    def _begin_without_some(self, now: float) -> Iterator[Action]:
        assert self._callers is not None
        missing = self._callers - self.service.workers
        if missing == self._callers:
            yield from self._check()
            return
        yield Record(Remark(f"training begins without {missing} workers"))
        yield from self._begin(now)

    def _limit(self) -> Iterator[Action]:
        deadline = self.service.half.deadline
        if deadline is not None:
            self._expires = deadline
            yield At(deadline, Token(What.EXPIRED))

    # -- callers that are silent

    def _all_looks(self) -> Iterator[Action]:
        for caller in self.service.present:
            yield from self._look(caller)

    def _look(self, caller: int) -> Iterator[Action]:
        """Look at a caller as soon as it will have been silent for too long."""
        deadline = self.service.deadline(caller)
        if deadline is not None and deadline < self._looks.get(caller, math.inf):
            self._looks[caller] = deadline
            yield At(deadline, Token(What.SILENT, caller))

    def _look_again(self, caller: int, time: float, now: float) -> Iterator[Action]:
        if self._looks.get(caller) != time:
            return  # an earlier look was asked for after this one
        del self._looks[caller]
        deadline = self.service.deadline(caller)
        if deadline is None or deadline > time:
            yield from self._look(caller)
        elif self.phase is Phase.TRAINING:
            yield from _records(self.service.suspect(caller, now))

    # -- callers that are gone, and the end

    def _closed(self, caller: int, now: float) -> Iterator[Action]:
        self._looks.pop(caller, None)
        yield from _records(self.service.leave(caller, over=self.phase is Phase.OVER))
        if self.phase is Phase.TRAINING and not self.service.finished:
            yield from self._gone(now)

    def _gone(self, now: float) -> Iterator[Action]:
        """Find whether those that are left are enough, once those that are gone may have come back."""
        self._departures += 1
        if self._returning and not self._are_too_few_left:
            yield At(now + self._returning, Token(What.RETURNED, number=self._departures))
        else:
            yield from self._check()

    def _give_up(self, callers: Collection[int]) -> Iterator[Action]:
        self._given_up.update(callers)
        if self._are_too_few_left and self.phase is Phase.TRAINING:
            yield from self._check()

    @property
    def _are_too_few_left(self) -> bool:
        """True if there cannot be enough again, even if all that are not given up come back."""
        callers = self._callers
        return callers is not None and callers - len(self._given_up) < self.service.half.needed

    def _check(self) -> Iterator[Action]:
        remark = None if self._callers is None else too_few(self.service)
        if remark is not None and self.phase is not Phase.OVER:
            yield Record(remark)
            yield from self._end()

    def _end(self) -> Iterator[Action]:
        if self.phase is not Phase.OVER:
            self.phase = Phase.OVER
            yield Over()


def too_few(service: ParameterService) -> Remark | None:
    """Return what is to be said where too few are there for another update; None if they are enough."""
    there, needed = service.workers, service.half.needed
    if there >= needed:
        return None
    if not service.makes_updates:
        # The server and the other aggregators go on.
        return Remark("no device of its cluster is left", of_role=True)
    left = f"{there} workers are left, and an update needs {needed}"
    return Remark(left if there else "no worker is left", is_error=True)


def _records(entries: Iterable[Entry]) -> Iterator[Action]:
    return map(Record, entries)

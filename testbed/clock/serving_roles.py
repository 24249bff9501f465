"""The roles that serve, under the virtual clock: they are told what happens, and do what they say.

After each event every role answers those that are due; an aggregator pushes first what has closed. A
question is taken at its moment once all else that comes at that moment has come. A frozen aggregator is
told what comes of its devices' deaths and returns, and answers nobody before its thaw.
"""

from collections.abc import Container, Sequence
from functools import partial
from typing import Protocol

from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.checkpoints.stateful import Stateful
from testbed.clock.conversations import Conversations
from testbed.clock.event_clock import ClockFaults
from testbed.clock.event_queue import ASKED, EXPIRED, SILENT, EventQueue
from testbed.clock.stage import Arrived, Stage
from testbed.engine.aggregator import Aggregator, above
from testbed.engine.events import (
    Action,
    At,
    Began,
    Compute,
    Due,
    Event,
    Heard,
    Opened,
    Pull,
    Record,
    Send,
    Settled,
    Stopped,
    Sum,
    Token,
    What,
    WhenLeft,
)
from testbed.engine.server import Server
from testbed.training.aggregator_service import AggregatorService
from testbed.training.parameter_service import ParameterService
from testbed.training.service_entries import TrainingBegan


class Clock(Protocol):
    """The clock around servers, as its roles that serve need it."""

    now: float
    conversations: Conversations
    strikes: ClockFaults | None
    events: EventQueue

    @property
    def devices(self) -> Container[int]:
        """The workers that take part."""

    def ends(self, conversation: int) -> tuple[int, int]:
        """Return the worker and the server of a conversation."""

    def has_room(self, server: int, worker: int) -> bool:
        """Return True if what a worker was sent before by a server has left its downlink."""

    def answer(self, worker: int, server: int) -> None:
        """Send a worker a server's parameters."""

    def send_up(self, worker: int) -> None:
        """Put what a worker has sent to its servers on its uplink."""

    def remove(self, worker: int) -> None:
        """Remove a worker that is gone."""

    def is_frozen(self, server: int) -> bool:
        """Return True if an aggregator, by its index, is frozen, and does nothing."""

    def stop(self, server: int) -> None:
        """Tell every worker that a server's updates are complete, so that none waits for it."""


class ServingRoles(Stateful):
    """The servers and then the aggregators of a run, by their indices."""

    not_saved = frozenset({"_clock", "_services", "_stage", "_settled"})

    def __init__(self, clock: Clock, services: Sequence[ParameterService], stage: Stage) -> None:
        self._clock = clock
        self._services = services
        self._stage = stage
        self._roles = [_role_of(one, others=len(services) > 1) for one in services]
        self._settled = [Settled(partial(clock.has_room, one)) for one in range(len(services))]
        self._over = [False] * len(services)
        # Those whose updates are complete, which workers are told when all is settled; the
        # conversations over which workers ask at this moment; and how many reports of aggregators are
        # on their way, by their numbers as workers.
        self._ending: list[int] = []
        self._asking: list[int] = []
        self._reporting: dict[int, int] = {}

    def begin(self) -> None:
        for server in range(len(self._roles)):
            self.tell(server, Began())
        self.settle()

    def is_over(self, server: int) -> bool:
        """Return True if a server's updates are complete, and its workers were told so."""
        return self._over[server]

    # -- what workers send

    def take_in(self, conversation: int, arrived: Arrived) -> None:
        """Take in what has arrived from a worker or an aggregator; one that must not send it leaves."""
        clock = self._clock
        worker, server = clock.ends(conversation)
        late = self._services[server].finished
        push, questions = arrived.push, arrived.sizes
        try:
            if push is not None:
                size, *questions = arrived.sizes
                when = self._stage.host_time()
                self.tell(server, Heard(worker, push, size, more=bool(questions), host_time=when))
            for size in questions:
                self.tell(server, Heard(worker, Pull(), size))
        except UnexpectedMessageError as error:
            self._stage.refuse(conversation, error)
            clock.remove(worker)
            return
        has_update = push is not None and push.update is not None
        if has_update and clock.strikes and not (late or clock.conversations.place(conversation)):
            clock.strikes.pushed(worker)
        self._await_answers()
        if not has_update and worker in self._reporting:
            self._reported(worker)
        self.settle()

    def _reported(self, worker: int) -> None:
        """Tell an aggregator that a report has arrived, if it is the last one of its reports."""
        self._reporting[worker] -= 1
        if not self._reporting[worker]:
            del self._reporting[worker]
            below = self._clock.conversations.below(worker)
            assert below is not None
            self.tell(below, Due(Token(What.RESTED)))

    def _await_answers(self) -> None:
        """Schedule the answers to those that have asked, after all other events of this moment."""
        clock = self._clock
        for number in self._asking:
            if clock.conversations.worker(number) in clock.devices:
                clock.events.add(clock.now, ASKED, number)
        self._asking.clear()

    def join(self, worker: int, sizes: Sequence[int]) -> None:
        """Connect a worker that is back to its servers; it greets each and asks, in ``sizes`` bytes."""
        greeting, *questions = sizes
        for number in self._clock.conversations.of_worker(worker):
            server = self._clock.conversations.server(number)
            self.tell(server, Opened(worker, size=greeting))
            for size in questions:
                self.tell(server, Heard(worker, Pull(), size))

    def take_questions(self) -> None:
        """Answer those that have asked at this moment, as soon as all is settled."""
        asking, self._asking = self._asking, []
        for worker, server in map(self._clock.ends, asking):
            self.tell(server, Due(Token(What.ASKED, worker), self._clock.now))

    # -- events and actions

    def settle(self) -> None:
        """Have all roles answer those that are due, and tell workers which servers are over."""
        for server, settled in enumerate(self._settled):
            if not self._clock.is_frozen(server):
                self.tell(server, settled)
            if server in self._ending:
                self._ending.remove(server)
                self._end(server)

    def _end(self, server: int) -> None:
        self._over[server] = True
        of_run = (one for one in self._services if one.makes_updates)
        if self._services[server].makes_updates and all(one.finished for one in of_run):
            for index, role in enumerate(self._roles):
                if isinstance(role, Aggregator):
                    for place in role.places:
                        self.tell(index, Stopped(above(place)))
        self._clock.stop(server)

    def tell(self, server: int, event: Event) -> None:
        """Tell a role of an event, and do what it says.

        Raises:
            UnexpectedMessageError: a worker has sent what it must not.
        """
        has_pushed = False
        for action in self._roles[server].handle(event, self._clock.now):
            if isinstance(action, Record):
                if not isinstance(action.entry, TrainingBegan):
                    self._stage.record(server, [action.entry])
            elif isinstance(action, At):
                self._tell_at(server, action)
            elif not isinstance(action, Send):
                self._do(server, action)
            elif action.conversation >= 0:
                self._clock.answer(action.conversation, server)
            elif not has_pushed:  # otherwise it asks, and pushes to others, by the same messages
                has_pushed = self._send_above(server, action)

    def _tell_at(self, server: int, at: At) -> None:
        clock, token = self._clock, at.token
        if token.what is What.EXPIRED:
            clock.events.add(at.time, EXPIRED, server)
            return
        number = clock.conversations.between(token.conversation, server)
        if token.what is What.ASKED:
            self._asking.append(number)
        else:
            clock.events.add(at.time, SILENT, number, at.time)

    def _do(self, server: int, action: Action) -> None:
        """Carry out what only aggregators say, or note that a server's updates are complete."""
        worker = self._clock.conversations.above(server)
        if isinstance(action, Compute):
            assert worker is not None
            self._stage.adopt(worker, action.job.bases, self._clock.now)
        elif isinstance(action, WhenLeft):
            assert worker is not None
            assert action.token.what is What.RESTED
            self._reporting[worker] = len(self._clock.conversations.of_worker(worker))
        else:
            self._ending.append(server)

    def _send_above(self, server: int, send: Send) -> bool:
        """Send an aggregator's push to all that it calls, or a question, which takes no time.

        Returns:
            True if it pushes.
        """
        numbers, message = self._clock.conversations, send.message
        worker = numbers.above(server)
        assert worker is not None
        if not isinstance(message, Pull):
            self._stage.push(worker, message.combined if isinstance(message, Sum) else None)
            self._clock.send_up(worker)
            return True
        number = numbers.of_worker(worker)[above(send.conversation)]
        size = self._stage.ask(number)
        self.tell(numbers.server(number), Heard(worker, message, size))
        self._await_answers()
        return False


def _role_of(service: ParameterService, *, others: bool) -> Server | Aggregator:
    """Return a role whose workers the clock knows."""
    server = Server(service, None, others=others)
    if isinstance(service, AggregatorService):
        return Aggregator(server, service.half)
    return server

"""The processors of servers under the virtual clock: messages take them time, and wait for them.

Without ``costs`` a server takes in what arrives at that moment. With them each server and aggregator
has one processor, which handles one message after the other. A message occupies it for ``message``
seconds, ``byte`` seconds for each of its bytes and, if it is a push with an update, ``apply`` seconds
for each parameter that the server holds. What has arrived is taken in when that is over, and parameters
leave when it is. As a server answers before it reads on, parameters to send come before what waits to
be taken in; of both, what came first is handled first.

A worker on the machine of a server shares its processor. Messages go first: the worker's computation
stands still while they are handled, and ends as much later.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from testbed.checkpoints.stateful import Stateful
from testbed.clock.stage import Arrived
from testbed.experiment.sections.timing import CostsSpec


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Parameters for a worker: bytes of their message, and their version."""

    size: int
    version: int


Task: TypeAlias = tuple[int, Arrived | Outgoing]
"""A message that is handled, and its conversation's number."""


@dataclass(slots=True)
class _Processor:
    """One server's processor.

    Attributes:
        called: True if it handles a message, or is about to choose one.
        task: what it handles; None: nothing, or what came from or was for a worker that is gone.
        handling: True if it handles something.
        until: when it has handled what it handles, or handled last, in seconds of the run's clock.
        arrived: what has arrived, in its order, each with the time of its arrival.
        busy: the seconds for which it is occupied until then.
        begun, waited: how many arrivals it has begun to handle, and for how long they waited together.
    """

    called: bool = False
    task: Task | None = None
    handling: bool = False
    until: float = 0.0
    sending: deque[tuple[int, Outgoing]] = field(default_factory=deque)
    arrived: deque[tuple[int, Arrived, float]] = field(default_factory=deque)
    busy: float = 0.0
    begun: int = 0
    waited: float = 0.0

    def next(self, now: float) -> Task | None:
        """Take what is handled next from the queues; None if they are empty."""
        if self.sending:
            return self.sending.popleft()
        if not self.arrived:
            return None
        number, arrived, since = self.arrived.popleft()
        self.begun += 1
        self.waited += now - since
        return number, arrived

    def tasks(self) -> Iterator[Task]:
        """Yield what is handled, and all that waits."""
        if self.task is not None:
            yield self.task
        yield from self.sending
        yield from ((number, arrived) for number, arrived, _ in self.arrived)


STORED: tuple[type, ...] = (_Processor, Outgoing)
"""The classes in a state, besides plain values and those of messages."""


class ServerProcessors(Stateful):
    """The processors of servers and aggregators, by their indices."""

    not_saved = frozenset({"_costs", "_held"})

    def __init__(self, costs: CostsSpec, held: Sequence[int]) -> None:
        """Make idle processors.

        Args:
            held: the number of parameters that each server or aggregator holds.
        """
        self._costs, self._held = costs, held
        self._processors = {server: _Processor() for server in range(len(held))}
        self._sending: set[int] = set()

    def arrive(self, server: int, conversation: int, arrived: Arrived, now: float) -> bool:
        """Keep what has arrived until its turn; return True if the processor is to be called."""
        self._processors[server].arrived.append((conversation, arrived, now))
        return self._call(server)

    def send(self, server: int, conversation: int, outgoing: Outgoing) -> bool:
        """Keep what is to be sent until its turn; return True if the processor is to be called."""
        self._processors[server].sending.append((conversation, outgoing))
        self._sending.add(conversation)
        return self._call(server)

    def _call(self, server: int) -> bool:
        one = self._processors[server]
        was_called, one.called = one.called, True
        return not was_called

    def begin(self, server: int, now: float, *, is_over: bool) -> float | None:
        """Begin with what is handled next; return when that is over, or None if nothing waits.

        Args:
            is_over: True if the server's updates are complete, so that it applies no push any more.
        """
        one = self._processors[server]
        one.task = one.next(now)
        one.handling = one.task is not None
        if one.task is None:
            one.called = False
            return None
        seconds = self._seconds(server, one.task[1], is_over=is_over)
        one.busy += seconds
        one.until = now + seconds
        return one.until

    def _seconds(self, server: int, message: Arrived | Outgoing, *, is_over: bool) -> float:
        """Return for how long a message occupies a server's processor."""
        costs = self._costs
        if isinstance(message, Outgoing):
            return costs.message + message.size * costs.byte
        seconds = len(message.sizes) * costs.message + message.size * costs.byte
        if not is_over and message.push is not None and message.push.update is not None:
            seconds += self._held[server] * costs.apply
        return seconds

    def handled(self, server: int) -> Task | None:
        """Return what was handled until now, if that is still of use."""
        one = self._processors[server]
        task, one.task, one.handling = one.task, None, False
        if task is not None:
            self._sending.discard(task[0])
        return task

    def is_handling(self, server: int) -> bool:
        return self._processors[server].handling

    def is_sending(self, conversation: int) -> bool:
        """Return True if parameters for a worker have not left yet."""
        return conversation in self._sending

    def tasks(self, server: int) -> Iterator[Task]:
        """Yield what a server handles, and all that waits."""
        return self._processors[server].tasks()

    def drop(self, server: int, conversation: int) -> list[Arrived]:
        """Forget what waits in a conversation; return what has arrived and was not taken in."""
        one = self._processors[server]
        found = [what for number, what in one.tasks() if number == conversation]
        if one.task is not None and one.task[0] == conversation:
            one.task = None
        one.sending = deque(task for task in one.sending if task[0] != conversation)
        one.arrived = deque(task for task in one.arrived if task[0] != conversation)
        self._sending.discard(conversation)
        return [what for what in found if isinstance(what, Arrived)]

    def free(self, server: int) -> float:
        """Return when a processor has handled what it handles now."""
        return self._processors[server].until

    def used(self, server: int, now: float) -> float:
        """Return the seconds for which a processor was occupied until now."""
        one = self._processors[server]
        return one.busy - max(0.0, one.until - now)

    def wait(self, server: int) -> float:
        """Return the mean seconds for which what arrived has waited for the processor."""
        one = self._processors[server]
        return one.waited / one.begun if one.begun else 0.0

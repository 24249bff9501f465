"""A role that serves, and its callers and its time, for tests: no socket, no thread, no sleep."""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from testbed.engine.events import (
    Action,
    At,
    Due,
    Event,
    Heard,
    Opened,
    Over,
    Parameters,
    Pull,
    Record,
    Send,
    Settled,
    WhenLeft,
)
from testbed.engine.server import Server
from testbed.training.parameter_service import ParameterService, Pushed
from testbed.training.service_entries import Entry
from tests.training.test_parameter_service import dense, service


@dataclass(frozen=True, slots=True)
class Answered(Parameters):
    """An answer that was carried out."""

    version: int


class Serving:
    """A server at work.

    Attributes:
        now: seconds since training began.
        tokens: what the role has asked to be told of, by its time.
        crowded: the callers for which there is no room.
    """

    def __init__(self, role: Server | None = None, callers: int = 2, **changes: Any) -> None:
        self.role = role or Server(service(**changes)[0], callers)
        self.now = 0.0
        self.tokens: list[tuple[float, int, Due]] = []
        self._at_once: list[Due] = []
        self.crowded: set[int] = set()
        self._order = itertools.count()

    @property
    def service(self) -> ParameterService:
        return self.role.service

    def tell(self, *events: Event) -> list[Action]:
        """Tell the role of events, each with what is due after it; return what it says but timers."""
        said: list[Action] = []
        for event in events:
            said += self._tell(event)
            said += self._tell_at_once()
            said += self.settle()
        return said

    def _tell_at_once(self) -> list[Action]:
        said: list[Action] = []
        while self._at_once:
            said += self._tell(self._at_once.pop(0))
        return said

    def settle(self) -> list[Action]:
        """Have the role answer those that are due, and tell it of what is due after that."""
        said = self._tell(Settled(self.has_room))
        while self._at_once:
            said += self._tell_at_once()
            said += self._tell(Settled(self.has_room))
        return said

    def _tell(self, event: Event) -> list[Action]:
        said: list[Action] = []
        for action in self.handle(event):
            if isinstance(action, WhenLeft):
                self._at_once.append(Due(action.token))
            elif isinstance(action, At) and action.time <= self.now:
                self._at_once.append(Due(action.token, action.time))
            elif isinstance(action, At):
                due = Due(action.token, action.time)
                heapq.heappush(self.tokens, (action.time, next(self._order), due))
            else:
                said.append(self.carry(action))
        return said

    def carry(self, action: Action) -> Action:
        """Carry out what is to be carried out before the next action; return that."""
        if isinstance(action, Send) and isinstance(action.message, Parameters):
            caller = action.conversation
            return Send(caller, Answered(self.service.answer(caller).version))
        return action

    def handle(self, event: Event) -> Iterator[Action]:
        """Tell the role of one event."""
        return self.role.handle(event, self.now)

    def has_room(self, caller: int) -> bool:
        return caller not in self.crowded

    def wait(self, seconds: float) -> list[Action]:
        """Let time pass, and tell the role of what is due meanwhile."""
        end, said = self.now + seconds, list[Action]()
        while self.tokens and self.tokens[0][0] <= end:
            self.now, _, due = heapq.heappop(self.tokens)
            said += self.tell(due)
        self.now = end
        return said

    def pushes(self, caller: int, base: int, **fields: Any) -> list[Action]:
        """Have a caller push, and ask."""
        return self.tell(*pushed(caller, base, **fields))


def pushed(
    caller: int, base: int, *, update: bool = True, asks: bool = True, count: int = 0
) -> list[Event]:
    """Return the events of a push, or of a report without an update."""
    push = replace(dense(base), count=count) if update else Pushed(base, None, 0, 0.0)
    return [Heard(caller, push, 100), *([Heard(caller, Pull(), 10)] if asks else [])]


def opened(*callers: int) -> list[Event]:
    """Return the events of callers that greet and ask."""
    return [event for one in callers for event in (Opened(one, size=20), Heard(one, Pull(), 10))]


def answers(said: list[Action]) -> list[tuple[int, int]]:
    """Return who is sent parameters, and their versions."""
    return [
        (one.conversation, one.message.version)
        for one in said
        if isinstance(one, Send) and isinstance(one.message, Answered)
    ]


def entries(said: list[Action]) -> list[Entry]:
    """Return what is recorded."""
    return [one.entry for one in said if isinstance(one, Record)]


def is_over(said: list[Action]) -> bool:
    """Return True if the role says that it is over, and check that it says so once, at the end."""
    over = [isinstance(one, Over) for one in said]
    assert sum(over) <= 1
    return any(over)

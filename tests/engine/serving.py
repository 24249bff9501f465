"""A role that serves, and its callers and its time, for tests: no socket, no thread, no sleep."""

import heapq
import itertools
from collections.abc import Iterator
from typing import Any

from testbed.engine.events import (
    Action,
    After,
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
    Token,
)
from testbed.engine.server import Server
from testbed.training.entries import Entry
from testbed.training.parameter_service import ParameterService, Pushed
from tests.training.test_parameter_service import dense, service


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
        self.tokens: list[tuple[float, int, Token]] = []
        self.crowded: set[int] = set()
        self._order = itertools.count()

    @property
    def service(self) -> ParameterService:
        return self.role.service

    def tell(self, *events: Event) -> list[Action]:
        """Tell the role of events, each with what is due after it; return what it says but timers."""
        return [action for event in events for action in (*self._tell(event), *self.settle())]

    def settle(self) -> list[Action]:
        """Have the role answer those that are due; return what it says but timers."""
        return self._tell(Settled(self.has_room))

    def _tell(self, event: Event) -> list[Action]:
        said: list[Action] = []
        for action in self.handle(event):
            if isinstance(action, After):
                assert action.seconds >= 0
                when = self.now + action.seconds
                heapq.heappush(self.tokens, (when, next(self._order), action.token))
            else:
                said.append(action)
        return said

    def handle(self, event: Event) -> Iterator[Action]:
        """Tell the role of one event."""
        return self.role.handle(event, self.now)

    def has_room(self, caller: int) -> bool:
        return caller not in self.crowded

    def wait(self, seconds: float) -> list[Action]:
        """Let time pass, and tell the role of what is due meanwhile."""
        end, said = self.now + seconds, list[Action]()
        while self.tokens and self.tokens[0][0] <= end:
            self.now, _, token = heapq.heappop(self.tokens)
            said += self.tell(Due(token))
        self.now = end
        return said

    def pushes(self, caller: int, base: int, **fields: Any) -> list[Action]:
        """Have a caller push, and ask."""
        return self.tell(*pushed(caller, base, **fields))


def pushed(caller: int, base: int, *, update: bool = True, asks: bool = True) -> list[Event]:
    push = dense(base) if update else Pushed(base, None, 0, 0.0)
    return [Heard(caller, push, 100), *([Heard(caller, Pull(), 10)] if asks else [])]


def opened(*callers: int) -> list[Event]:
    """Return the events of callers that greet and ask."""
    return [event for one in callers for event in (Opened(one, size=20), Heard(one, Pull(), 10))]


def answers(said: list[Action]) -> list[tuple[int, int]]:
    """Return who is sent parameters, and their versions."""
    return [
        (one.conversation, one.message.answer.version)
        for one in said
        if isinstance(one, Send) and isinstance(one.message, Parameters)
    ]


def entries(said: list[Action]) -> list[Entry]:
    """Return what is recorded."""
    return [one.entry for one in said if isinstance(one, Record)]


def is_over(said: list[Action]) -> bool:
    """Return True if the role says that it is over, and check that it says so once, at the end."""
    over = [isinstance(one, Over) for one in said]
    assert sum(over) <= 1
    return any(over)

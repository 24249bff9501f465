"""The life of each worker as its server sees it: one state, changed by events, as a table says.

``TRANSITIONS`` is the whole of it. An event that it does not name for a worker's state is an error of
the worker, or of this program, and raises. ``WorkerStates`` also keeps the order in which workers are
to be answered, which decides a run's result.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

from testbed.checkpoints.stateful import Stateful


class State(IntEnum):
    """The state of one worker."""

    GONE = 0
    """It is not there: it has never joined, or it has left."""
    JOINED = 1
    """It takes part, and was sent nothing since it joined or was welcomed back."""
    ASKING = 2
    """It is to be sent parameters: it has asked for them, or is sent every version."""
    BLOCKED = 3
    """It is to be sent parameters, and may not have the current version."""
    SENT = 4
    """It was sent parameters, and is to be sent no others for now."""
    SUSPECTED = 5
    """It was silent for too long, and is left out until it sends something."""


class Event(IntEnum):
    """An event in the life of one worker."""

    JOIN = 0
    """It has greeted; its former connection may have ended without notice."""
    ASK = 1
    """It asks for parameters."""
    OFFER = 2
    """There is a version that it is to be sent without asking."""
    BLOCK = 3
    """The current version is not for it."""
    RELEASE = 4
    """There is another version, or one worker less to wait for."""
    SEND = 5
    """It is sent the current version."""
    PUSH = 6
    """It has sent an update, or a report that it has finished."""
    SUSPECT = 7
    """It was silent for too long."""
    LEAVE = 8
    """It is gone."""


TRANSITIONS: Mapping[Event, Mapping[State, State]] = {
    Event.JOIN: dict.fromkeys(State, State.JOINED),
    Event.ASK: {
        State.JOINED: State.ASKING,
        State.SENT: State.ASKING,
        State.SUSPECTED: State.ASKING,
    },
    Event.OFFER: {
        State.JOINED: State.ASKING,
        State.ASKING: State.ASKING,
        State.SENT: State.ASKING,
    },
    Event.BLOCK: {State.ASKING: State.BLOCKED},
    Event.RELEASE: {State.BLOCKED: State.ASKING},
    Event.SEND: {State.ASKING: State.SENT},
    # A worker that is sent every version may push while a newer one waits for room on its link.
    Event.PUSH: {
        State.JOINED: State.JOINED,
        State.ASKING: State.ASKING,
        State.BLOCKED: State.BLOCKED,
        State.SENT: State.SENT,
        State.SUSPECTED: State.JOINED,
    },
    Event.SUSPECT: {
        State.JOINED: State.SUSPECTED,
        State.ASKING: State.SUSPECTED,
        State.BLOCKED: State.SUSPECTED,
        State.SENT: State.SUSPECTED,
    },
    Event.LEAVE: dict.fromkeys(State, State.GONE),
}
"""The state after an event, by the event and the state before it."""


class WrongEventError(ValueError):
    """An event that cannot happen to a worker in its state."""


class WorkerStates(Stateful):
    """The states of one run's workers."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        # By state, the workers in it: each in the order in which they came to it, unless noted.
        self._members: dict[State, dict[int, None]] = {state: {} for state in State}

    def state(self) -> dict[str, list[int]]:
        """Return the workers in each state, by its name, in their order."""
        return {state.name: list(members) for state, members in self._members.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put the workers into the states of a checkpoint."""
        self._members = {State[name]: dict.fromkeys(workers) for name, workers in state.items()}
        self._states = {worker: one for one, members in self._members.items() for worker in members}

    def __getitem__(self, worker: int) -> State:
        """Return a worker's state."""
        return self._states.get(worker, State.GONE)

    def __len__(self) -> int:
        """Return the number of workers that are there."""
        return len(self._states)

    def __iter__(self) -> Iterator[int]:
        """Yield the workers that are there, the lowest number first."""
        return iter(sorted(self._states))

    def within(self, state: State) -> Sequence[int]:
        """Return the workers in a state other than ``GONE``; asking workers in their turn."""
        return list(self._members[state])

    @property
    def all_blocked(self) -> bool:
        """True if there are workers, and all of them are blocked."""
        return 0 < len(self._states) == len(self._members[State.BLOCKED])

    def handle(self, event: Event, worker: int) -> State:
        """Change a worker's state as the event says; return the state before.

        Raises:
            WrongEventError: the event cannot happen in this state.
        """
        before = self._states.get(worker, State.GONE)
        after = TRANSITIONS[event].get(before)
        if after is None:
            raise WrongEventError(f"{event.name} does not follow {before.name} (worker {worker})")
        if after is before:
            return before
        if before is not State.GONE:
            del self._members[before][worker]
        if after is State.GONE:
            del self._states[worker]
        else:
            self._members[after][worker] = None
            self._states[worker] = after
        return before

    def line_up(self) -> None:
        """Order those that ask by number, whichever of them asked first."""
        self._members[State.ASKING] = dict.fromkeys(sorted(self._members[State.ASKING]))

    def offer(self) -> None:
        """Offer a new version to all workers but the suspected, the lowest number first."""
        offered = [worker for worker in self if self._states[worker] is not State.SUSPECTED]
        for worker in offered:
            self.handle(Event.OFFER, worker)
        self._members[State.ASKING] = dict.fromkeys(offered)

    def release(self) -> None:
        """Move the blocked workers to the front of those that ask."""
        blocked = self.within(State.BLOCKED)
        if not blocked:
            return
        for worker in blocked:
            self.handle(Event.RELEASE, worker)
        self._members[State.ASKING] = dict.fromkeys(blocked) | self._members[State.ASKING]

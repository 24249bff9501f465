"""The life of each worker as its server sees it: one state, changed by events, as a table says.

``TRANSITIONS`` is the whole of it. An event that it does not name for a worker's state is an error of
the worker, or of this program, and raises. ``WorkerStates`` also keeps the order in which workers are
to be answered, which decides a run's result.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from testbed.algorithms.server_half import UnexpectedMessageError
from testbed.checkpoints.stateful import State, Stateful


class WorkerState(IntEnum):
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


class WorkerEvent(IntEnum):
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


TRANSITIONS: Mapping[WorkerEvent, Mapping[WorkerState, WorkerState]] = {
    WorkerEvent.JOIN: dict.fromkeys(WorkerState, WorkerState.JOINED),
    WorkerEvent.ASK: {
        WorkerState.JOINED: WorkerState.ASKING,
        WorkerState.SENT: WorkerState.ASKING,
        WorkerState.SUSPECTED: WorkerState.ASKING,
    },
    WorkerEvent.OFFER: {
        WorkerState.JOINED: WorkerState.ASKING,
        WorkerState.ASKING: WorkerState.ASKING,
        WorkerState.SENT: WorkerState.ASKING,
    },
    WorkerEvent.BLOCK: {WorkerState.ASKING: WorkerState.BLOCKED},
    WorkerEvent.RELEASE: {WorkerState.BLOCKED: WorkerState.ASKING},
    WorkerEvent.SEND: {WorkerState.ASKING: WorkerState.SENT},
    # A worker that is sent every version may push while a newer one waits for room on its link.
    WorkerEvent.PUSH: {
        WorkerState.JOINED: WorkerState.JOINED,
        WorkerState.ASKING: WorkerState.ASKING,
        WorkerState.BLOCKED: WorkerState.BLOCKED,
        WorkerState.SENT: WorkerState.SENT,
        WorkerState.SUSPECTED: WorkerState.JOINED,
    },
    WorkerEvent.SUSPECT: {
        WorkerState.JOINED: WorkerState.SUSPECTED,
        WorkerState.ASKING: WorkerState.SUSPECTED,
        WorkerState.BLOCKED: WorkerState.SUSPECTED,
        WorkerState.SENT: WorkerState.SUSPECTED,
    },
    WorkerEvent.LEAVE: dict.fromkeys(WorkerState, WorkerState.GONE),
}
"""The state after an event, by the event and the state before it."""


class WrongEventError(UnexpectedMessageError):
    """An event that cannot happen to a worker in its state."""


class WorkerStates(Stateful):
    """The states of one run's workers."""

    def __init__(self) -> None:
        self._states: dict[int, WorkerState] = {}
        # By state, the workers in it: each in the order in which they came to it, unless noted.
        self._members: dict[WorkerState, dict[int, None]] = {state: {} for state in WorkerState}

    def state(self) -> dict[str, list[int]]:
        """Return the workers in each state, by its name, in their order."""
        return {state.name: list(members) for state, members in self._members.items()}

    def restore(self, state: State) -> None:
        self._members = {
            WorkerState[name]: dict.fromkeys(workers) for name, workers in state.items()
        }
        self._states = {worker: one for one, members in self._members.items() for worker in members}

    def __getitem__(self, worker: int) -> WorkerState:
        return self._states.get(worker, WorkerState.GONE)

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[int]:
        """Yield the workers that are there, the lowest number first."""
        return iter(sorted(self._states))

    def within(self, state: WorkerState) -> Sequence[int]:
        """Return the workers in a state other than ``GONE``; asking workers in their turn."""
        return list(self._members[state])

    @property
    def all_blocked(self) -> bool:
        """True if there are workers, and all of them are blocked."""
        return 0 < len(self._states) == len(self._members[WorkerState.BLOCKED])

    def handle(self, event: WorkerEvent, worker: int) -> WorkerState:
        """Change a worker's state as the event says; return the state before.

        Raises:
            WrongEventError: the event cannot happen in this state.
        """
        before = self._states.get(worker, WorkerState.GONE)
        after = TRANSITIONS[event].get(before)
        if after is None:
            raise WrongEventError(f"{event.name} does not follow {before.name} (worker {worker})")
        if after is before:
            return before
        if before is not WorkerState.GONE:
            del self._members[before][worker]
        if after is WorkerState.GONE:
            del self._states[worker]
        else:
            self._members[after][worker] = None
            self._states[worker] = after
        return before

    def line_up(self) -> None:
        """Order those that ask by number, whichever of them asked first."""
        self._members[WorkerState.ASKING] = dict.fromkeys(sorted(self._members[WorkerState.ASKING]))

    def offer(self) -> None:
        """Offer a new version to all workers but the suspected, the lowest number first."""
        offered = [worker for worker in self if self._states[worker] is not WorkerState.SUSPECTED]
        for worker in offered:
            self.handle(WorkerEvent.OFFER, worker)
        self._members[WorkerState.ASKING] = dict.fromkeys(offered)

    def release(self) -> None:
        """Move the blocked workers to the front of those that ask."""
        blocked = self.within(WorkerState.BLOCKED)
        if not blocked:
            return
        for worker in blocked:
            self.handle(WorkerEvent.RELEASE, worker)
        self._members[WorkerState.ASKING] = (
            dict.fromkeys(blocked) | self._members[WorkerState.ASKING]
        )

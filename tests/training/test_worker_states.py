"""The table of a worker's life, gone through in full, and the order in which workers are answered."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.training.worker_states import (
    TRANSITIONS,
    WorkerEvent,
    WorkerState,
    WorkerStates,
    WrongEventError,
)

WAYS: dict[WorkerState, tuple[WorkerEvent, ...]] = {
    WorkerState.GONE: (),
    WorkerState.JOINED: (WorkerEvent.JOIN,),
    WorkerState.ASKING: (WorkerEvent.JOIN, WorkerEvent.ASK),
    WorkerState.BLOCKED: (WorkerEvent.JOIN, WorkerEvent.ASK, WorkerEvent.BLOCK),
    WorkerState.SENT: (WorkerEvent.JOIN, WorkerEvent.ASK, WorkerEvent.SEND),
    WorkerState.SUSPECTED: (WorkerEvent.JOIN, WorkerEvent.SUSPECT),
}
"""By state, events that lead to it."""
EXPECTED = """
          GONE    JOINED    ASKING    BLOCKED   SENT      SUSPECTED
JOIN      JOINED  JOINED    JOINED    JOINED    JOINED    JOINED
ASK       -       ASKING    -         -         ASKING    ASKING
OFFER     -       ASKING    ASKING    -         ASKING    -
BLOCK     -       -         BLOCKED   -         -         -
RELEASE   -       -         -         ASKING    -         -
SEND      -       -         SENT      -         -         -
PUSH      -       JOINED    ASKING    BLOCKED   SENT      JOINED
SUSPECT   -       SUSPECTED SUSPECTED SUSPECTED SUSPECTED -
LEAVE     GONE    GONE      GONE      GONE      GONE      GONE
"""


def expected() -> dict[tuple[WorkerEvent, WorkerState], WorkerState | None]:
    """Return the state after each event in each state, as ``EXPECTED`` draws it; None: not allowed."""
    states, *rows = (line.split() for line in EXPECTED.strip().splitlines())
    return {
        (WorkerEvent[event], WorkerState[before]): None if after == "-" else WorkerState[after]
        for event, *row in rows
        for before, after in zip(states, row, strict=True)
    }


def brought_to(state: WorkerState, worker: int = 7) -> WorkerStates:
    states = WorkerStates()
    for event in WAYS[state]:
        states.handle(event, worker)
    assert states[worker] is state
    return states


@pytest.mark.parametrize("before", WorkerState)
@pytest.mark.parametrize("event", WorkerEvent)
def test_every_event_in_every_state(event: WorkerEvent, before: WorkerState) -> None:
    after = expected()[event, before]
    assert TRANSITIONS[event].get(before) is after
    states = brought_to(before)
    if after is None:
        with pytest.raises(WrongEventError, match=f"{event.name} does not follow {before.name}"):
            states.handle(event, 7)
        assert states[7] is before
        return
    assert states.handle(event, 7) is before
    assert states[7] is after
    assert len(states) == (after is not WorkerState.GONE)
    assert [one for one in WorkerState if 7 in states.within(one)] == [after] * len(states)


class Naive:
    """The same in lists that are searched: workers that ask and that are blocked, in their order."""

    def __init__(self) -> None:
        self.state: dict[int, WorkerState] = {}
        self.asking: list[int] = []
        self.blocked: list[int] = []

    def handle(self, event: WorkerEvent, worker: int) -> None:
        after = expected()[event, self.state.get(worker, WorkerState.GONE)]
        if after is None:
            raise WrongEventError
        self.state[worker] = after
        for queue, own in ((self.asking, WorkerState.ASKING), (self.blocked, WorkerState.BLOCKED)):
            if worker in queue and after is not own:
                queue.remove(worker)
            elif worker not in queue and after is own:
                queue.append(worker)

    def release(self) -> None:
        self.asking = self.blocked + self.asking
        for worker in self.blocked:
            self.state[worker] = WorkerState.ASKING
        self.blocked = []

    def offer(self) -> None:
        out = (WorkerState.GONE, WorkerState.SUSPECTED)
        self.asking = sorted(worker for worker, state in self.state.items() if state not in out)
        for worker in self.asking:
            self.state[worker] = WorkerState.ASKING


STEPS = st.one_of(
    st.tuples(st.sampled_from(list(WorkerEvent)), st.integers(0, 5)),
    st.tuples(st.sampled_from(["release", "a new version"]), st.none()),
)


@given(st.lists(STEPS, max_size=60))
def test_the_order_is_that_of_a_naive_model(
    steps: list[tuple[WorkerEvent | str, int | None]],
) -> None:
    states, naive = WorkerStates(), Naive()

    def both(step: Callable[[WorkerStates | Naive], object]) -> None:
        failed = []
        for one in (states, naive):
            try:
                step(one)
            except WrongEventError:
                failed.append(one)
        assert len(failed) != 1

    for what, worker in steps:
        if isinstance(what, WorkerEvent) and worker is not None:
            both(lambda one, event=what, of=worker: one.handle(event, of))  # type: ignore[misc]
        else:
            both(lambda one: one.release())
            if what == "a new version":
                both(lambda one: one.offer())
        there = [worker for worker, state in naive.state.items() if state is not WorkerState.GONE]
        assert list(states) == sorted(there)
        assert [states[one] for one in range(6)] == [
            naive.state.get(one, WorkerState.GONE) for one in range(6)
        ]
        assert states.within(WorkerState.ASKING) == naive.asking
        assert states.within(WorkerState.BLOCKED) == naive.blocked
        assert states.all_blocked == (0 < len(there) == len(naive.blocked))
        restored = WorkerStates()
        restored.restore(states.state())
        assert restored.state() == states.state()
        assert [restored[one] for one in range(6)] == [states[one] for one in range(6)]

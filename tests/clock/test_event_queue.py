"""The queue of events: their order, and moving those of one worker."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.clock.event_queue import FAULT, FINISHED, SERVED, SILENT, Event, EventQueue

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5).map(float),
        st.integers(FAULT, SILENT),
        st.integers(0, 3),
        st.integers(-1, 2).map(float),
    ),
    max_size=30,
)


def filled(events: list[Event]) -> EventQueue:
    queue = EventQueue()
    for event in events:
        queue.add(*event)
    return queue


def emptied(queue: EventQueue) -> list[Event]:
    return [queue.pop() for _ in range(len(queue))]


@given(EVENTS)
def test_events_come_by_time_then_rank_then_worker(events: list[Event]) -> None:
    queue = filled(events)
    assert queue.in_order() == sorted(events)
    for event in sorted(events):
        assert queue.next_time == event[0]
        assert queue.pop() == event
    assert not queue


@given(EVENTS, st.integers(0, 3))
def test_only_the_named_events_are_moved(events: list[Event], worker: int) -> None:
    queue = filled(events)
    chosen = (FINISHED, SERVED)
    queue.move((worker,), chosen, lambda time, what: None if what < 0 else time + 10 + what)
    kept = [event for event in events if event[2] != worker or event[1] not in chosen]
    moved = [
        (time + 10 + what, rank, whose, what)
        for time, rank, whose, what in events
        if whose == worker and rank in chosen and what >= 0
    ]
    later = [(time, what) for time, rank, _, what in moved if rank == SERVED]
    assert queue.of(worker, SERVED) == sorted(later)
    assert emptied(queue) == sorted(kept + moved)


def test_faults_alone_keep_no_run_going() -> None:
    queue = filled([(1.0, FAULT, 1, 0.0), (9.0, FINISHED, 0, 1.0)])
    assert queue.has_any_but_faults(9.0)
    assert not queue.has_any_but_faults(8.9)

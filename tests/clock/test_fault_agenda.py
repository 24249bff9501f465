"""Faults as events of the clock: which end, and which are still to come after a state."""

import pytest

from testbed.checkpoints.records import state_as_bytes, state_of_bytes
from testbed.clock.device_conditions import Condition
from testbed.clock.event_queue import FAULT, EventQueue
from testbed.clock.fault_agenda import STORED, FaultAgenda, Strike, StrikeEnd
from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Moment, Version
from testbed.faults.schedule import Schedule
from testbed.messages.fault_changes import Kind

LINKS = Fault(0, "stop-network", 1.0)


@pytest.mark.parametrize(
    ("kind", "ends"), [("freeze", [0]), ("slow", [0, 1]), ("stop-network", [0, 1])]
)
def test_a_killed_process_does_not_thaw_and_links_outlive_it(kind: Kind, ends: list[int]) -> None:
    devices = {0: Condition(), 1: Condition(incarnation=3), 2: Condition(lost=True)}
    end = StrikeEnd(Fault(0, kind, 1.0), 1, {0: 0, 1: 2, 2: 0})
    assert end.devices(devices.__getitem__) == ends


def schedule() -> Schedule:
    rules = [
        FaultRule("faults 0", Fault(0, "freeze", 1.0), [0], Moment(time))
        for time in (1.0, 2.0, 3.0)
    ]
    of_versions = [
        FaultRule("faults 1", Fault(1, "kill"), [device], Version(version))
        for device, version in ((1, 2), (2, 2), (3, 4), (4, 9))
    ]
    return Schedule([*rules, *of_versions], 1, 5)


def coming(events: EventQueue, agenda: FaultAgenda) -> list[tuple[float, Strike | StrikeEnd]]:
    """Take all events that are there, and await what is next after each."""
    found = []
    while events:
        time, rank, number, _ = events.pop()
        assert rank == FAULT
        action = agenda.take(number)
        found.append((time, action))
        if isinstance(action, Strike):
            agenda.await_next()
    return found


def test_an_agenda_that_goes_on_from_a_state_has_what_had_not_come() -> None:
    events, faults = EventQueue(), schedule()
    agenda = FaultAgenda(faults, events)
    agenda.await_next()
    (_, _, number, _) = events.pop()
    first = agenda.take(number)
    assert isinstance(first, Strike)
    agenda.await_next()
    agenda.post(2.5, StrikeEnd(first.fault, 1, {0: 0}))
    assert [fault.kind for _, fault in agenda.reached(lambda: 3)] == ["kill", "kill"]
    kept = state_as_bytes({"events": events.state(), "agenda": agenda.state()}, STORED)

    state = state_of_bytes(kept, STORED)
    others = EventQueue()
    again = FaultAgenda(faults, others)
    others.restore(state["events"])
    again.restore(state["agenda"])
    expected = coming(events, agenda)
    assert [time for time, _ in expected] == [2.0, 2.5, 3.0]
    assert coming(others, again) == expected
    assert [list(devices) for devices, _ in again.reached(lambda: 9)] == [[3], [4]]


def test_versions_that_are_reached_meanwhile_count() -> None:
    agenda = FaultAgenda(schedule(), EventQueue())
    versions = [1]
    assert not list(agenda.reached(lambda: versions[-1]))
    versions.append(2)
    struck: list[int] = []
    for devices, _ in agenda.reached(lambda: versions[-1]):
        struck += devices
        versions.append(4)  # what a kill leads to
    assert struck == [1, 2, 3]
    assert not list(agenda.reached(lambda: versions[-1]))

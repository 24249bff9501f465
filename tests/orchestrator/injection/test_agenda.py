"""The agenda: beginnings and ends of faults in the order in which they are due."""

import math

from testbed.faults.fault import Fault
from testbed.faults.rules import FaultRule, Moment
from testbed.faults.schedule import Schedule, TimedFault
from testbed.orchestrator.injection.agenda import Agenda, FaultEnd

FREEZE, KILL = Fault(0, "freeze", 2.0), Fault(1, "kill", 2.0)


def agenda() -> Agenda:
    """Make an agenda with a freeze at 1 s and a kill at 3 s of training."""
    both = zip((FREEZE, KILL), (1.0, 3.0), strict=True)
    rules = [
        FaultRule(f"faults {i}", fault, [i], Moment(time)) for i, (fault, time) in enumerate(both)
    ]
    return Agenda(Schedule(rules, 1, 2))


def test_events_come_in_order_and_an_end_before_a_beginning_at_once() -> None:
    mine = agenda()
    assert (mine.due, mine.take(1e9)) == (math.inf, None)  # training has not begun
    mine.begin(100.0, -math.inf)
    assert (mine.due, mine.take(100.9)) == (101.0, None)
    assert mine.take(101.0) == TimedFault(1.0, (0,), FREEZE)
    mine.end_at(103.0, FREEZE, {0: 0})
    mine.end_at(102.5, KILL, {1: 4})
    assert mine.due == 102.5 and mine.has_end(1) and not mine.has_end(0)
    taken = [mine.take(103.0) for _ in range(3)]
    assert [(one.fault, one.struck) for one in taken if isinstance(one, FaultEnd)] == [
        (KILL, {1: 4}),
        (FREEZE, {0: 0}),
    ]
    assert taken[2] == TimedFault(3.0, (1,), KILL)
    assert (mine.due, mine.take(1e9)) == (math.inf, None)


def test_a_fault_that_began_in_an_earlier_session_does_not_begin_again() -> None:
    mine = agenda()
    mine.begin(100.0, 1.0)
    assert mine.due == 103.0
    mine.end_at(101.0, FREEZE, {0: 0})
    mine.clear()
    assert mine.due == math.inf

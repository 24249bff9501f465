"""The schedule of faults: it depends on the seed alone, and not on the order of the calls."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.faults.fault import Fault
from testbed.faults.rules import (
    EachPush,
    FaultRule,
    FaultTrace,
    Intervals,
    Moment,
    TracedFault,
    Version,
    When,
)
from testbed.faults.schedule import Schedule
from testbed.messages.fault_changes import Kind
from tests.many_examples import many

WORKERS = 20


def rule(
    index: int,
    when: When,
    kind: Kind = "freeze",
    duration: float | None = None,
    devices: Sequence[int] = range(WORKERS),
) -> FaultRule:
    return FaultRule(f"faults {index}", Fault(index, kind, duration), list(devices), when)


def schedule(*rules: FaultRule, seed: int = 1, workers: int = WORKERS) -> Schedule:
    return Schedule(rules, seed, workers)


def pushes(plan: Schedule, until: int, device: int, of: int = 0) -> list[int]:
    """Return the pushes after which a rule strikes a device."""
    return [n for n in range(1, until) if any(f.rule == of for f in plan.after_push(device, n))]


def times(plan: Schedule, count: int, of: int | None = None) -> list[Any]:
    events = (one for one in plan.timed() if of is None or one[2].rule == of)
    return list(itertools.islice(events, count))


SEVERAL = [
    rule(0, EachPush(0.1)),
    rule(1, Intervals(5.0), "kill", 3.0),
    rule(2, EachPush(0.3), devices=[1, 4]),
    rule(3, Moment(4.0), "slow", 2.0),
    rule(4, Intervals(2.0), "partition", 1.0, devices=[2, 3]),
]


@many(30)
@given(st.lists(st.tuples(st.integers(0, WORKERS - 1), st.integers(1, 60)), max_size=80))
def test_the_order_of_calls_does_not_matter(asked: list[tuple[int, int]]) -> None:
    one, other = schedule(*SEVERAL), schedule(*SEVERAL)
    reference = {(d, n): other.after_push(d, n) for d in range(WORKERS) for n in range(1, 61)}
    for device, number in asked:
        assert one.after_push(device, number) == reference[device, number]
        next(one.timed())  # whose times are drawn anew each time


def test_an_additional_rule_does_not_change_the_draws_of_others() -> None:
    few, more = schedule(*SEVERAL[:2]), schedule(*SEVERAL)
    for device in range(WORKERS):
        assert pushes(few, 100, device) == pushes(more, 100, device)
    assert times(few, 50, of=1) == times(more, 50, of=1)


def test_another_seed_gives_another_schedule() -> None:
    one, other = schedule(*SEVERAL), schedule(*SEVERAL, seed=2)
    assert [pushes(one, 50, d) for d in range(9)] != [pushes(other, 50, d) for d in range(9)]
    assert times(one, 9) != times(other, 9)


def test_pushes_until_a_fault_are_geometric_and_it_strikes_again() -> None:
    p, workers = 0.02, 300
    plan = schedule(rule(0, EachPush(p), devices=range(workers)), workers=workers)
    struck = [pushes(plan, 1000, device) for device in range(workers)]
    gaps = np.concatenate([np.diff([0, *one]) for one in struck])
    assert min(gaps) == 1
    # 6,000 geometric draws: three standard errors of their mean, 1/p, are 2.
    assert np.mean(gaps) == pytest.approx(1 / p, abs=2.5)
    assert sum(map(len, struck)) == pytest.approx(workers * 999 * p, rel=0.04)


def test_adacomp_s_probability_strikes_a_hundred_in_250_000_pushes() -> None:
    """p·I = 100 workers after I pushes, since the remaining workers make all the pushes."""
    workers, updates = 200, 250_000
    counts = []
    for seed in range(6):
        everybody = range(workers)
        plan = schedule(rule(0, EachPush(0.0004), devices=everybody), seed=seed, workers=workers)
        first = sorted(
            next(n for n in itertools.count(1) if plan.after_push(w, n)) for w in everybody
        )
        # In turns: each round has as many pushes as there are workers left.
        made = dead = last = 0
        for n in first:
            more = (n - last) * (workers - dead)
            if made + more > updates:
                break
            made, last, dead = made + more, n, dead + 1
        counts.append(dead)
    # The standard deviation of one count is below 10.
    assert np.mean(counts) == pytest.approx(100, abs=8)


def test_times_from_one_fault_s_end_to_the_next_are_exponential() -> None:
    plan = schedule(rule(0, Intervals(5.0), "kill", 3.0))
    events = list(itertools.takewhile(lambda one: one[0] < 2000, plan.timed()))
    assert [one[0] for one in events] == sorted(one[0] for one in events)
    gaps = np.concatenate(
        [np.diff([-3.0, *(t for t, (d,), _ in events if d == w)]) - 3.0 for w in range(WORKERS)]
    )
    assert min(gaps) > 0
    assert np.mean(gaps) == pytest.approx(5.0, rel=0.06)  # of about 5,000 gaps
    assert np.mean(gaps > 5.0) == pytest.approx(np.exp(-1), abs=0.03)


def test_a_permanent_fault_strikes_each_device_once() -> None:
    events = list(schedule(rule(0, Intervals(5.0))).timed())
    assert sorted(devices for _, devices, _ in events) == [(w,) for w in range(WORKERS)]


def test_a_partition_is_one_event_for_all_its_devices() -> None:
    events = times(schedule(rule(0, Intervals(5.0), "partition", 1.0, devices=[2, 3])), 5)
    assert [devices for _, devices, _ in events] == [(2, 3)] * 5


def test_a_partition_without_devices_never_happens() -> None:
    assert times(schedule(rule(0, Intervals(5.0), "partition", 1.0, devices=[])), 1) == []


def test_times_are_merged_in_order() -> None:
    kill = Fault(1, "kill")
    plan = schedule(
        rule(0, Moment(4.0)),
        rule(1, FaultTrace([TracedFault(9.0, None, 1, kill), TracedFault(1.0, None, 2, kill)])),
    )
    assert [(t, d) for t, d, _ in plan.timed()] == [
        (1.0, (2,)),
        (4.0, tuple(range(WORKERS))),
        (9.0, (1,)),
    ]


def test_rules_and_traces_strike_at_their_iterations() -> None:
    by_trace = rule(1, FaultTrace([TracedFault(None, 3, 1, Fault(1, "kill", 2.0))]))
    plan = schedule(rule(0, Version(5), devices=[7]), by_trace)
    assert plan.at_iteration(5) == [((7,), Fault(0, "freeze"))]
    assert plan.at_iteration(3) == [((1,), Fault(1, "kill", 2.0))]
    assert plan.at_iteration(4) == ()
    assert [plan.next_iteration(v) for v in (0, 3, 4, 5)] == [3, 5, 5, None]
    assert list(plan.timed()) == []


def test_without_rules_nothing_happens() -> None:
    plan = schedule()
    assert plan.rules == 0
    assert plan.after_push(3, 1) == ()
    assert list(plan.timed()) == []
    assert plan.next_iteration(0) is None

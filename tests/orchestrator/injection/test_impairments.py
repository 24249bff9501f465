"""Faults that overlap: the requests that the agent gets, and those that it does not get."""

from testbed.faults.fault import Fault
from testbed.messages.requests import (
    FreezeDevice,
    LimitProcessors,
    Request,
    SetLink,
    SetPace,
    SetPartition,
    SetRates,
    ThawDevice,
)
from testbed.orchestrator.injection.impairments import Impairments

NAMES = {0: "worker-0", 1: "worker-1"}


def impairments(*, wall: bool = True) -> tuple[Impairments, list[Request]]:
    asked: list[Request] = []
    return Impairments(NAMES, asked.append, wall=wall), asked


def taken(asked: list[Request]) -> list[Request]:
    found = list(asked)
    asked.clear()
    return found


def test_a_link_is_down_until_the_last_fault_is_over() -> None:
    mine, asked = impairments()
    first, second = Fault(0, "stop-network", 5.0), Fault(1, "stop-network", 1.0)
    mine.begin(first, [0])
    assert taken(asked) == [SetLink("worker-0", False)]
    mine.begin(second, [0, 1])
    assert taken(asked) == [SetLink("worker-1", False)]
    mine.end(second, [0, 1])
    assert taken(asked) == [SetLink("worker-1", True)]
    mine.end(first, [0])
    assert taken(asked) == [SetLink("worker-0", True)]
    mine.end(first, [0])
    assert not asked


def test_the_same_rule_may_strike_twice_at_once() -> None:
    mine, asked = impairments()
    fault = Fault(0, "freeze", 5.0)
    mine.begin(fault, [0])
    mine.begin(fault, [0])
    mine.end(fault, [0])
    assert taken(asked) == [FreezeDevice("worker-0")]
    mine.end(fault, [0])
    assert taken(asked) == [ThawDevice("worker-0")]


def test_all_devices_of_a_partition_are_cut_off_in_one_request() -> None:
    mine, asked = impairments()
    mine.begin(Fault(0, "partition"), [0, 1])
    assert taken(asked) == [SetPartition(["worker-0", "worker-1"], True)]
    assert mine.has(0, ("partition",), for_good=True) and not mine.has(0, ("freeze",))


def test_several_slow_faults_give_the_least_rate_and_the_product() -> None:
    mine, asked = impairments()
    first = Fault(0, "slow", 5.0, factor=2.0, uplink=10)
    second = Fault(1, "slow", 5.0, factor=3.0, uplink=5, cpus=0.5)
    mine.begin(first, [0])
    assert taken(asked) == [SetRates("worker-0", 10, None), SetPace("worker-0", 0, 2.0)]
    mine.begin(second, [0])
    assert taken(asked) == [
        SetRates("worker-0", 5, None),
        LimitProcessors("worker-0", 0.5),
        SetPace("worker-0", 0, 6.0),
    ]
    mine.end(first, [0])
    assert taken(asked) == [SetPace("worker-0", 0, 3.0)]
    mine.forget(0, ("slow",))
    assert taken(asked) == [
        SetRates("worker-0", None, None),
        LimitProcessors("worker-0", None),
        SetPace("worker-0", 0, 1.0),
    ]


def test_under_the_virtual_clock_nothing_is_slowed_down_for_real() -> None:
    mine, asked = impairments(wall=False)
    mine.begin(Fault(0, "slow", 5.0, factor=2.0, uplink=10), [0])
    assert not asked
    mine.begin(Fault(0, "freeze", 5.0), [0])
    assert taken(asked) == [FreezeDevice("worker-0")]

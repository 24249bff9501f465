"""Faults that strike a worker after its own pushes."""

import threading
import time

import pytest

from testbed.faults.fault import Fault
from testbed.faults.rules import EachPush, FaultRule
from testbed.faults.schedule import Schedule
from testbed.messages.reports import FaultReported
from testbed.roles.pace import Paces
from testbed.roles.worker.faults_after_pushes import FaultsAfterPushes
from testbed.training.times import DeviceTimes

WORKERS = 3


def parking(
    fault: Fault, probability: float = 0.2, pushes: int = 0
) -> tuple[FaultsAfterPushes, Schedule, Paces, list[FaultReported]]:
    rule = FaultRule("faults 0", fault, range(WORKERS), EachPush(probability))
    told: list[FaultReported] = []
    paces = Paces(None, WORKERS)
    schedules = [Schedule([rule], 1, WORKERS) for _ in range(2)]
    return FaultsAfterPushes(schedules[0], 1, paces, told.append, pushes), schedules[1], paces, told


@pytest.mark.parametrize("earlier", [0, 7])
def test_faults_are_reported_after_the_pushes_that_the_seed_selects(earlier: int) -> None:
    mine, schedule, _, told = parking(Fault(0, "stop-network", 5.0), pushes=earlier)
    for version in range(40):
        mine.answered(100 + version)
        mine.answered(100 + version)  # without another push, nothing is reported
        mine.pushed()
    mine.answered(140)
    expected = [n for n in range(earlier + 1, earlier + 41) if schedule.after_push(1, n)]
    assert [one.record["pushes"] for one in told] == expected != []
    assert [one.record["iteration"] - 100 + earlier for one in told] == expected
    one = told[0].record
    assert one["devices"] == [1] and one["phase"] == "begin"
    assert (one["fault"], one["duration"]) == ("stop-network", 5.0)


def no_faults(number: int) -> FaultsAfterPushes:
    """Return what a worker has that no fault strikes after its pushes."""
    none = Schedule((), 0, number + 1)
    return FaultsAfterPushes(none, number, Paces(None, number + 1), lambda _: None)


def test_a_slow_fault_slows_the_next_computation() -> None:
    mine, _, paces, told = parking(Fault(0, "slow", factor=3.0), probability=1.0)

    class Times(DeviceTimes):
        def __init__(self) -> None:
            pass

        def draw(self, now: float, gradients: int = 1) -> tuple[float, float]:
            return 2.0 * gradients, now

    paced = mine.paced(Times())
    assert paced.draw(5.0) == (2.0, 5.0)
    mine.pushed()
    mine.answered(1)
    assert paced.draw(5.0) == (6.0, 15.0) and told[0].record["factor"] == 3.0
    assert [paces[worker] for worker in range(WORKERS)] == [1.0, 3.0, 1.0]


def test_a_frozen_worker_does_nothing_for_the_fault_s_duration() -> None:
    mine, _, _, told = parking(Fault(0, "freeze", 0.1), probability=1.0)
    mine.pushed()
    began = time.monotonic()
    mine.answered(1)
    assert time.monotonic() - began >= 0.1 and len(told) == 1


@pytest.mark.parametrize("fault", [Fault(0, "freeze"), Fault(0, "kill", 0.01)])
def test_a_worker_that_is_killed_or_frozen_for_good_never_goes_on(fault: Fault) -> None:
    mine, _, _, told = parking(fault, probability=1.0)
    mine.pushed()
    thread = threading.Thread(target=mine.answered, args=(1,), daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive() and told[0].record["fault"] == fault.kind


def test_paces_are_shared_by_descriptor() -> None:
    made = Paces.make(WORKERS)
    assert made.descriptor is not None
    other = Paces(made.descriptor, WORKERS)
    assert [other[worker] for worker in range(WORKERS)] == [1.0] * WORKERS
    made[2] = 5.0
    assert other[2] == 5.0

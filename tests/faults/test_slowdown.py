"""Faults that slow a device down at the same time: their combined effect, in any order."""

import itertools
import math

from testbed.faults.fault import Fault
from testbed.faults.slowdown import Pace
from testbed.orchestrator.injection.impairments import Impairment

FAULTS = (
    Fault(0, "slow", downlink=2_000_000),
    Fault(1, "slow", downlink=10_000_000, uplink=500_000),
    Fault(2, "slow", factor=3.0),
    Fault(3, "slow", factor=0.5, uplink=4_000_000),
)


def test_least_rate_and_product_of_factors_in_any_order_and_by_both_clocks() -> None:
    for order in itertools.permutations(FAULTS):
        pace, impairment = Pace.under(order), Impairment.under(order)
        assert pace == Pace(1.5, 500_000, 2_000_000)
        assert (impairment.factor, impairment.uplink, impairment.downlink) == (
            1.5,
            500_000,
            2_000_000,
        )


def test_without_a_fault_a_device_is_as_planned() -> None:
    assert Pace.under(()) == Pace()
    assert Pace.under([Fault(0, "freeze")]) == Pace()


def test_a_factor_is_finite_however_many_faults_multiply() -> None:
    """Otherwise a duration of zero times infinity would be NaN."""
    factor = Pace.under([Fault(0, "slow", factor=1e300)] * 3).factor
    assert math.isfinite(factor)
    assert factor * 0.0 == 0.0

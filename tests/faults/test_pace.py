"""Faults that slow a device down at the same time: one rule, in whichever order they came."""

import itertools
import math

from testbed.faults.fault import Fault
from testbed.faults.pace import Pace
from testbed.orchestrator.injection.impairments import Impairment

FAULTS = (
    Fault(0, "slow", downlink=2_000_000),
    Fault(1, "slow", downlink=10_000_000, uplink=500_000),
    Fault(2, "slow", factor=3.0),
    Fault(3, "slow", factor=0.5, uplink=4_000_000),
)


def test_the_least_rate_holds_and_factors_multiply_in_any_order_under_both_clocks() -> None:
    for order in itertools.permutations(FAULTS):
        pace, standing = Pace.under(order), Impairment.under(order)
        assert pace == Pace(1.5, 500_000, 2_000_000)
        assert (standing.factor, standing.uplink, standing.downlink) == (1.5, 500_000, 2_000_000)


def test_without_a_fault_a_device_is_as_planned() -> None:
    assert Pace.under(()) == Pace()
    assert Pace.under([Fault(0, "freeze")]) == Pace()


def test_a_factor_is_finite_however_many_faults_multiply() -> None:
    """Otherwise nothing times infinity would be a duration that is no number."""
    factor = Pace.under([Fault(0, "slow", factor=1e300)] * 3).factor
    assert math.isfinite(factor)
    assert factor * 0.0 == 0.0

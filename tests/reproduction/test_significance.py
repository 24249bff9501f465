"""The rule of verdicts, beside cases that were computed by hand."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from reproduction.significance import (
    Decision,
    Interval,
    Sample,
    all_of,
    at_chance,
    fastest,
    opposite,
    ratio,
    until,
)

# t at 97.5 % with 1, 2 and 4 degrees of freedom, from a printed table.
T1, T2, T4 = 12.706, 4.303, 2.776
SEEDS, SECONDS, VALUES = st.integers(1, 5), st.floats(1, 1000), st.floats(-100, 100)


def half(interval: Interval) -> float:
    assert interval.high - interval.value == pytest.approx(interval.value - interval.low)
    return interval.high - interval.value


@pytest.mark.parametrize(
    ("values", "t", "deviation"),
    [
        ([0.0, 2.0], T1, math.sqrt(2)),
        ([1.0, 2.0, 3.0], T2, 1.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], T4, math.sqrt(2.5)),
    ],
)
def test_several_seeds_have_a_t_interval(values: list[float], t: float, deviation: float) -> None:
    found = Sample(dict(enumerate(values))).between()
    assert half(found) == pytest.approx(t * deviation / math.sqrt(len(values)), rel=1e-3)


@pytest.mark.parametrize(
    ("differences", "decision"),
    [
        ([0.3, 0.4, 0.5], Decision.HOLDS),  # 0.4, up to 0.25
        ([0.1, 0.4, 0.7], Decision.UNDECIDED),  # of one sign, and 0.4 up to 0.75
        ([-0.3, -0.4, -0.5], Decision.FAILS),
        ([0.5, -0.4], Decision.UNDECIDED),
        ([0.04, 0.06], Decision.UNDECIDED),
        ([0.0, 0.0, 0.0], Decision.UNDECIDED),  # a tie is no order
    ],
)
def test_an_order_is_that_of_the_paired_differences(
    differences: list[float], decision: Decision
) -> None:
    # The level of the lines varies by ten points between seeds, which the pairs leave out.
    lesser = {seed: 70 + 10.0 * seed for seed in range(len(differences))}
    greater = {seed: lesser[seed] + one for seed, one in enumerate(differences)}
    found = (Sample(greater) - Sample(lesser)).between(0)
    assert found.decision is decision
    assert found.seeds == len(differences)


def test_one_seed_has_its_own_error_and_none_is_unbounded() -> None:
    # 98 % of 10,000 images: 0.14 points, and of a difference 0.198; 1.96 of them are 0.388.
    error = 100 * math.sqrt(0.98 * 0.02 / 10_000)
    a, b = Sample({1: 98.3}, {1: error}), Sample({1: 98.0}, {1: error})
    assert half((a - b).between()) == pytest.approx(0.388, abs=1e-3)
    assert (a - b).between(0).decision is Decision.UNDECIDED
    assert (a - b).between(-0.1).decision is Decision.HOLDS
    assert (a + b).errors == {1: pytest.approx(error * math.sqrt(2))}
    unknown = Sample({1: 5.0}).between(0)
    assert (unknown.low, unknown.high, unknown.decision) == (
        -math.inf,
        math.inf,
        Decision.UNDECIDED,
    )


def test_equal_seeds_are_known_to_an_image_and_no_better() -> None:
    grid = 100 / 10_000
    narrow = Sample({1: 0.04, 2: 0.04}, grid=grid).between(0)
    assert half(narrow) == pytest.approx(T1 * grid / math.sqrt(2), rel=1e-3)
    assert narrow.decision is Decision.UNDECIDED
    assert Sample({1: 0.2, 2: 0.2}, grid=grid).between(0).decision is Decision.HOLDS


def test_within_is_an_interval_inside_the_bounds() -> None:
    for value, decision in (
        (5.0, Decision.HOLDS),
        (5.9, Decision.UNDECIDED),
        (8.0, Decision.FAILS),
    ):
        assert Interval(value, value - 0.5, value + 0.5, 3, 4.0, 6.0).decision is decision


def test_a_claim_of_several_comparisons_is_as_good_as_its_worst() -> None:
    holds, fails, undecided = Decision.HOLDS, Decision.FAILS, Decision.UNDECIDED
    assert all_of([holds, holds]) is holds
    assert all_of([holds, undecided]) is undecided
    assert all_of([undecided, fails, holds]) is fails
    assert [opposite(one) for one in (holds, fails, undecided)] == [fails, holds, undecided]


def test_a_run_that_ends_too_early_leaves_its_side_open() -> None:
    ours = until({1: 10.0, 2: 10.0, 3: 11.0}, {1: 40.0, 2: 40.0, 3: 40.0})
    theirs = until({1: math.inf, 2: 30.0, 3: math.inf}, {1: 31.0, 2: 40.0, 3: 33.0})
    found = ratio(theirs, ours).times(2)
    assert found.value == pytest.approx((31 * 30 * 33 / 1100) ** (1 / 3))
    assert found.high == math.inf and found.decision is Decision.HOLDS
    # How many times is not known, and neither is whether it is at most four times.
    assert ratio(theirs, ours).times(2, 4).decision is Decision.UNDECIDED
    reverse = ratio(ours, theirs).times(1)
    assert reverse.low == -math.inf and reverse.decision is Decision.FAILS
    # With seed 1 the first one may have come to it between 31 and 35 s, with seed 3 after 33.
    assert fastest(
        [theirs, until({1: 35.0, 2: 36.0, 3: math.inf}, dict.fromkeys((1, 2, 3), 40.0))]
    ) == Sample({1: 35.0, 2: 30.0, 3: 33.0}, above=frozenset({3}), below=frozenset({1}))


@given(st.lists(st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=2), min_size=1))
def test_the_fastest_is_what_runs_that_had_gone_on_would_say(
    lines: list[list[tuple[float, float]]],
) -> None:
    """A line has for each seed the moment at which it comes to a target, and the end of its run."""
    seen = [
        until(
            {seed: at if at <= end else math.inf for seed, (at, end) in enumerate(line)},
            {seed: end for seed, (_, end) in enumerate(line)},
        )
        for line in lines
    ]
    found = fastest(seen)
    for seed, value in found.values.items():
        true = min(line[seed][0] for line in lines)
        if seed in found.above:
            assert true > value
        elif seed in found.below:
            assert true <= value
        else:
            assert true == value


@given(st.dictionaries(SEEDS, VALUES, min_size=2), st.dictionaries(SEEDS, VALUES, min_size=2))
def test_an_order_is_scipys_paired_t_test_of_the_seeds_that_both_have(
    ours: dict[int, float], theirs: dict[int, float]
) -> None:
    seeds = sorted(ours.keys() & theirs.keys())
    assume(len(seeds) > 1)
    a, b = ([values[seed] for seed in seeds] for values in (ours, theirs))
    assume(np.std(np.subtract(a, b)) > 1e-3)
    found = (Sample(ours) - Sample(theirs)).between(0)
    known = stats.ttest_rel(a, b)
    interval = known.confidence_interval(0.95)
    assert found.seeds == len(seeds)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    if abs(known.pvalue - 0.05) > 1e-6:
        order = Decision.HOLDS if known.statistic > 0 else Decision.FAILS
        assert found.decision is (order if known.pvalue < 0.05 else Decision.UNDECIDED)


@given(
    st.dictionaries(SEEDS, SECONDS, min_size=2, max_size=5), st.floats(1.1, 9), st.floats(1.1, 9)
)
def test_a_quotient_and_its_inverse_have_one_verdict(
    ours: dict[int, float], least: float, times: float
) -> None:
    theirs = {seed: value * (times + seed) for seed, value in ours.items()}
    found = ratio(Sample(theirs), Sample(ours)).times(least)
    inverse = ratio(Sample(ours), Sample(theirs)).times(most=1 / least)
    assert inverse.value == pytest.approx(1 / found.value)
    assert (inverse.low, inverse.high) == pytest.approx((1 / found.high, 1 / found.low))
    assert inverse.decision is found.decision
    assert found.value == pytest.approx(stats.gmean([times + seed for seed in ours]))


@given(st.floats(0, 100), st.floats(0, 100), st.integers(1, 10_000))
def test_one_seed_of_accuracies_has_scipys_normal_interval(a: float, b: float, images: int) -> None:
    def sample(accuracy: float) -> Sample:
        # A share of no image, or of all, has the error of one image.
        share = min(max(accuracy / 100, 1 / images), 1 - 1 / images)
        return Sample({1: accuracy}, {1: 100 * math.sqrt(share * (1 - share) / images)})

    found = (sample(a) - sample(b)).between(0)
    error = math.hypot(*(one.errors[1] for one in (sample(a), sample(b))))
    assume(error > 0)
    interval = stats.norm.interval(0.95, a - b, error)
    assert (found.low, found.high) == pytest.approx(interval)


@pytest.mark.parametrize("unknown", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_decides_nothing(unknown: float) -> None:
    for values in ({1: unknown}, {1: unknown, 2: 1.0, 3: 1.0}):
        for interval in (Sample(values).between(0), ratio(Sample(values), Sample(values)).times(1)):
            assert interval.decision is Decision.UNDECIDED


def test_lines_that_have_learnt_nothing_are_known() -> None:
    low, high = Sample({1: 10.0, 2: 12.0}, grid=0.01), Sample({1: 40.0, 2: 14.0}, grid=0.01)
    assert at_chance([low, high])
    assert not at_chance([low, Sample({1: 40.0, 2: 16.0}, grid=0.01)])
    assert not at_chance([Sample({1: 10.0}), Sample({1: 12.0})])  # seconds, for instance

"""Rates over time: steps, periods and places in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.rate_trace import RateTrace

STEPS = st.lists(st.tuples(st.floats(0.001, 5), st.integers(0, 10**7)), min_size=1, max_size=6)


def made(steps: list[tuple[float, int]], *, repeats: bool, spread: bool = False) -> RateTrace:
    """Make a trace of lengths and rates, the last of which is not 0."""
    ends = [sum(length for length, _ in steps[: i + 1]) for i in range(len(steps))]
    times, rates = [0.0, *ends[:-1]], [rate for _, rate in steps]
    rates[-1] = rates[-1] or 30_000
    return RateTrace.of(times, rates, ends[-1] if repeats else None, spread=spread)


@given(STEPS, st.booleans(), st.floats(0, 1e5))
def test_a_step_lasts_from_its_begin_to_that_of_the_next(
    steps: list[tuple[float, int]], repeats: bool, time: float
) -> None:
    trace = made(steps, repeats=repeats)
    step = trace.step_at(time)
    assert trace.begin(step) <= time < trace.begin(step + 1)


@given(STEPS, st.integers(0, 4), st.floats(0, 20))
def test_a_device_is_at_its_place_of_a_trace_that_is_spread(
    steps: list[tuple[float, int]], number: int, time: float
) -> None:
    trace = made(steps, repeats=True, spread=True)
    own = trace.of_device(number, 5)
    assert own.period is not None
    at = time + number / 5 * own.period
    step = trace.step_at(at)
    # Where two steps meet, roundings decide.
    if min(at - trace.begin(step), trace.begin(step + 1) - at) > 1e-9:
        assert own.rate(own.step_at(time)) == trace.rate(step)
    assert own.mean == pytest.approx(trace.mean)


def test_steps_that_change_nothing_are_left_out() -> None:
    trace = RateTrace.of([0, 1, 2, 3], [8, 8, 16, 16], 4)
    assert (trace.times, trace.rates, trace.mean, trace.first) == ([0, 2], [8, 16], 12, 8)
    assert trace.of_device(3, 5) is trace  # all are at its beginning


@pytest.mark.parametrize(
    ("times", "rates", "period", "text"),
    [
        ([0, 1], [0, 0], 2, "only rates of 0"),
        ([0, 1], [8, 0], None, "ends with a rate of 0"),
        ([1], [8], None, "begins at 1 s"),
        ([0, 2, 2], [8, 9, 8], None, "times must increase"),
        ([0, 2], [8, 9], 2, "repeat it later"),
        ([], [], None, "has no rate"),
    ],
)
def test_what_is_no_trace_is_refused(
    times: list[float], rates: list[int], period: float | None, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        RateTrace.of(times, rates, period)

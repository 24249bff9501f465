"""Lines whose rates follow traces, beside lines that are changed at each step by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.clock.rate_courses import LimitedTrace
from testbed.clock.traced_line import TracedLine
from testbed.clock.transfers import Jitter, Line
from testbed.network.segments import wire_bytes
from testbed.rate_trace import RateTrace
from tests.test_rate_trace import made

STEPS = st.lists(
    st.tuples(st.floats(0.1, 3), st.sampled_from([0, 1000, 30_000, 200_000])),
    min_size=1,
    max_size=5,
)
DELAY = 0.25


def bits(size: int) -> int:
    return 8 * wire_bytes(size)


def test_a_message_takes_the_bits_of_each_step() -> None:
    line = TracedLine(LimitedTrace.of(RateTrace.of([0, 1, 2], [8000, 0, 16_000], 3)), DELAY)
    size = 1900
    # 8,000 bits in the first second, none in the next one, the rest at twice the rate.
    assert line.send(0.0, size) == pytest.approx(2 + (bits(size) - 8000) / 16_000 + DELAY)
    # The next begins when this one has left.
    both = bits(size) + bits(10)
    assert line.send(1.5, 10) == pytest.approx(2 + (both - 8000) / 16_000 + DELAY)


def test_many_periods_are_passed_at_once() -> None:
    trace = RateTrace.of([0, 1], [1000, 0], 2)
    line = TracedLine(LimitedTrace.of(trace))
    size = 10**9
    assert line.earliest(0.0, size) == pytest.approx(2 * bits(size) / 1000, rel=1e-6)


def test_a_constant_trace_is_a_line() -> None:
    traced, plain = (
        TracedLine(LimitedTrace.of(RateTrace.of([0], [20_000], None)), DELAY),
        Line(20_000, DELAY),
    )
    for now, size in ((0.0, 100), (0.01, 3000), (5.0, 0)):
        assert traced.send(now, size) == pytest.approx(plain.send(now, size))


def leaves(
    trace: RateTrace, left: float, change: tuple[float, int | None], outage: tuple[float, float]
) -> float:
    """Return when a message has left that begins at 0, by walking from one change to the next."""
    at, step, (limited, limit) = 0.0, 0, change
    while True:
        rate = trace.rate(step)
        if limit is not None and at >= limited:
            rate = min(rate, limit)
        if outage[0] <= at < outage[1]:
            rate = 0
        until = min(one for one in (trace.begin(step + 1), limited, *outage) if one > at)
        if rate and rate * (until - at) >= left - 1e-6:
            return at + left / rate
        left, at = left - rate * (until - at), until
        step += at >= trace.begin(step + 1)


@given(
    steps=STEPS,
    size=st.integers(1, 5000),
    change=st.tuples(st.floats(0, 3), st.sampled_from([None, 500, 40_000])),
    at=st.floats(3, 4),
    lasting=st.floats(0.1, 3),
)
def test_changes_and_outages_move_what_is_under_way(
    steps: list[tuple[float, int]],
    size: int,
    change: tuple[float, int | None],
    at: float,
    lasting: float,
) -> None:
    trace = made(steps, repeats=True)
    line = TracedLine(LimitedTrace.of(trace), DELAY)
    arrival = line.send(0.0, size)
    if arrival > change[0]:
        arrival = line.change(*change)(arrival)
    left = leaves(trace, bits(size), change, (at, at + lasting))
    if abs(arrival - DELAY - at) < 1e-6 or abs(arrival - at) < 1e-6:
        return  # a rounding decides whether it was under way
    if arrival <= at:
        assert arrival == pytest.approx(left + DELAY)
        return
    waited = arrival - DELAY <= at  # for its delay, which an outage holds, too
    assert line.hold(at, at + lasting)(arrival) == pytest.approx(
        left + DELAY + waited * lasting, rel=1e-6
    )


def test_a_message_overtakes_none_that_was_moved() -> None:
    line = TracedLine(LimitedTrace.of(RateTrace.of([0, 1], [3000, 7000], 2)), DELAY)
    first = line.send(0.0, 1000)
    moved = line.hold(0.5, 1.7)(first)
    assert line.send(0.6, 1) > moved > first
    assert line.free > 1.7
    line.forget(2.0)
    assert line.free <= 2.0


@given(
    steps=STEPS,
    happen=st.lists(
        st.tuples(
            st.floats(0.001, 1),
            st.one_of(
                st.tuples(st.just("send"), st.integers(1, 4000)),
                st.tuples(st.just("hold"), st.integers(1, 900)),
                st.tuples(st.just("change"), st.sampled_from([None, 500, 40_000])),
            ),
        ),
        max_size=20,
    ),
)
def test_with_jitter_messages_stay_in_order_and_hold_up_nothing(
    steps: list[tuple[float, int]], happen: list[tuple[float, tuple[str, int | None]]]
) -> None:
    trace = made(steps, repeats=True)
    line, usual = (
        TracedLine(LimitedTrace.of(trace), DELAY, Jitter(1, 0, "up", [0.1])),
        TracedLine(LimitedTrace.of(trace), DELAY),
    )
    arrivals: list[float] = []
    now = 0.0
    for gap, (what, value) in happen:
        now += gap
        if what == "send":
            assert value is not None
            earliest = line.earliest(now, 1)
            arrivals.append(line.send(now, value))
            usual.send(now, value)
            assert now <= earliest <= arrivals[-1]
        else:
            for one in (line, usual):
                if what == "hold":
                    assert value is not None
                    moved = one.hold(now, now + value / 1000)
                else:
                    moved = one.change(now, value)
                if one is line:
                    arrivals = [moved(at) if at > now else at for at in arrivals]
        assert line.free == usual.free
        assert arrivals == sorted(arrivals)


def test_a_constant_trace_with_jitter_is_a_line_with_it() -> None:
    trace = RateTrace.of([0], [20_000], None)
    traced = TracedLine(LimitedTrace.of(trace), DELAY, Jitter(1, 0, "up", [0.1]))
    plain = Line(20_000, DELAY, Jitter(1, 0, "up", [0.1]))
    both = []
    for one in (traced, plain):
        at = [one.send(0.0, 100), one.send(0.01, 3000), one.send(5.0, 0)]
        at = [*map(one.change(5.0, 10_000), at)][1:]
        both.append([*map(one.hold(5.1, 5.3), at)])
    assert both[0] == pytest.approx(both[1])

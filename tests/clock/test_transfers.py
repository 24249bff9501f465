"""A line against a queue written naively, in times that floats hold exactly."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.clock.transfers import Line

RATE = 8192
"""In bit/s; a power of two, so that every time below is exact."""

sends = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 4000)), max_size=20)
delays = st.integers(0, 16).map(lambda eighths: eighths / 8)


def on_the_wire(size: int) -> int:
    return size + 66 * -(-size // 1448)


@settings(deadline=None)  # the host may be busy
@given(sends, delays)
def test_messages_leave_one_after_the_other_and_the_delay_delays_nothing_else(
    messages: list[tuple[int, int]], delay: float
) -> None:
    line = Line(RATE, delay)
    assert not line.instant
    now = left = Fraction(0)
    for step, size in messages:
        now += Fraction(step, 4)
        left = max(now, left) + Fraction(8 * on_the_wire(size), RATE)
        # Asking for the earliest changes nothing, and a longer message is never earlier.
        assert line.earliest(float(now), 1) <= line.earliest(float(now), size)
        assert line.send(float(now), size) == left + Fraction(delay)
        assert line.free == left


@settings(deadline=None)  # the host may be busy
@given(sends, delays)
def test_without_a_rate_a_message_takes_its_delay_and_holds_nothing_up(
    messages: list[tuple[int, int]], delay: float
) -> None:
    line = Line(None, delay)
    assert line.instant
    for now, size in messages:
        assert line.earliest(now, 1) == line.send(now, size) == now + delay
        assert line.free == 0.0


@settings(deadline=None)  # the host may be busy
@given(st.lists(st.integers(32, 10**7), min_size=1, max_size=30), st.floats(1e3, 1e10))
def test_the_earliest_is_never_late_at_any_rate(sizes: list[int], rate: float) -> None:
    """The clock receives at the earliest; if that were later than the truth, order would break."""
    line = Line(int(rate), 0.0137)
    for size in sizes:
        earliest = line.earliest(1.1, 32)
        free = line.free
        assert earliest <= line.send(1.1, size)
        assert line.free >= free


def test_an_example() -> None:
    line = Line(1_000_000, 0.05)
    assert line.send(2.0, 1448) == pytest.approx(2 + 8 * 1514 / 1e6 + 0.05)
    assert line.send(2.0, 1) == pytest.approx(2 + 8 * (1514 + 67) / 1e6 + 0.05)

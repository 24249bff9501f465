"""The arrival times of ``Line``, against two naive models: a queue, and bits that flow."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.clock.transfers import Line

RATE = 8192
"""In bit/s; a power of two, so that floats represent the queue's times exactly."""

sends = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 4000)), max_size=20)
delays = st.integers(0, 16).map(lambda eighths: eighths / 8)


def on_the_wire(size: int) -> int:
    return size + 66 * -(-size // 1448)


@settings(deadline=None)  # the host may be busy
@given(sends, delays)
def test_messages_leave_one_by_one_and_the_delay_holds_up_no_other(
    messages: list[tuple[int, int]], delay: float
) -> None:
    line = Line(RATE, delay)
    assert not line.instant
    now = left = Fraction(0)
    for step, size in messages:
        now += Fraction(step, 4)
        left = max(now, left) + Fraction(8 * on_the_wire(size), RATE)
        # ``earliest`` changes nothing, and a longer message is never earlier.
        assert line.earliest(float(now), 1) <= line.earliest(float(now), size)
        assert line.send(float(now), size) == left + Fraction(delay)
        assert line.free == left


@settings(deadline=None)  # the host may be busy
@given(sends, delays)
def test_without_a_rate_a_message_takes_its_delay_and_holds_up_no_other(
    messages: list[tuple[int, int]], delay: float
) -> None:
    line = Line(None, delay)
    assert line.instant
    for now, size in messages:
        assert line.earliest(now, 1) == line.send(now, size) == now + delay
        assert line.free == 0.0


@settings(deadline=None)  # the host may be busy
@given(st.lists(st.integers(32, 10**7), min_size=1, max_size=30), st.floats(1e3, 1e10))
def test_the_earliest_arrival_is_never_too_late_at_any_rate(sizes: list[int], rate: float) -> None:
    """The clock receives at that time; if the message arrived earlier, the order would break."""
    line = Line(int(rate), 0.0137)
    for size in sizes:
        earliest = line.earliest(1.1, 32)
        free = line.free
        assert earliest <= line.send(1.1, size)
        assert line.free >= free


def test_an_example_with_a_rate_and_a_delay() -> None:
    line = Line(1_000_000, 0.05)
    assert line.send(2.0, 1448) == pytest.approx(2 + 8 * 1514 / 1e6 + 0.05)
    assert line.send(2.0, 1) == pytest.approx(2 + 8 * (1514 + 67) / 1e6 + 0.05)


def test_rounding_lets_no_message_overtake_one_that_an_outage_moved() -> None:
    """One message is sent as the line goes down, one during the outage: they arrive in that order."""
    for i in range(1, 1000):
        line, now = Line(None, 0.1), i / 7
        before = line.send(now, 1)
        moved = line.hold(now, now + i / 11)(before)
        assert line.send(now + i / 13, 1) >= moved


class Fluid:
    """A line as a flow of bits, computed from one event to the next.

    Without a rate, every message that waits leaves at once. While the line is down nothing moves on it,
    not even a message that only its delay holds up.
    """

    def __init__(self, rate: int | None, delay: float) -> None:
        self.rate, self.delay = rate, delay
        self.now = self.down = 0.0
        self.waiting: list[tuple[int, float]] = []
        self.travelling: list[tuple[int, float]] = []
        self.arrivals: dict[int, float] = {}

    def send(self, number: int, size: int) -> None:
        self.waiting.append((number, 8.0 * on_the_wire(size) if self.rate else 0.0))

    def change(self, rate: int | None) -> None:
        self.rate = rate
        if rate is None:
            self.waiting = [(number, 0.0) for number, _ in self.waiting]

    def run(self, until: float) -> None:
        """Let time pass until ``until``, from one event to the next."""
        if self.now < self.down:
            self.now = min(self.down, until)
        while self.now < until:
            self._let_out()
            head = [bits / self.rate for _, bits in self.waiting[:1] if self.rate]
            step = min([until - self.now, *head, *(left for _, left in self.travelling)])
            self.now += step
            self.travelling = [(number, left - step) for number, left in self.travelling]
            if head:
                number, bits = self.waiting[0]
                assert self.rate is not None
                self.waiting[0] = (number, 0.0 if step == head[0] else bits - step * self.rate)
        if self.now >= self.down:
            self._let_out()

    def _let_out(self) -> None:
        while self.waiting and not self.waiting[0][1]:
            self.travelling.append((self.waiting.pop(0)[0], self.delay))
        for number, left in self.travelling:
            if left <= 0:
                self.arrivals[number] = self.now
        self.travelling = [one for one in self.travelling if one[1] > 0]


rates = st.sampled_from([None, 3_000, 8_000, 50_000])
happenings = st.lists(
    st.tuples(
        st.integers(1, 3000),
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 4000)),
            st.tuples(st.just("hold"), st.integers(1, 4000)),
            st.tuples(st.just("change"), rates),
        ),
    ),
    max_size=25,
)


@settings(deadline=None)  # the host may be busy
@given(rates, st.sampled_from([0.0, 0.4, 2.0]), happenings)
def test_messages_on_a_held_or_changed_line_arrive_as_their_bits_flow(
    rate: int | None, delay: float, happen: list[tuple[int, tuple[str, int | None]]]
) -> None:
    line, fluid = Line(rate, delay), Fluid(rate, delay)
    arrivals: dict[int, float] = {}
    now = 0.0
    for number, (gap, (what, value)) in enumerate(happen):
        # No two events are at the same moment, where the result would depend on their order.
        now += gap / 1000 + 1e-4 * (number + 1) ** 0.5
        fluid.run(now)
        if what == "send":
            assert value is not None
            arrivals[number] = line.send(now, value)
            fluid.send(number, value)
            continue
        if what == "hold":
            assert value is not None
            until = now + value / 1000 + 1e-5 * (number + 2) ** 0.5
            moved = line.hold(now, until)
            fluid.down = max(fluid.down, until)
        else:
            moved = line.change(now, value)
            fluid.change(value or rate)
            fluid.run(now)
        assert (line.free > now) == bool(fluid.waiting)
        arrivals = {n: moved(at) if at > now else at for n, at in arrivals.items()}
    fluid.run(now + 1e6)
    assert sorted(arrivals) == sorted(fluid.arrivals)
    for number, arrival in arrivals.items():
        assert arrival == pytest.approx(fluid.arrivals[number], rel=1e-9, abs=1e-9)

"""Jitter under the virtual clock: as drawn, in order, and never earlier than the clock was promised."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.clock.transfers import Jitter, Line, jitter

DELAY, WIDTHS = 0.05, (0.02, 0.01)
happenings = st.lists(
    st.tuples(
        st.integers(1, 200),
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 4000)),
            st.tuples(st.just("hold"), st.integers(1, 400)),
            st.tuples(st.just("change"), st.sampled_from([None, 50_000, 5_000_000])),
        ),
    ),
    max_size=30,
)


def test_the_draws_are_of_one_direction_of_one_device() -> None:
    def drawn(seed: int, device: int, direction: str) -> list[float]:
        one = Jitter(seed, device, direction, WIDTHS)
        return [one.draw() for _ in range(200)]

    first = drawn(7, 3, "up")
    assert first == drawn(7, 3, "up")
    assert len({tuple(first), tuple(drawn(8, 3, "up")), tuple(drawn(7, 4, "up"))}) == 3
    assert first != drawn(7, 3, "down")
    assert len(set(first)) == 200  # also over several blocks
    assert min(first) >= Jitter(7, 3, "up", WIDTHS).least == pytest.approx(-0.03)
    assert max(first) <= 0.03 and min(first) < -0.02 and max(first) > 0.02
    assert abs(sum(first)) / 200 < 0.005
    assert jitter(7, 3, "up", [0.0, 0.0]) is None


@settings(deadline=None)  # the host may be busy
@given(st.sampled_from([None, 50_000, 5_000_000]), happenings)
def test_messages_stay_in_order_and_near_their_usual_arrival(
    rate: int | None, happen: list[tuple[int, tuple[str, int | None]]]
) -> None:
    """Whatever faults do to the line meanwhile."""
    line, usual = Line(rate, DELAY, Jitter(1, 0, "up", WIDTHS)), Line(rate, DELAY)
    arrivals: list[float] = []
    without: list[float] = []
    assert not line.instant
    now = 0.0
    for gap, (what, value) in happen:
        now += gap / 1000
        if what == "send":
            assert value is not None
            earliest = line.earliest(now, 1)
            arrivals.append(line.send(now, value))
            without.append(usual.send(now, value))
            assert now <= earliest <= arrivals[-1]
            assert line.free == usual.free  # jitter holds up nothing
            continue
        if what == "hold":
            assert value is not None
            moved, other = (one.hold(now, now + value / 1000) for one in (line, usual))
        else:
            moved, other = (one.change(now, value) for one in (line, usual))
        arrivals = [moved(at) if at > now else at for at in arrivals]
        without = [other(at) if at > now else at for at in without]
    assert arrivals == sorted(arrivals)
    if all(what == "send" for _, (what, _) in happen):
        for mine, at in zip(arrivals, without, strict=True):
            assert mine >= at - 0.03 - 1e-9
        if arrivals:
            assert max(arrivals) <= max(without) + 0.03 + 1e-9


def test_a_rate_that_changes_leaves_delays_as_they_were_drawn() -> None:
    """What has left already arrives when it would have; what has not leaves at the new rate."""
    drawn = Jitter(1, 0, "up", WIDTHS)
    first, second = drawn.draw(), drawn.draw()
    line, usual = Line(8_000, DELAY, Jitter(1, 0, "up", WIDTHS)), Line(8_000, DELAY)
    mine = [line.send(0.0, 34), line.send(0.0, 934)]  # 0.1 and 1 s on the wire
    plain = [usual.send(0.0, 34), usual.send(0.0, 934)]
    assert mine == pytest.approx([plain[0] + first, plain[1] + second])
    moved, other = line.change(0.101, 4_000), usual.change(0.101, 4_000)
    assert moved(mine[0]) == mine[0]
    assert moved(mine[1]) == pytest.approx(other(plain[1]) + second)
    again, once_more = line.hold(0.5, 1.5), usual.hold(0.5, 1.5)
    assert again(moved(mine[1])) == pytest.approx(once_more(other(plain[1])) + second)

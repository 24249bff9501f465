"""The rates that background flows take of links, compared with sums over small steps of time."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.clock.background import Background
from testbed.clock.background_rates import LEAST, Periods, RestOfRate, Taking
from testbed.clock.traced_line import TracedLine
from testbed.experiment.spec import Spec
from testbed.faults.slowdown import Pace
from testbed.network.background import BackgroundFlow, times
from testbed.network.segments import wire_bytes
from testbed.planning.plan import plan
from testbed.random_streams import stream
from testbed.training.settings import Settings
from tests.test_rate_trace import made

DELAY = 0.25
ON_OFF = BackgroundFlow("worker-0", "server", 4000, 208, "on-off", 0.5, 0.3)
STEPS = st.lists(
    st.tuples(st.floats(0.1, 3), st.sampled_from([0, 1000, 30_000, 200_000])),
    min_size=1,
    max_size=4,
)
TAKINGS = st.lists(
    st.one_of(
        st.builds(Taking, st.integers(1, 20_000)),
        st.builds(
            lambda rate, one: Taking(rate, Periods(ON_OFF, 1, one)), *[st.integers(1, 9000)] * 2
        ),
        st.builds(
            lambda rate, at: Taking(rate, None, tuple(sorted(at))),
            st.integers(1, 9000),
            st.sets(st.floats(0, 5), max_size=4),
        ),
    ),
    min_size=1,
    max_size=3,
)


def test_a_flow_is_on_when_the_wall_clock_sends_its_datagrams() -> None:
    taking = Taking(ON_OFF.rate, Periods(ON_OFF, 7, 3))
    due = list(itertools.islice(times(ON_OFF, stream(7, "traffic_between", 3)), 3000))
    assert all(taking.rate(at) == ON_OFF.rate for at in due)
    # As long as all of its periods last, and no longer.
    at, on = 0.0, 0.0
    while at < due[-1]:
        end = taking.next_change(at)
        on, at = on + taking.rate(at) / ON_OFF.rate * (end - at), end
    assert on == pytest.approx(len(due) * ON_OFF.interval, rel=0.01)


@given(
    steps=STEPS, takings=TAKINGS, limit=st.sampled_from([None, 700, 20_000]), start=st.floats(0, 4)
)
def test_the_rest_is_what_small_steps_add_up_to(
    steps: list[tuple[float, int]], takings: list[Taking], limit: int | None, start: float
) -> None:
    trace = made(steps, repeats=True)
    rest = RestOfRate(trace, tuple(takings), limit)
    edges = [start]  # a period may be shorter than any fixed step
    while edges[-1] < start + 4:
        edges.append(min(rest.next_change(edges[-1]), start + 4))
    bits = 0.0
    for one, other in itertools.pairwise(edges):
        middle = (one + other) / 2
        whole = trace.rate(trace.step_at(middle))
        whole = whole if limit is None else min(whole, limit)
        wanted = sum(flow.rate(middle) for flow in takings)
        bits += max(whole - wanted, LEAST * whole) * (other - one)
    assert rest.bits_between(start, start + 4) == pytest.approx(bits, abs=1e-3)
    assert rest.bits_between(start, rest.after(start, 5000.0)) == pytest.approx(5000, abs=1e-3)


def test_a_message_gets_what_a_flow_leaves() -> None:
    line = TracedLine(RestOfRate(8_000_000, (Taking(2_000_000),)), DELAY)
    size = 100_000
    alone = 8 * wire_bytes(size) / 8e6
    assert line.send(0.0, size) == pytest.approx(alone * 8 / 6 + DELAY)
    # A fault gives the link another rate; what flows want of it stays.
    line.change(10.0, 3_000_000)
    assert line.send(10.0, size) - 10 == pytest.approx(alone * 8 / 1 + DELAY)
    line.change(20.0, 1_000_000)
    assert line.send(20.0, size) - 20 == pytest.approx(alone * 8 / LEAST + DELAY)


def test_what_is_under_way_moves_as_a_flow_ends() -> None:
    taking = Taking(6_000_000)
    line = TracedLine(RestOfRate(8_000_000, (taking,)), DELAY)
    size = 100_000
    bits = 8 * wire_bytes(size)
    arrival = line.send(0.0, size)
    assert arrival == pytest.approx(bits / 2e6 + DELAY)
    # Its sender is frozen from 0.1 s until 0.15 s.
    moved = line.beside(0.1, (taking.without_sender(0.1, 0.15),))(arrival)
    left = 0.15 + (bits - 0.1 * 2e6 - 0.05 * 8e6) / 2e6
    assert moved == pytest.approx(left + DELAY)
    assert line.free == pytest.approx(left)


@pytest.mark.parametrize("is_limited", [True, False])
def test_a_link_without_a_rate_has_one_by_a_fault_only(is_limited: bool) -> None:
    line = TracedLine(RestOfRate(None, (Taking(500_000),)), DELAY)
    if is_limited:
        line.change(0.0, 1_000_000)
    taken = 8 * wire_bytes(1000) / 5e5 if is_limited else 0.0
    assert line.send(0.0, 1000) == pytest.approx(taken + DELAY)


def test_a_sender_is_away_as_long_as_any_of_its_conditions_lasts() -> None:
    taking = Taking(1000).without_sender(1.0, 3.0).without_sender(2.0, 5.0)
    assert taking.absent == (1.0, 5.0)
    assert taking.without_sender(4.0, 0.0).absent == (1.0, 4.0)  # it came back earlier
    assert taking.without_sender(6.0, 7.0).absent == (1.0, 5.0, 6.0, 7.0)
    assert taking.without_sender(6.0, 5.0) == taking


def settings_of(flows: list[dict[str, Any]], workers: int, network: dict[str, Any]) -> Settings:
    """Return the settings of a simulation of ASGD with background flows."""
    spec = {
        "name": "flows",
        "seed": 4,
        "dataset": "digits",
        "model": "mlp",
        "training": {"updates": 1},
        "devices": {"workers": workers},
        "engine": "simulation",
        "compute": {"mean": "1s"},
        "algorithms": ["asgd"],
        "network": network,
        "traffic_between": flows,
    }
    return plan(Spec.model_validate(spec))[0].settings


def background(flows: list[dict[str, Any]], **network: Any) -> Background:
    return Background(settings_of(flows, 3, {"uplink": "8mbit", "downlink": "16mbit"} | network))


def test_what_was_sent_and_what_has_arrived() -> None:
    flows = [
        {"from": "worker-0", "to": "server", "rate": "2mbit"},
        {"from": "worker-0", "to": "worker-1", "rate": "800kbit", "law": "poisson"},
        {"from": "server", "to": "worker-1", "rate": "8mbit"},
    ]
    found = background(flows)
    assert found.at(4.0) == [(1_000_000,) * 2, (400_000,) * 2, (4_000_000,) * 2]
    # Worker 0 is frozen from 4 s until 6 s, and worker 1 cut off from 5 s until 7 s.
    changed = found.follow(4.0, 0, 6.0, 0.0, Pace())
    assert changed == {(0, True), (1, False)}
    assert found.follow(5.0, 1, 7.0, 7.0, Pace()) == set()
    assert found.at(8.0) == [(1_500_000,) * 2, (600_000, 500_000), (8_000_000, 6_000_000)]
    # A slow fault leaves worker 0's uplink 1 Mbit/s, which its flows share.
    found.follow(8.0, 0, 0.0, 0.0, Pace(uplink=1_000_000))
    part = (1 - LEAST) * 1e6 / 2.8e6
    assert found.at(9.0)[:2] == [
        (1_500_000 + round(250_000 * part),) * 2,
        (600_000 + round(100_000 * part), 500_000 + round(100_000 * part)),
    ]


def test_what_is_counted_does_not_depend_on_who_asks() -> None:
    flows = [
        {
            "from": "worker-0",
            "to": "worker-1",
            "rate": "3mbit",
            "law": "on-off",
            "on": "90ms",
            "off": "70ms",
        },
        {"from": "worker-2", "to": "worker-1", "rate": "1mbit"},
    ]
    one, other = background(flows), background(flows)
    for step in range(1, 500):
        one.at(step / 70)
    for each in (one, other):
        each.follow(7.5, 0, 8.0, 0.0, Pace())
    for step in range(1, 100):
        one.at(7.5 + step / 50)
    assert one.at(11.0) == other.at(11.0)
    assert one._counts == other._counts

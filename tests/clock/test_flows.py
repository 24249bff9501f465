"""Flows against a naive model, which computes all rates anew at every event."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.clock.flows import Flows
from testbed.clock.transfers import Line
from testbed.network.segments import wire_bytes


@dataclass
class Naive:
    route: tuple[int, ...]
    left: float
    rate: float = 0.0


def naive_rates(rates: list[float], flows: dict[int, Naive]) -> None:
    """Raise the rates of all flows together; those on a link that is full stay as they are."""
    for flow in flows.values():
        flow.rate = 0.0
    rising = set(flows)
    while rising:
        steps = {}
        for link, rate in enumerate(rates):
            here = [flows[n] for n in flows if link in flows[n].route]
            count = sum(n in rising for n in flows if link in flows[n].route)
            if count:
                steps[link] = max(0.0, rate - sum(flow.rate for flow in here)) / count
        step = min(steps.values())
        for n in rising:
            flows[n].rate += step
        if step == math.inf:
            return
        full = {link for link, size in steps.items() if size <= step * (1 + 1e-12)}
        rising = {n for n in rising if not full & set(flows[n].route)}


class NaiveFlows:
    def __init__(self, rates: list[float]) -> None:
        self.rates = rates
        self.flows: dict[int, Naive] = {}
        self.now = 0.0
        self.began = 0

    def serve(self, now: float) -> None:
        for flow in self.flows.values():
            if flow.rate > 0 and now > self.now:
                flow.left -= flow.rate * (now - self.now)
        self.now = now

    def begin(self, now: float, route: tuple[int, ...], bits: float) -> None:
        self.serve(now)
        self.flows[self.began] = Naive(route, bits)
        self.began += 1
        naive_rates(self.rates, self.flows)

    def end(self, now: float, flow: int) -> None:
        self.serve(now)
        del self.flows[flow]
        naive_rates(self.rates, self.flows)

    def change(self, now: float, link: int, rate: float) -> None:
        self.serve(now)
        self.rates[link] = rate
        naive_rates(self.rates, self.flows)

    def ends(self) -> dict[int, float]:
        return {
            number: self.now + max(0.0, flow.left) / flow.rate if flow.rate > 0 else math.inf
            for number, flow in self.flows.items()
        }


RATES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 10.0, 12.5, 100.0, math.inf])
LINKS = 5
ACTIONS = st.one_of(
    st.tuples(
        st.just("begin"),
        st.floats(0, 5),
        st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=4, unique=True).map(tuple),
        st.floats(1, 50),
    ),
    st.tuples(st.just("change"), st.floats(0, 5), st.integers(0, LINKS - 1), RATES),
    st.tuples(st.just("give up"), st.floats(0, 5), st.integers(0, 30), st.none()),
)


@given(
    rates=st.lists(RATES, min_size=LINKS, max_size=LINKS),
    actions=st.lists(ACTIONS, max_size=40),
)
def test_flows_end_when_a_naive_model_says(
    rates: list[float], actions: list[tuple[str, float, Any, Any]]
) -> None:
    flows, naive = Flows(rates, range(LINKS)), NaiveFlows(list(rates))
    now = 0.0
    for what, later, which, how in [*actions, ("last", 1e6, None, None)]:
        until = now + later
        while (coming := flows.next_end()) is not None and coming[0] <= until:
            time, flow = coming
            expected = naive.ends()
            assert time == pytest.approx(min(expected.values()), rel=1e-6, abs=1e-6)
            assert time == pytest.approx(expected[flow], rel=1e-6, abs=1e-6)
            assert time >= now
            now = time
            flows.end(now, flow)
            naive.end(now, flow)
        now = until
        if what == "begin":
            assert flows.begin(now, which, how) == naive.began
            naive.begin(now, which, how)
        elif what == "change":
            flows.change(now, which, how)
            naive.change(now, which, how)
        elif which in naive.flows:
            flows.end(now, which)
            naive.end(now, which)
        assert len(flows) == len(naive.flows)
    assert all(end == math.inf for end in naive.ends().values())


@given(
    rate=st.integers(1_000, 10**10),
    messages=st.lists(st.tuples(st.floats(0, 10), st.integers(1, 10**7)), max_size=20),
)
def test_flows_with_a_link_to_themselves_end_as_on_a_line(
    rate: int, messages: list[tuple[float, int]]
) -> None:
    """To the bit, also while others share another link: the star's results stay what they are."""
    line, flows = Line(rate), Flows([rate, 1e6, math.inf], [1, 2])
    now = 0.0
    for after, size in messages:
        now = max(now, line.free) + after
        bits = 8 * wire_bytes(size)
        flows.begin(now, (1,), 1e6)
        header = flows.begin(now, (0, 2), bits / 2)
        flows.resize(header, bits)
        while (coming := flows.next_end()) is not None and coming[1] != header:
            flows.end(*coming)
        assert coming == (line.send(now, size), header)
        flows.end(*coming)


def test_a_flow_limited_elsewhere_leaves_its_share_to_the_others() -> None:
    """Bertsekas and Gallager's point: 100 shared by flows that may have 10, 40 and anything."""
    flows = Flows([100.0, 10.0, 40.0], [0])
    small = flows.begin(0.0, (1, 0), 100.0)
    middle = flows.begin(0.0, (2, 0), 400.0)
    large = flows.begin(0.0, (0,), 500.0)
    assert flows.next_end() == (10.0, small)
    flows.end(10.0, small)
    assert flows.next_end() == (10.0, middle)
    flows.end(10.0, middle)
    assert flows.next_end() == (10.0, large)


def test_alike_flows_are_served_alike() -> None:
    flows = Flows([100.0], [0])
    for _ in range(1000):
        flows.begin(0.0, (0,), 10.0)
    ended = []
    while (coming := flows.next_end()) is not None:
        ended.append(coming)
        flows.end(*coming)
    assert [flow for _, flow in ended] == list(range(1000))
    assert {time for time, _ in ended} == {100.0}

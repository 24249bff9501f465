"""What devices have done by the virtual clock: seconds of computing, and bytes over lines and flows."""

import pytest

from testbed.clock.flows import Flows
from testbed.clock.rate_courses import LimitedTrace
from testbed.clock.traced_line import TracedLine
from testbed.clock.transfers import Line
from testbed.clock.usage_counters import ComputingTime, LineBytes
from testbed.network.segments import wire_bytes
from testbed.rate_trace import RateTrace

SIZE = 1_000


def test_a_computation_counts_as_it_goes_on_and_not_after_its_end() -> None:
    computing = ComputingTime()
    computing.begin(0, 10.0, 2.0)
    assert [computing.at(0, now) for now in (10.0, 11.5, 12.0, 13.0)] == [0.0, 1.5, 2.0, 2.0]
    computing.finish(0)
    assert computing.at(0, 20.0) == 2.0
    assert computing.at(1, 20.0) == 0.0


def test_a_new_computation_interrupts_the_one_under_way() -> None:
    computing = ComputingTime()
    computing.begin(0, 0.0, 5.0)
    computing.begin(0, 1.0, 2.0)
    computing.finish(0)
    assert computing.at(0, 9.0) == 3.0


def test_a_frozen_device_does_not_compute() -> None:
    computing = ComputingTime()
    computing.begin(0, 0.0, 4.0)
    computing.freeze(0, 1.0, 3.0)
    computing.freeze(0, 3.0, 6.0)  # a second freeze goes on from the first
    assert [computing.at(0, now) for now in (1.0, 2.0, 3.0, 5.0, 6.0, 7.0)] == [1, 1, 1, 1, 1, 2]
    computing.cut(0, 8.0)
    assert computing.at(0, 20.0) == 3.0


def test_bytes_have_left_a_line_as_its_rate_lets_them() -> None:
    line = Line(8 * wire_bytes(SIZE), delay=0.5)  # a message takes a second
    line.send(0.0, SIZE)
    line.send(0.0, SIZE)
    size = wire_bytes(SIZE)
    assert [line.left(now) for now in (0.0, 0.5, 1.5, 2.0, 9.0)] == [
        0,
        round(0.5 * size),
        round(1.5 * size),
        2 * size,
        2 * size,
    ]
    line.hold(1.5, 4.0)  # half a message has not left
    assert [line.left(now) for now in (1.5, 3.0, 4.0, 4.5)] == [round(1.5 * size)] * 3 + [2 * size]


def test_bytes_have_left_a_line_that_follows_a_trace() -> None:
    size = wire_bytes(SIZE)
    line = TracedLine(LimitedTrace.of(RateTrace((0.0, 1.0), (8 * size, 4 * size))))
    line.send(0.0, SIZE)
    line.send(0.0, SIZE)
    assert [line.left(now) for now in (0.5, 1.0, 2.0, 3.0)] == [
        round(0.5 * size),
        size,
        round(1.5 * size),
        2 * size,
    ]


def test_the_bytes_of_a_device_that_is_gone_stay() -> None:
    both = Line(8 * wire_bytes(SIZE)), Line(None)
    used = LineBytes()
    for line in both:
        line.send(0.0, SIZE)
    used.retire(3, 0.5, both)
    half, whole = round(wire_bytes(SIZE) / 2), wire_bytes(SIZE)
    assert used.at(3, 9.0, ()) == (half, whole)
    both[0].forget(2.0)  # it comes back
    both[0].send(2.0, SIZE)
    assert used.at(3, 3.0, both) == (half + whole, whole)


def test_looking_at_a_flow_changes_nothing() -> None:
    """Emulations look at moments of the host's clock: the bits must not depend on them."""

    def ends(*, looks: bool) -> list[float]:
        flows = Flows([100.0, 70.0], shared=[0, 1])
        first, second = flows.begin(0.0, (0, 1), 1e3 / 3), flows.begin(0.1, (0,), 1e3 / 7)
        found = []
        for _ in range(2):
            ending = flows.next_end()
            assert ending is not None
            time, flow = ending
            if looks:
                assert flows.passed(time / 3, flow) >= 0.0
                assert flows.passed(time, flow) == pytest.approx(1e3 / (3 if flow == first else 7))
            flows.end(time, flow)
            found.append(time)
        assert second != first
        return found

    assert ends(looks=True) == ends(looks=False)

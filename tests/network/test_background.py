"""The schedules of background traffic, and that they are kept; no datagram crosses a link here."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from testbed.network.background import LATE, BackgroundFlow, Sender, times
from testbed.random_streams import stream

CONSTANT = BackgroundFlow(
    "worker-0", "server", 1_000_000, 1208
)  # 1,250 bytes on the wire: 100 a second
POISSON = replace(CONSTANT, law="poisson")
ON_OFF = replace(CONSTANT, law="on-off", on=0.5, off=1.5)


def first(flow: BackgroundFlow, seconds: float, seed: int = 1) -> np.ndarray:
    """Return when the datagrams of the first seconds are due."""
    due = times(flow, stream(seed, "traffic_between", 0))
    return np.array(list(itertools.takewhile(lambda one: one < seconds, due)))


@pytest.mark.parametrize(
    ("flow", "mean", "within"), [(CONSTANT, 100, 1e-5), (POISSON, 100, 0.02), (ON_OFF, 25, 0.1)]
)
def test_a_law_has_its_mean_rate(flow: BackgroundFlow, mean: float, within: float) -> None:
    seconds = 4000
    assert len(first(flow, seconds)) / seconds == pytest.approx(mean, rel=within)


@pytest.mark.parametrize("flow", [CONSTANT, POISSON, ON_OFF])
def test_equal_seeds_have_equal_schedules(flow: BackgroundFlow) -> None:
    one = first(flow, 60)
    assert np.array_equal(one, first(flow, 60))
    assert not np.array_equal(one, first(flow, 60, seed=2))
    assert (np.diff(one) > 0).all() and one[0] >= 0


def test_intervals_are_those_of_the_law() -> None:
    assert np.diff(first(CONSTANT, 10)) == pytest.approx(0.01)
    gaps = np.diff(first(POISSON, 1000))
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    gaps = np.diff(first(ON_OFF, 4000))
    pauses = gaps[gaps > 0.0100001]
    assert np.median(gaps) == pytest.approx(0.01)
    # A period ends between two datagrams, and shorter ones than an interval may have none.
    assert pauses.mean() == pytest.approx(1.5 + 0.01, rel=0.1)


def test_each_flow_begins_at_another_moment() -> None:
    begins = [next(times(CONSTANT, stream(1, "traffic_between", i))) for i in range(20)]
    assert len(set(begins)) == 20
    assert all(0 <= one < 0.01 for one in begins)
    on = [next(times(ON_OFF, stream(1, "traffic_between", i))) < 0.01 for i in range(400)]
    assert np.mean(on) == pytest.approx(0.25, abs=0.07)


class Wire:
    """A socket that counts, or refuses."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.full = False

    def send(self, data: bytes, /) -> int:
        if self.full:
            raise BlockingIOError
        self.sent.append(len(data))
        return len(data)


def test_what_is_due_is_sent_and_what_cannot_be_is_left_out() -> None:
    wires = [Wire(), Wire()]
    sender = Sender([CONSTANT, CONSTANT], 1, [wire.send for wire in wires])
    sender.begin(100.0)
    assert 100.0 <= sender.due < 100.01
    for now in np.arange(100.0, 101.0, 0.005):
        sender.turn(float(now))
    assert sender.sent == [len(one.sent) for one in wires]
    assert sender.sent == pytest.approx([100, 100], abs=1)
    assert set(wires[0].sent) == {1208}
    sender.away, wires[1].full = {0}, True
    for now in np.arange(101.0, 102.0, 0.005):
        sender.turn(float(now))
    assert sender.sent == pytest.approx([100, 100], abs=1)
    # A device that is back goes on with its schedule, and sends nothing of the time between.
    sender.away, wires[1].full = (), False
    for now in np.arange(102.0, 102.5, 0.005):
        sender.turn(float(now))
    assert sender.sent == pytest.approx([150, 150], abs=2)
    assert sender.tried == pytest.approx(150 + 250, abs=4)
    assert sender.late == 0


def test_a_sender_that_falls_behind_catches_up_and_counts() -> None:
    wire = Wire()
    sender = Sender([CONSTANT], 1, [wire.send])
    sender.begin(0.0)
    sender.turn(2.0)
    assert sender.sent == pytest.approx([200], abs=1)
    assert sender.late == pytest.approx(200 - 100 * LATE, abs=1)

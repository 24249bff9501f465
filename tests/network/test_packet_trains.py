"""Trains over simulated links: a token bucket, a delay and losses, computed packet by packet."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from testbed.network.links import Shape
from testbed.network.packet_trains import (
    CONFIDENCE,
    FASTEST,
    LONGEST_DELAY,
    SLOWEST,
    LinkMeasurement,
    Passage,
    Train,
    compose,
    handed_over,
    interval,
    is_open,
    is_over,
    measure,
    off,
    unmeasurable,
)
from testbed.network.shaping import bucket

MBIT = 1_000_000
EACH = 5e-6
"""Seconds that the sender takes for each packet."""


@dataclass
class Host:
    """The host's share: pauses of the link's timer, and the time to hand packets over, in seconds."""

    stalls: tuple[tuple[float, float], ...] = ()
    """Intervals in which the kernel does not look at the queue: beginning and length."""
    each: float = EACH

    def ready(self, moment: float) -> float:
        for began, length in self.stalls:
            if began <= moment < began + length:
                return began + length
        return moment


def passes(
    train: Train,
    link: Shape,
    host: Host | None = None,
    seed: int = 1,
    patience: float = math.inf,
) -> Passage:
    """Return the passage of a train over a link; its first packet is sent at 1,000 s."""
    host = host or Host()
    rng = np.random.default_rng(seed)
    most = bucket(link.rate) if link.rate else 0
    tokens, filled, free = float(most), 0.0, 0.0
    sent, arrived = [], []
    together = [last - first for first, last in handed_over(train, link)]
    calls = np.repeat(np.arange(len(together)), together)
    for call, size in zip(calls.tolist(), train.wire, strict=True):
        moment = call * host.each
        sent.append(moment)
        if rng.random() < link.loss:
            arrived.append(-1.0)
            continue
        leaves = max(moment + link.delay, free)
        if link.rate:
            speed = link.rate / 8
            have = min(most, tokens + (leaves - filled) * speed)
            if have < 0:
                leaves += -have / speed
            leaves = host.ready(leaves)
            tokens = min(most, tokens + (leaves - filled) * speed) - size
            filled = leaves
        free = leaves
        arrived.append(leaves + 3e-6 if leaves < patience else -1.0)
    whole = [-1 if moment < 0 else round((1000 + moment) * 1e9) for moment in arrived]
    until = round((1000 + min(patience, 3600)) * 1e9)
    return Passage(
        np.array([round((1000 + moment) * 1e9) for moment in sent]), np.array(whole), until
    )


def judged(asked: Shape, link: Shape, host: Host | None = None, seed: int = 1) -> list[str]:
    """Return what the measurement of ``link`` finds off from the shape that was asked for."""
    train = compose(asked)
    patience = 1.5 * train.seconds + 0.25
    return off(asked, measure(train, asked, passes(train, link, host, seed, patience)))


rates = st.integers(math.ceil(math.log(SLOWEST) * 1000), math.floor(math.log(FASTEST) * 1000)).map(
    lambda power: round(math.exp(power / 1000))
)


@settings(deadline=None, max_examples=60)
@given(rates, st.sampled_from([0.0, 0.001, 0.04, 0.4]), st.sampled_from([0.0, 0.01, 0.2]))
def test_a_link_that_is_as_asked_is_found_so(rate: int, delay: float, loss: float) -> None:
    asked = Shape(min(max(rate, SLOWEST), FASTEST), delay, loss)
    train = compose(asked)
    # The sender must be faster than the link, as on a host that is able to measure it.
    ends = [last for _, last in handed_over(train, asked)]
    largest = np.diff(np.cumsum(train.wire)[np.array(ends) - 1]).max()
    each = min(EACH, 0.2 * 8 * float(largest) / asked.rate)  # type: ignore[operator]
    measured = measure(train, asked, passes(train, asked, Host(each=each)))
    assert measured.rate == pytest.approx(asked.rate, rel=0.02)
    assert not measured.at_least
    assert measured.delay == pytest.approx(delay, abs=1e-4)
    low, high = interval(measured.lost, measured.packets)
    assert low <= measured.loss <= high
    assert off(asked, measured) == []


@settings(deadline=None)
@given(rates, st.integers(3_028, 10**6), st.sampled_from([0.0, 0.01, 0.3]))
def test_a_queue_with_a_length_has_room_for_a_train(rate: int, queue: int, loss: float) -> None:
    """As if all of it were sent at once; the first packets pass the full bucket.

    There may be none for its reserve, three standard deviations of the losses, if all arrive.
    """
    shape = Shape(min(max(rate, SLOWEST), FASTEST), loss=loss, queue=queue)
    train = compose(shape)
    reserve = 3 * math.sqrt(len(train.wire) * loss * (1 - loss)) * float(train.wire.mean())
    through = (1 - loss) * float(train.wire.sum())
    assert through - reserve - train.bucket <= queue
    assert train.wire.max() <= max(1514, queue // 4)


def test_a_delay_may_be_off_by_its_jitter() -> None:
    asked = Shape(10_000_000, delay=0.04, jitter=0.01)
    for delay, found in ((0.03, []), (0.05, []), (0.02, ["delay"]), (0.07, ["delay"])):
        assert judged(asked, Shape(10_000_000, delay)) == found


@settings(deadline=None)
@given(rates, st.sampled_from([0.0, 0.01, 0.3]))
def test_a_train_is_short(rate: int, loss: float) -> None:
    asked = Shape(min(max(rate, SLOWEST), FASTEST), 0.0, loss)
    train = compose(asked)
    assert max(train.payloads) <= 65_507  # a datagram's most
    assert len(train.payloads) <= 1000 or loss  # HTB's own queue
    assert train.seconds <= (0.7 if loss else 0.3)
    assert train.refill <= 1.5
    assert train.wire.sum() * (1 - loss) <= bucket(asked.rate) + 3_000_000


@pytest.mark.parametrize("factor", [0.05, 0.5, 0.85, 1.15, 2, 100])
@pytest.mark.parametrize("rate", [50_000, 10 * MBIT, 900 * MBIT])
def test_a_rate_other_than_asked_is_found(rate: int, factor: float) -> None:
    assert judged(Shape(rate), Shape(round(rate * factor))) == ["rate"]


@pytest.mark.parametrize("rate", [50_000, 10 * MBIT, 90 * MBIT])
def test_a_link_without_shaping_is_found(rate: int) -> None:
    asked = Shape(rate)
    train = compose(asked)
    measured = measure(train, asked, passes(train, Shape()))
    assert measured.at_least and measured.rate is not None and measured.rate > 1.1 * rate
    assert off(asked, measured) == ["rate"]


def test_a_host_that_sends_too_slowly_blames_no_link() -> None:
    asked = Shape(1000 * MBIT)
    train = compose(asked)
    slow = Host(each=2 * 8 * float(train.wire.max()) / 1e9)
    measured = measure(train, asked, passes(train, asked, slow))
    assert measured.at_least and measured.rate is not None and measured.rate < 600 * MBIT
    assert off(asked, measured) == [] and is_open(measured, asked)
    good = measure(train, asked, passes(train, asked, Host(each=2e-5)))
    assert not good.at_least and not is_open(good, asked)
    for both in (measured.better(good, asked), good.better(measured, asked)):
        assert both.rate == good.rate and not both.at_least


def test_pauses_of_the_sender_make_no_link_seem_faster() -> None:
    asked = Shape(1000 * MBIT)
    train = compose(asked)
    passage = passes(train, asked)
    for seed in range(50):
        pauses = np.random.default_rng(seed).random(len(train.wire)) < 0.15
        sent = np.cumsum(np.where(pauses, 4e-3, 2e-5))
        arrived, tokens, filled, free = [], float(train.bucket), 0.0, 0.0
        for moment, size in zip(sent, train.wire, strict=True):
            leaves = max(moment, free)
            tokens = min(train.bucket, tokens + (leaves - filled) * 125e6)
            filled = leaves
            if tokens < 0:
                leaves += -tokens / 125e6
                tokens, filled = 0.0, leaves
            tokens -= size
            free = leaves
            arrived.append(leaves)
        stamps = [
            np.round(1e9 * (1000 + np.array(one))).astype(np.int64) for one in (sent, arrived)
        ]
        measured = measure(train, asked, Passage(stamps[0], stamps[1], passage.until))
        assert "rate" not in off(asked, measured), (seed, measured)


def test_one_stall_changes_little_and_the_better_measurement_counts() -> None:
    asked = Shape(10 * MBIT)
    train = compose(asked)
    stalled = measure(train, asked, passes(train, asked, Host(stalls=((0.1, 0.02),))))
    assert off(asked, stalled) == []
    # A longer one affects few sections of the train; pauses in five sixths of the time are too much.
    paused = measure(train, asked, passes(train, asked, Host(stalls=((0.05, 0.06),))))
    assert off(asked, paused) == [] and paused.rate == pytest.approx(asked.rate, rel=0.02)
    often = tuple((0.012 * i, 0.01) for i in range(1, 60))
    paused = measure(train, asked, passes(train, asked, Host(stalls=often)))
    assert off(asked, paused) == ["rate"]
    good = measure(train, asked, passes(train, asked))
    for both in (paused.better(good, asked), good.better(paused, asked)):
        assert off(asked, both) == [] and both.rate == good.rate


def test_a_delay_that_is_missing_or_wrong_is_found() -> None:
    asked = Shape(5 * MBIT, 0.04)
    assert judged(asked, asked) == []
    assert judged(asked, Shape(5 * MBIT)) == ["delay"]
    assert judged(asked, Shape(5 * MBIT, 0.035)) == ["delay"]
    assert judged(asked, Shape(5 * MBIT, 0.05)) == ["delay"]
    assert judged(Shape(5 * MBIT), Shape(5 * MBIT, 0.01)) == ["delay"]
    assert judged(Shape(None, 0.04), Shape(None, 0.0)) == ["delay"]
    assert judged(Shape(None, 0.04), Shape(None, 0.04)) == []


def test_a_loss_that_is_missing_or_too_high_is_found() -> None:
    asked = Shape(5 * MBIT, 0.0, 0.01)
    for seed in range(20):
        assert judged(asked, asked, seed=seed) == []
        assert judged(asked, Shape(5 * MBIT), seed=seed) == ["loss"]
        assert judged(asked, Shape(5 * MBIT, 0.0, 0.05), seed=seed) == ["loss"]
        assert judged(Shape(5 * MBIT), Shape(5 * MBIT, 0.0, 0.2), seed=seed) == ["loss"]


def test_packets_that_are_still_in_the_queue_are_not_lost() -> None:
    asked = Shape(10 * MBIT)
    train = compose(asked)
    passage = passes(train, Shape(MBIT), patience=0.5)
    assert not is_over(passage)
    measured = measure(train, asked, passage)
    assert measured.lost == 0 and measured.rate == pytest.approx(MBIT, rel=0.01)


def test_a_link_that_lets_nothing_through_is_found() -> None:
    asked = Shape(10 * MBIT, 0.01)
    train = compose(asked)
    nothing = Passage(np.zeros(len(train.wire), np.int64), np.full(len(train.wire), -1), 10**9)
    measured = measure(train, asked, nothing)
    assert measured == LinkMeasurement(0.0, False, None, len(train.wire), len(train.wire))
    assert off(asked, measured) == ["rate", "loss"]


def test_a_link_that_passes_too_few_packets_for_a_slope_is_found_slow() -> None:
    asked = Shape(10 * MBIT)
    train = compose(asked)
    measured = measure(train, asked, passes(train, Shape(2000), patience=0.5))
    assert measured.rate is not None and measured.rate < 0.2 * MBIT
    assert off(asked, measured) == ["rate"]


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        (Shape(SLOWEST - 1), "slow"),
        (Shape(8), "slow"),
        (Shape(FASTEST + 1), "fast"),
        (Shape(None, LONGEST_DELAY + 1), "delay"),
        (Shape(None, 0.0, 0.6), "its loss"),
    ],
)
def test_shapes_that_cannot_be_measured_quickly_are_named(shape: Shape, word: str) -> None:
    why = unmeasurable(shape)
    assert why is not None and word in why
    assert unmeasurable(Shape(SLOWEST, LONGEST_DELAY, 0.5)) is None


@settings(deadline=None)
@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_clopper_and_pearsons(seen: tuple[int, int]) -> None:
    lost, packets = seen
    expected = stats.binomtest(lost, packets).proportion_ci(CONFIDENCE, "exact")
    assert interval(lost, packets) == pytest.approx((expected.low, expected.high), abs=1e-6)

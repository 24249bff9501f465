"""The estimators of the gain against equations (10) to (16) of Xu et al., written naively."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms.backup_workers.gain import Gain, GainEstimator, Gradients
from testbed.updates import DenseUpdate, SparseUpdate
from tests.many_examples import many

SIZE = 5
D = 3
ETA = 0.125
values = st.lists(st.floats(-4, 4, width=32), min_size=SIZE, max_size=SIZE)
gradients = st.lists(st.tuples(values, st.floats(0, 4)), min_size=1, max_size=4)


def naive(
    iterations: list[list[tuple[list[float], float]]], clip: bool
) -> tuple[float, float, float] | None:
    """Return the estimates of ‖∇F‖², V(g) and L after some iterations, with the whole history."""
    norms: list[float] = []
    spreads: list[float] = []
    constants: list[float] = []
    losses = [sum(loss for _, loss in one) / len(one) for one in iterations]
    for t, one in enumerate(iterations):
        g: npt.NDArray[np.float64] = np.array([vector for vector, _ in one])
        k = len(g)
        if t > 0:
            before = len(iterations[t - 1])
            divisor = ETA**2 * (norms[-1] + spreads[-1] / before)
            if divisor:
                found = 2 * (ETA * norms[-1] - (losses[t - 1] - losses[t])) / divisor
                constants.append(max(0.0, found) if clip else found)
        spread = float(np.var(g, axis=0, ddof=1).sum()) if k > 1 else 0.0
        spreads.append(spread if k > 1 or not spreads else spreads[-1])
        norms.append(max(0.0, sum(g.mean(0) ** 2) - spreads[-1] / k))
    if not constants:
        return None
    norm, spread, constant = (sum(x[-D:]) / len(x[-D:]) for x in (norms, spreads, constants))
    return norm, spread, constant


@many(60)
@given(st.lists(gradients, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_estimates_are_those_of_the_whole_history(
    iterations: list[list[tuple[list[float], float]]], clip: bool, sparse: bool
) -> None:
    """Of dense gradients and of sparse ones, whose other entries are 0."""
    estimator, there = GainEstimator(D, clip), Gradients(SIZE)
    for one in iterations:
        for vector, loss in one:
            entries = np.array(vector, np.float32)
            at = np.flatnonzero(entries).astype(np.uint32)
            update = SparseUpdate(at, entries[at]) if sparse else DenseUpdate(entries)
            there.add(update, loss)
        estimator.observe(there, ETA)
        there.clear()
    found, expected = estimator.gain(), naive(iterations, clip)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert [found.norm, found.spread, found.smoothness] == pytest.approx(
            expected, rel=1e-6, abs=1e-6
        )


def test_the_gain_is_that_of_equation_9() -> None:
    """(η − Lη²/2)·‖∇F‖² − Lη²/2 · V/k."""
    k = np.array([1, 4])
    expected = [(0.1 - 0.02 / 2) * 3 - 0.02 / 2 * 5 / n for n in (1, 4)]
    assert Gain(3, 5, 2).of(k, 0.1) == pytest.approx(expected)


def test_a_variance_far_below_the_norm_survives() -> None:
    """Two gradients of norm 10⁶ that differ by one part in 10⁵: float32 sums would lose it."""
    there, estimator = Gradients(10_000), GainEstimator(1, clip=True)
    base = np.full(10_000, 1e4, np.float32)
    pushed = [base, base + np.float32(0.125)]
    for vector in pushed:
        there.add(DenseUpdate(vector), 0.0)
    estimator.observe(there, ETA)
    exact = np.var(np.array(pushed, np.float64), axis=0, ddof=1).sum()
    assert estimator._spreads == pytest.approx([exact], rel=1e-3)


def test_zero_gradients_say_nothing_of_the_smoothness() -> None:
    """Its estimate would be 0 / 0."""
    estimator, there = GainEstimator(D, clip=False), Gradients(SIZE)
    for _ in range(3):
        there.add(DenseUpdate(np.zeros(SIZE, np.float32)), 1.0)
        estimator.observe(there, ETA)
        there.clear()
    assert estimator.gain() is None
    assert not any(map(math.isnan, estimator._norms))

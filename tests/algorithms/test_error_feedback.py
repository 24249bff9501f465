"""Error feedback against its equations, written naively, an entry at a time."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.algorithms import ALGORITHMS
from testbed.algorithms.asgd import WholeGradient
from testbed.algorithms.compression import LargestEntries
from testbed.algorithms.error_feedback import ErrorFeedback
from testbed.algorithms.interface import Conditions
from testbed.updates import DenseUpdate, Layout, SparseUpdate

LAYOUT = Layout(("weights", "biases"), (9, 3))
SIZE = LAYOUT.total

Vector: TypeAlias = npt.NDArray[np.float32]

# Multiples of 1/8 up to 16: dozens of them add up without rounding, in any order.
exact = st.integers(-128, 128).map(lambda n: n / 8)
gradients = st.lists(st.lists(exact, min_size=SIZE, max_size=SIZE), min_size=1, max_size=12)
ratios = st.sampled_from([0.01, 0.2, 0.5, 1.0])


def feedback(ratio: float, momentum: float = 0.0, decay: float = 1.0) -> ErrorFeedback:
    return ErrorFeedback(LargestEntries(LAYOUT, ratio, "tensor"), LAYOUT, momentum, decay)


def push(half: ErrorFeedback, gradient: list[float] | Vector) -> SparseUpdate:
    g = np.array(gradient, np.float32)
    update = half.compress(g)
    assert isinstance(update, SparseUpdate)
    assert np.array_equal(g, np.array(gradient, np.float32), equal_nan=True)  # left alone
    return update


def dense(update: SparseUpdate) -> Vector:
    vector = np.zeros(SIZE, np.float32)
    vector[update.indices] = update.values
    return vector


def rest(half: ErrorFeedback) -> Vector:
    """Return the residual v, the part of all gradients that is not sent yet."""
    return half._residual


@given(gradients, ratios)
def test_sent_and_kept_values_add_up_to_all_gradients(
    steps: list[list[float]], ratio: float
) -> None:
    half = feedback(ratio)
    sent = sum((dense(push(half, g)) for g in steps), np.zeros(SIZE, np.float32))
    assert np.array_equal(sent + rest(half), np.sum(np.array(steps, np.float32), axis=0))


@given(gradients, ratios, st.sampled_from([0.0, 0.25, 0.9]), st.sampled_from([0.0, 0.5, 1.0]))
def test_momentum_decay_and_masking_follow_the_equations(
    steps: list[list[float]], ratio: float, m: float, beta: float
) -> None:
    half = feedback(ratio, m, beta)
    u, v = [np.float32(0)] * SIZE, [np.float32(0)] * SIZE
    for g in steps:
        update = push(half, g)
        for k in range(SIZE):
            u[k] = np.float32(m) * u[k] + np.float32(g[k])
            v[k] = np.float32(beta) * v[k] + u[k]
        expected = LargestEntries(LAYOUT, ratio, "tensor").compress(np.array(v))
        assert np.array_equal(update.indices, expected.indices)
        assert np.array_equal(update.values, expected.values)
        for k in update.indices:
            u[k] = v[k] = np.float32(0)
        assert np.array_equal(rest(half), np.array(v))


@given(gradients, st.sampled_from([0.0, 0.9]))
def test_ratio_1_sends_everything_and_keeps_nothing(
    steps: list[list[float]], momentum: float
) -> None:
    half = feedback(1.0, momentum)
    for g in steps:
        # Nothing is kept, the momentum of what was sent included: plain SGD.
        assert np.array_equal(dense(push(half, g)), np.array(g, np.float32))
        assert not rest(half).any()


@given(gradients, ratios)
def test_decay_0_is_the_selection_alone(steps: list[list[float]], ratio: float) -> None:
    half, alone = feedback(ratio, decay=0.0), LargestEntries(LAYOUT, ratio, "tensor")
    for g in steps:
        update, expected = push(half, g), alone.compress(np.array(g, np.float32))
        assert np.array_equal(dense(update), dense(expected))


@given(gradients, ratios)
def test_rounding_errors_of_the_encoding_are_sent_later(
    steps: list[list[float]], ratio: float
) -> None:
    half = feedback(ratio)
    total = np.zeros(SIZE, np.float32)
    for g in steps:
        update = push(half, g)
        received = SparseUpdate(update.indices, np.trunc(update.values))  # coarse on purpose
        half.lost(update, received)
        total += dense(received)
    assert np.array_equal(total + rest(half), np.sum(np.array(steps, np.float32), axis=0))


def test_real_gradients_are_not_lost_beyond_rounding() -> None:
    draw = np.random.default_rng(5)
    layout = Layout(("a", "b"), (20_000, 50))
    half = ErrorFeedback(LargestEntries(layout, 0.01, "tensor"), layout)
    sent, total = np.zeros(layout.total), np.zeros(layout.total)
    for _ in range(50):
        g = draw.normal(size=layout.total).astype(np.float32)
        update = half.compress(g)
        assert isinstance(update, SparseUpdate)
        received = SparseUpdate(update.indices, update.values.astype(np.float16).astype(np.float32))
        half.lost(update, received)
        sent[update.indices] += received.values
        total += g
    assert np.allclose(sent + half._residual, total, rtol=0, atol=1e-5)


def test_an_update_does_not_change_when_the_residual_does() -> None:
    half = feedback(0.5)
    update = push(half, [float(k) for k in range(SIZE)])
    before = update.values.copy()
    push(half, [100.0] * SIZE)
    assert np.array_equal(update.values, before)


def test_a_dense_selection_keeps_only_the_encoding_s_errors() -> None:
    half = ErrorFeedback(WholeGradient(), LAYOUT)
    for _ in range(2):
        update = half.compress(np.full(SIZE, 1.25, np.float32))
        assert isinstance(update, DenseUpdate)
        half.lost(update, DenseUpdate(np.floor(update.values)))
    assert np.array_equal(update.values, np.full(SIZE, 1.5, np.float32))
    assert np.array_equal(half._residual, np.full(SIZE, 0.5, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_infinite_or_nan_entry_is_sent_once_and_not_kept(value: float, momentum: float) -> None:
    half = feedback(0.01, momentum)
    gradient = np.zeros(SIZE, np.float32)
    gradient[4] = value
    update = push(half, gradient)
    half.lost(update, SparseUpdate(update.indices, np.full(len(update.indices), 7, np.float32)))
    assert not np.isfinite(update.values[0])
    assert np.isfinite(push(half, [1.0] * SIZE).values).all()
    assert np.isfinite(half._residual).all()


@pytest.mark.parametrize("name", ["comp-asgd", "adacomp"])
def test_every_compressing_algorithm_takes_error_feedback(name: str) -> None:
    algorithm = ALGORITHMS[name]
    one = Conditions(learning_rate=0.1, workers=1, batch_size=10, updates=100)
    fields = {"name": name, "ratio": 0.01, "scope": "tensor", "error_feedback": True}
    plain = algorithm.worker(algorithm.options_type.model_validate(fields), LAYOUT, one)
    fields |= {"momentum": 0.5, "error_decay": 0.25}
    full = algorithm.worker(algorithm.options_type.model_validate(fields), LAYOUT, one)
    first = np.array([8, 4, 0, 0, 0, 0, 0, 0, 0, 8, 4, 0], np.float32)
    for half, second in ((plain, [4, 4]), (full, [3, 3])):
        assert half.compress(first).values.tolist() == [8, 8]
        # Without momentum 4 is kept; with m = 0.5 and β = 0.25 it becomes 0.25·4 + 0.5·4.
        assert half.compress(np.zeros(SIZE, np.float32)).values.tolist() == second

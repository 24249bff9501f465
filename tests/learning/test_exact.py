"""Exact values of the training images, against the same computed naively."""

import numpy as np
import pytest

from testbed.learning.exact import LOSS, NORM, VARIANCE, Exact, columns
from testbed.learning.learner import Learner
from testbed.learning.models import initialise

SIZE = 20


def test_loss_norm_and_variance_are_those_of_all_mini_batches() -> None:
    generator = np.random.default_rng(1)
    images = generator.random((5 * SIZE + 3, 1, 28, 28), np.float32)
    labels = generator.integers(0, 10, len(images))
    parameters = initialise("mlp", "torch", generator)
    exact = Exact(Learner("mlp", SIZE), images, labels, SIZE, gradient=True)
    assert set(exact.at(np.zeros_like(parameters))) == set(columns(True))
    found = exact.at(parameters)

    def learner(size: int) -> Learner:
        one = Learner("mlp", size)
        one.parameters[:] = parameters
        return one

    whole = slice(0, 5 * SIZE)  # three images make up no mini-batch
    gradient, _ = learner(5 * SIZE).gradient(images[whole], labels[whole])
    assert found[NORM] == pytest.approx(float(gradient.astype(float) @ gradient), rel=1e-4)
    parts = np.array(
        [
            learner(SIZE).gradient(images[at : at + SIZE], labels[at : at + SIZE])[0].copy()
            for at in range(0, 5 * SIZE, SIZE)
        ],
        np.float64,
    )
    assert found[VARIANCE] == pytest.approx(parts.var(axis=0, ddof=1).sum(), rel=1e-6)
    _, loss = learner(len(images)).gradient(images, labels)
    assert found[LOSS] == pytest.approx(loss, rel=1e-5)


def test_the_variance_of_one_mini_batch_is_unknown_and_the_loss_comes_alone_if_asked() -> None:
    images, labels = np.ones((SIZE, 1, 28, 28), np.float32), np.zeros(SIZE, np.int64)
    start = initialise("mlp", "torch", np.random.default_rng(1))
    found = Exact(Learner("mlp", SIZE), images, labels, SIZE, gradient=True).at(start)
    assert np.isnan(found[VARIANCE])
    alone = Exact(Learner("mlp", SIZE), images, labels, SIZE, gradient=False).at(start)
    assert alone == {LOSS: found[LOSS]}

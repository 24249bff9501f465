"""Learners whose memory forked processes share."""

import os

import numpy as np
import pytest

from testbed.learning.learner import Learner


@pytest.mark.parametrize("model", ["mlp", "cnn", "cnn-5x5", "cnn-small"])
@pytest.mark.parametrize("autograd", [False, True])
def test_a_shared_learner_computes_the_same_bits_and_its_parent_reads_them(
    model: str, autograd: bool
) -> None:
    drawn = np.random.default_rng(1)
    own = Learner(model, 10, autograd=autograd)
    shared = own.twin()
    shared.share_memory()
    own.parameters[:] = 0.1 * drawn.standard_normal(own.layout.total, np.float32)
    images = drawn.standard_normal((10, 1, 28, 28), np.float32)
    labels = drawn.integers(0, 10, 10)
    child = os.fork()
    if not child:
        shared.parameters[:] = own.parameters
        shared.gradient(images, labels, 3)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(shared.parameters, own.parameters)
    expected, loss = own.gradient(images, labels, 3)
    # What the child computed is here: nothing of it was written to memory of its own.
    assert np.array_equal(shared._gradient, expected)
    again, loss_again = shared.gradient(images, labels, 3)
    assert np.array_equal(again, expected)
    assert loss_again == loss

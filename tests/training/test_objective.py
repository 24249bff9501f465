"""The gradient that a device computes: clipping, weight decay and shared buffers by their equations."""

import numpy as np
import pytest

from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import load
from testbed.learning.learner import Learner
from testbed.learning.models import initialise
from testbed.random_streams import stream
from testbed.training.objective import PLAIN, Objective
from testbed.updates import FloatVector


def gradient(objective: Objective) -> tuple[FloatVector, Learner]:
    """Return the gradient of one mini-batch, always the same, and the learner."""
    learner = Learner("cnn-small", 10, buffers="shared")
    generator = np.random.default_rng(2)
    learner.parameters[:] = initialise("cnn-small", "torch", generator, buffers="shared")
    batches = Batches(
        load("digits"), np.arange(100), 10, stream(1, "batches"), layers=stream(1, "layers")
    )
    found, _ = objective.gradient(learner, batches, batches.draw())
    return found.copy(), learner


def test_decay_is_added_to_the_gradient_of_parameters_alone() -> None:
    plain, learner = gradient(PLAIN)
    own = learner.statistics
    decayed, _ = gradient(Objective(PLAIN.alpha, weight_decay=0.5))
    expected = plain[: own.start] + np.float32(0.5) * learner.parameters[: own.start]
    np.testing.assert_allclose(decayed[: own.start], expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(decayed[own], plain[own])


def test_a_gradient_is_clipped_before_decay_is_added() -> None:
    plain, learner = gradient(PLAIN)
    at = learner.statistics.start
    norm = float(np.linalg.norm(plain[:at].astype(np.float64)))
    clipped, _ = gradient(Objective(PLAIN.alpha, 0.5, norm / 4))
    expected = plain[:at] / 4 + np.float32(0.5) * learner.parameters[:at]
    np.testing.assert_allclose(clipped[:at], expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(clipped[at:], plain[at:])
    loose, _ = gradient(Objective(PLAIN.alpha, clip=norm * 1.01))
    np.testing.assert_array_equal(loose, plain)


def test_changes_of_buffers_are_divided_by_the_learning_rate() -> None:
    plain, learner = gradient(PLAIN)
    found, _ = gradient(Objective(0.25))
    at = learner.statistics.start
    np.testing.assert_array_equal(found[:at], plain[:at])
    assert found[at:] == pytest.approx(4 * plain[at:])

"""The learner's steps and evaluations against plain autograd in torch's own layout."""

import copy
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import load
from testbed.learning.learner import Learner
from testbed.learning.models import FAST, MODELS, initialise
from testbed.random_streams import stream
from tests.fastgrad.models import strided

Batch = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def batch(size: int, seed: int = 0) -> Batch:
    dataset = load("digits")
    return Batches(dataset, np.arange(1000), size, stream(seed, "test")).next()


def filled(module: nn.Module, values: npt.NDArray[np.float32]) -> nn.Module:
    """Fill a module, made and laid out by torch alone, with the parameters, and return it."""
    nn.utils.vector_to_parameters(torch.from_numpy(values.copy()), module.parameters())
    return module


@pytest.mark.parametrize("autograd", [False, True])
def test_steps_equal_those_of_torch_s_sgd(autograd: bool) -> None:
    dataset = load("digits")
    learner = Learner("cnn", 10, autograd)
    learner.parameters[:] = initialise("cnn", "torch", np.random.default_rng(5))
    start = learner.parameters.copy()
    module = filled(MODELS["cnn"](), start)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05)
    batches = Batches(dataset, np.arange(1442), 10, stream(5, "test"))
    for _ in range(20):
        images, labels = batches.next()
        gradient, _ = learner.gradient(images, labels)
        learner.parameters -= np.float32(0.05) * gradient
        optimiser.zero_grad()
        logits = module(torch.from_numpy(images))
        nn.functional.cross_entropy(logits, torch.from_numpy(labels)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    way = float(np.linalg.norm(expected - start))
    assert way > 0.1
    assert float(np.linalg.norm(learner.parameters - expected)) < 2e-3 * way


def test_digits_are_learned() -> None:
    dataset = load("digits")
    learner = Learner("cnn", 10)
    learner.parameters[:] = initialise("cnn", "paper", np.random.default_rng(1))
    batches = Batches(dataset, np.arange(1442), 10, stream(1, "test"))
    accuracy_before, loss_before, _ = learner.evaluate(dataset.test_images, dataset.test_labels)
    for _ in range(400):
        gradient, _ = learner.gradient(*batches.next())
        learner.parameters -= np.float32(0.05) * gradient
    accuracy, loss, _ = learner.evaluate(dataset.test_images, dataset.test_labels)
    assert accuracy_before < 40
    assert accuracy > 90
    assert loss < loss_before / 3


@pytest.mark.parametrize("autograd", [False, True])
@pytest.mark.parametrize("size", [1, 10, 64, 1000])
@pytest.mark.parametrize("make", [*(MODELS[name] for name in sorted(FAST)), strided])
def test_an_evaluation_equals_torch_s_for_any_batch_size(
    make: Callable[[], nn.Module], size: int, autograd: bool
) -> None:
    torch.manual_seed(3)
    dataset = load("digits")
    module = make()
    learner = Learner(make(), 10, autograd)
    images, labels = dataset.test_images[:93].copy(), dataset.test_labels[:93]
    for _ in range(2):  # an evaluation keeps nothing of the earlier parameters
        learner.parameters[:] = nn.utils.parameters_to_vector(module.parameters()).detach()
        with torch.no_grad():
            logits = copy.deepcopy(module).double()(torch.from_numpy(images).double())
        truth = torch.from_numpy(labels)
        accuracy, loss, _ = learner.evaluate(images, labels, size)
        assert accuracy == pytest.approx(100 * float((logits.argmax(1) == truth).float().mean()))
        assert loss == pytest.approx(float(nn.functional.cross_entropy(logits, truth)), rel=1e-5)
        module = make()
    assert images.tobytes() == dataset.test_images[:93].tobytes()


@pytest.mark.parametrize("autograd", [False, True])
def test_writing_into_the_parameters_changes_the_model(autograd: bool) -> None:
    images, labels = batch(10)
    learner = Learner("mlp", 10, autograd)
    buffer = learner.parameters.data.cast("B")
    _, at_zero = learner.gradient(images, labels)
    assert at_zero == pytest.approx(np.log(10), rel=1e-6)
    buffer[-4:] = np.float32(5).tobytes()  # as a socket would: the last bias
    _, after = learner.gradient(images, labels)
    others = np.count_nonzero(labels != 9)
    assert after == pytest.approx(np.log(9 + np.exp(5)) - 5 * (1 - others / 10), rel=1e-5)


@pytest.mark.parametrize("autograd", [False, True])
def test_the_same_input_gives_the_same_bits(autograd: bool) -> None:
    one, two = Learner("cnn", 10, autograd), Learner("cnn", 10, autograd)
    one.parameters[:] = two.parameters[:] = initialise("cnn", "paper", np.random.default_rng(0))
    images, labels = batch(10)
    first = one.gradient(images, labels)[0].tobytes()
    # another batch and an evaluation in between have no effect
    one.gradient(*batch(10, seed=8))
    one.evaluate(*batch(17, seed=9))
    assert one.gradient(images, labels)[0].tobytes() == first
    assert two.gradient(images, labels)[0].tobytes() == first
    assert one.gradient(images, labels)[0] is one.gradient(images, labels)[0]


def test_buffers_are_aligned_for_the_matrix_library() -> None:
    learner = Learner("cnn", 10)
    assert learner.parameters.ctypes.data % 64 == 0
    assert learner.gradient(*batch(10))[0].ctypes.data % 64 == 0


def test_a_batch_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 9 where 10 were announced"):
        Learner("mlp", 10).gradient(*batch(9))

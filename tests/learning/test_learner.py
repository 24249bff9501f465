"""The learner's gradients, steps and evaluations against plain autograd in torch's own layout."""

import copy
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import load
from testbed.learning.fast import inference
from testbed.learning.fast.layers import Slot
from testbed.learning.inputs import GREY_28
from testbed.learning.learner import Learner
from testbed.learning.models import MODELS, initialise
from testbed.streams import stream
from testbed.updates import Layout
from tests.learning.other_models import FAST, strided, wide

Batch = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def batch(size: int, seed: int = 0) -> Batch:
    dataset = load("digits")
    return Batches(dataset, np.arange(1000), size, stream(seed, "test")).next()


def filled(module: nn.Module, values: npt.NDArray[np.float32]) -> nn.Module:
    """Fill a module, made and laid out by torch alone, with the parameters, and return it."""
    nn.utils.vector_to_parameters(torch.from_numpy(values.copy()), module.parameters())
    return module


def reference(
    module: nn.Module, images: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], float]:
    """Return gradient and loss by plain autograd in float64; images are NCHW.

    float32 is no reference: its rounding decides which of two nearly equal entries is the larger,
    and the gradient then takes another path through the max-pool.
    """
    exact = copy.deepcopy(module).double()
    logits = exact(torch.from_numpy(images).double())
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels))
    gradients = torch.autograd.grad(loss, list(exact.parameters()))
    return nn.utils.parameters_to_vector(gradients).numpy(), float(loss.detach())


def worst_error(
    layout: Layout, gradient: npt.NDArray[np.float32], expected: npt.NDArray[np.float64]
) -> float:
    """Return the largest error in any tensor, relative to that tensor's largest entry."""
    return max(
        float(np.abs(gradient[part] - expected[part]).max() / np.abs(expected[part]).max())
        for part in layout.slices
    )


@pytest.mark.parametrize("autograd", [False, True])
@pytest.mark.parametrize("law", ["paper", "torch"])
@pytest.mark.parametrize("model", FAST)
def test_the_gradient_equals_plain_autograd_s(model: str, law: str, autograd: bool) -> None:
    learner = Learner(model, 10, autograd)
    assert learner.fast is not autograd
    errors = []
    for seed in range(6):
        generator = np.random.default_rng(seed)
        learner.parameters[:] = initialise(model, law, generator)  # type: ignore[arg-type]
        images, labels = batch(10, seed)
        gradient, loss = learner.gradient(images, labels)
        expected, expected_loss = reference(
            filled(MODELS[model](), learner.parameters), images, labels
        )
        assert gradient.dtype == np.float32
        assert gradient.shape == learner.parameters.shape == (learner.layout.total,)
        assert gradient.flags.c_contiguous
        assert loss == pytest.approx(expected_loss, rel=1e-5)
        errors.append(worst_error(learner.layout, gradient, expected))
    # One batch may meet a tie that rounding decides; the others are exact to a few roundings.
    assert sorted(errors)[-2] < 5e-6
    assert max(errors) < 0.05


def _without_bias() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False))


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(784, 784)
        self.out = nn.Linear(784, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = images.flatten(1)
        result: torch.Tensor = self.out(x + torch.tanh(self.inside(x)))
        return result


@pytest.mark.parametrize(
    ("make", "fast"),
    [(wide, True), (_without_bias, False), (strided, False), (_Residual, False)],
)
def test_gradients_of_other_models_equal_plain_autograd_s(
    make: Callable[[], nn.Module], fast: bool
) -> None:
    torch.manual_seed(3)
    module = make()
    values = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    images, labels = batch(7)
    expected, _ = reference(module, images, labels)
    learner = Learner(make(), 7)
    assert learner.fast is fast
    learner.parameters[:] = values
    gradient, _ = learner.gradient(images, labels)
    assert worst_error(learner.layout, gradient, expected) < 5e-6


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


def _without_pool() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 784, 10)
    )


def _cut_off() -> nn.Module:
    """Make a model whose pooling windows leave a border out."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(3 * 81, 10)
    )


def _rectified() -> nn.Module:
    """Make a model whose first layers, done in place, would change the images."""
    return nn.Sequential(nn.MaxPool2d(1), nn.ReLU(), nn.Flatten(), nn.ReLU(), nn.Linear(784, 10))


@pytest.mark.parametrize("autograd", [False, True])
@pytest.mark.parametrize("size", [1, 10, 64, 1000])
@pytest.mark.parametrize(
    "make",
    [
        *(MODELS[name] for name in FAST),
        wide,
        _without_pool,
        _cut_off,
        _rectified,
        strided,
        _Residual,
    ],
    ids=[*FAST, "wide", "without pool", "cut off", "rectified", "strided", "residual"],
)
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


@pytest.mark.parametrize("make", [*(MODELS[name] for name in FAST), wide, _cut_off])
def test_fast_evaluation_supports_the_models_of_fast_training(
    make: Callable[[], nn.Module],
) -> None:
    module = make()
    slots = {n: Slot(p.detach(), torch.empty_like(p)) for n, p in module.named_parameters()}
    assert inference.build(module, (10, *GREY_28.image), slots) is not None


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

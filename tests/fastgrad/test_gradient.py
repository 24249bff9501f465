"""One model's gradients and outputs against plain autograd in torch's own layout."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fastgrad.gradient import Gradient
from tests.fastgrad.models import FAST, IMAGE, SLOW, Centred, batches, cnn, drawn, flat, mlp, wide

Make = Callable[[], nn.Module]


def reference(module: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """Return gradient and loss by plain autograd in float64; images are NCHW.

    float32 is no reference: its rounding decides which of two nearly equal entries is the larger,
    and the gradient then takes another path through the max-pool.
    """
    exact = copy.deepcopy(module).double()
    loss = nn.functional.cross_entropy(exact(images.double()), labels)
    gradients = torch.autograd.grad(loss, list(exact.parameters()))
    return nn.utils.parameters_to_vector(gradients), float(loss.detach())


def worst_error(computed: Gradient, expected: Tensor) -> float:
    """Return the largest error in any tensor, relative to that tensor's largest entry."""
    return max(
        float((computed.gradient[part] - expected[part]).abs().max() / expected[part].abs().max())
        for part in computed.vector.slices
    )


@pytest.mark.parametrize("autograd", [False, True])
@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("make", FAST)
def test_the_gradient_equals_plain_autograd_s(make: Make, factor: float, autograd: bool) -> None:
    computed = Gradient(make(), IMAGE, 10, autograd=autograd)
    assert computed.fast is not autograd
    errors = []
    for seed in range(6):
        module = drawn(make, seed)
        nn.utils.vector_to_parameters(factor * flat(module), module.parameters())
        (images,), (labels,) = batches(1, 10, seed)
        computed.values.copy_(flat(module))
        loss = computed.compute(images, labels)
        expected, expected_loss = reference(module, images, labels)
        assert loss == pytest.approx(expected_loss, rel=1e-5)
        errors.append(worst_error(computed, expected))
    # One batch may meet a tie that rounding decides; the others are exact to a few roundings.
    assert sorted(errors)[-2] < 5e-6
    assert max(errors) < 0.05


@pytest.mark.parametrize("make", SLOW)
def test_gradients_of_other_models_are_autograd_s(make: Make) -> None:
    module, computed = drawn(make, 3), Gradient(drawn(make, 4), IMAGE, 7)
    (images,), (labels,) = batches(1, 7)
    assert not computed.fast
    computed.values.copy_(flat(module))
    computed.compute(images, labels)
    assert worst_error(computed, reference(module, images, labels)[0]) < 5e-6


def test_another_loss_runs_on_autograd() -> None:
    def distance(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs().mean()

    module, computed = drawn(mlp, 1), Gradient(mlp(), IMAGE, 5, loss=distance)
    (images,), targets = batches(1, 5)[0], torch.linspace(-1, 1, 50).view(5, 10)
    assert not computed.fast
    computed.values.copy_(flat(module))
    loss = computed.compute(images, targets)
    expected = distance(module(images), targets)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    gradient = torch.autograd.grad(expected, list(module.parameters()))
    torch.testing.assert_close(computed.gradient, nn.utils.parameters_to_vector(gradient))


@pytest.mark.parametrize("autograd", [False, True])
@pytest.mark.parametrize("size", [1, 10, 64, 1000])
@pytest.mark.parametrize("make", [*FAST, *SLOW])
def test_outputs_equal_torch_s_for_any_batch_size(make: Make, size: int, autograd: bool) -> None:
    computed = Gradient(drawn(make, 5), IMAGE, 10, autograd=autograd)
    outputs_of = computed.outputs(size)
    (images,), _ = batches(1, 93)
    before = images.clone()
    for seed in (3, 4):  # nothing of the earlier values is kept
        module = drawn(make, seed)
        computed.values.copy_(flat(module))
        with torch.inference_mode():
            computed.set_buffers()
            outputs = torch.cat([outputs_of(part).clone() for part in images.split(size)])
            expected = module.double()(images.double()).float()
        torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(images, before)


@pytest.mark.parametrize("make", FAST)
def test_outputs_of_the_models_of_fast_gradients_need_no_module(make: Make) -> None:
    with torch.device("meta"):
        module = make()
    computed = Gradient(module, IMAGE, 10)
    assert computed.fast
    assert computed.outputs(10) is not module


@pytest.mark.parametrize("make", [cnn, wide, Centred])
def test_the_same_input_gives_the_same_bits(make: Make) -> None:
    one, two = Gradient(drawn(make, 1), IMAGE, 10), Gradient(drawn(make, 2), IMAGE, 10)
    one.values.copy_(flat(drawn(make, 3)))
    two.values.copy_(one.values)
    images, labels = batches(2, 10)
    one.compute(images[0], labels[0])
    first = one.gradient.clone()
    one.compute(images[1], labels[1])  # another batch in between has no effect
    for computed in (one, two):
        computed.compute(images[0], labels[0])
        assert torch.equal(computed.gradient, first)
        assert computed.values.data_ptr() % 64 == computed.gradient.data_ptr() % 64 == 0


def test_buffers_outside_the_vector_are_as_made_or_as_given() -> None:
    class Counting(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(10, dtype=torch.int64))
            self.dense = nn.Linear(784, 10)

        def forward(self, images: Tensor) -> Tensor:
            self.calls += torch.arange(10)
            logits: Tensor = self.dense(images.flatten(1)) + self.calls
            return logits

    computed = Gradient(Counting(), IMAGE, 4)
    (images,), (labels,) = batches(1, 4)
    loss = computed.compute(images, labels)
    assert computed.compute(images, labels) == loss
    (left,) = computed.others
    assert torch.equal(left, torch.arange(10))
    other = computed.compute(images, labels, [left.clone()])
    assert other != loss
    assert torch.equal(left, 2 * torch.arange(10))


def test_a_batch_of_another_size_is_refused() -> None:
    (images,), (labels,) = batches(1, 9)
    with pytest.raises(ValueError, match="a batch of 9 where 10 were announced"):
        Gradient(mlp(), IMAGE, 10).compute(images, labels)

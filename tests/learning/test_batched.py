"""The batched learner: many workers' gradients in one call equal the serial learner's, one by one.

The accelerator's path runs here on the processor (``padded``), and on a CUDA device if there is one.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from testbed.learning.batched.learner import BatchedLearner
from testbed.learning.batched.pool import PairwiseMaxPool
from testbed.learning.batched.replay import SIZES
from testbed.learning.data.augmentation import Augmentation
from testbed.learning.data.datasets import load
from testbed.learning.inputs import GREY_28
from testbed.learning.learner import Learner
from testbed.learning.models import MODELS, initialise
from tests.learning.other_models import FAST, strided, wide

TOLERANCE = 5e-6
"""The largest error, relative to each tensor's largest entry: some roundings."""
BATCH = 10

Batches = tuple[Tensor, Tensor, Tensor]


def draw(workers: int, size: int = BATCH, seed: int = 0) -> Batches:
    """Draw images (m, b, 1, 28, 28); return them, their labels (m, b) and their indices (m, b)."""
    dataset = load("digits")
    indices = np.random.default_rng(seed).integers(0, len(dataset.train_labels), (workers, size))
    images, labels = dataset.train_images[indices], dataset.train_labels[indices]
    return torch.from_numpy(images), torch.from_numpy(labels), torch.from_numpy(indices)


def batched_learner(
    model: str | nn.Module, size: int = BATCH, device: str = "cpu", *, padded: bool = False
) -> BatchedLearner:
    """Make a batched learner of the dataset that ``draw`` draws from."""
    images, labels = map(
        torch.from_numpy, (load("digits").train_images, load("digits").train_labels)
    )
    return BatchedLearner(model, size, images, labels, device, padded)


def versions(model: str, workers: int) -> Tensor:
    drawn = [initialise(model, "torch", np.random.default_rng(i)) for i in range(workers)]
    return torch.from_numpy(np.stack(drawn))


def serial(learner: Learner, parameters: Tensor, images: Tensor, labels: Tensor) -> Batches:
    """Compute one worker after the other; return the gradients, the losses and the images."""
    gradients, losses = [], []
    for own, x, y in zip(parameters, images, labels, strict=True):
        learner.parameters[:] = own.numpy()
        gradient, loss = learner.gradient(x.numpy(), y.numpy())
        gradients.append(gradient.copy())
        losses.append(loss)
    return torch.from_numpy(np.stack(gradients)), torch.tensor(losses), images


def assert_same(
    learner: Learner | BatchedLearner, got: tuple[Tensor, Tensor], want: Batches
) -> None:
    gradients, losses = got
    assert gradients.dtype == losses.dtype == torch.float32
    assert gradients.shape == want[0].shape
    assert losses.shape == want[1].shape
    torch.testing.assert_close(losses.cpu(), want[1], rtol=1e-5, atol=1e-6)
    for part in learner.layout.slices:
        expected = want[0][:, part]
        scale = expected.abs().amax(1)
        assert scale.min() > 0
        error = (gradients.cpu()[:, part] - expected).abs().amax(1) / scale
        assert error.max() < TOLERANCE


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("model", FAST)
def test_gradients_equal_the_serial_learner_s(model: str, padded: bool) -> None:
    learner, batched = Learner(model, BATCH), batched_learner(model, padded=padded)
    assert batched.layout == learner.layout
    for workers in (1, 2, 3, 18):
        parameters = versions(model, workers)
        images, labels, indices = draw(workers, seed=workers)
        want = serial(learner, parameters, images, labels)
        assert_same(learner, batched.gradients(parameters, indices), want)
        apart = [row.clone() for row in parameters]
        assert_same(learner, batched.gradients(apart, indices), want)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("model", FAST)
def test_gradients_of_one_version_equal_the_serial_learner_s(model: str, padded: bool) -> None:
    learner, batched = Learner(model, BATCH), batched_learner(model, padded=padded)
    parameters = versions(model, 1)[0]
    for workers in (1, 2, 3, 18):
        images, labels, indices = draw(workers, seed=workers)
        want = serial(learner, parameters.expand(workers, -1), images, labels)
        assert_same(learner, batched.shared(parameters, indices), want)


def _linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


class _Centred(nn.Module):
    """A model that is no ``nn.Sequential`` and has a constant buffer besides its parameters."""

    centre: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.linspace(-1, 1, 784))
        self.inside = nn.Linear(784, 20)
        self.out = nn.Linear(20, 10)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.tanh(self.inside(images.flatten(1) - self.centre))
        result: Tensor = self.out(hidden)
        return result


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", [wide, strided, _Centred])
def test_gradients_of_other_models_equal_the_serial_learner_s(
    make: Callable[[], nn.Module], padded: bool, shared: bool
) -> None:
    workers, size = 5, 7
    torch.manual_seed(3)
    stacked = torch.stack(
        [nn.utils.parameters_to_vector(make().parameters()).detach() for _ in range(workers)]
    )
    if shared:
        stacked = stacked[:1].expand(workers, -1)
    images, labels, indices = draw(workers, size)
    learner, module = Learner(make(), size), make()
    before = copy.deepcopy(module.state_dict())
    batched = batched_learner(module, size, padded=padded)
    got = batched.shared(stacked[0], indices) if shared else batched.gradients(stacked, indices)
    assert_same(learner, got, serial(learner, stacked, images, labels))
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_a_workers_gradient_does_not_depend_on_the_others(model: str, padded: bool) -> None:
    batched = batched_learner(model, padded=padded)
    parameters, (_, _, indices) = versions(model, 6), draw(6)
    want = [t.clone() for t in batched.gradients(parameters, indices)]
    broken = parameters.clone()
    broken[3:] = torch.nan
    gradients, losses = batched.gradients(broken, indices)
    assert losses[3:].isnan().all()
    torch.testing.assert_close(gradients[:3], want[0][:3])
    # Fewer workers than before in the same block: the rest of its old content has no effect.
    gradients, losses = batched.gradients(parameters[:5], indices[:5])
    torch.testing.assert_close(gradients, want[0][:5])
    torch.testing.assert_close(losses, want[1][:5])
    order = torch.tensor([5, 0, 4, 2, 1, 3])
    gradients, _ = batched.gradients(parameters[order], indices[order])
    torch.testing.assert_close(gradients, want[0][order])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("workers", [1, 3, 20])
def test_memory_may_be_given_and_parameters_may_change_in_place(workers: int, padded: bool) -> None:
    learner, batched = Learner("mlp", BATCH), batched_learner("mlp", padded=padded)
    total = learner.layout.total
    store = torch.zeros(workers + 2, total + 5)
    parameters, wide = store[1:-1, 2 : 2 + total], torch.full((workers + 2, total + 3), 7.0)
    out = wide[1:-1, 1 : 1 + total]
    images, labels, indices = draw(workers)
    for step in range(3):
        parameters.copy_(versions("mlp", workers + step)[step:])
        gradients, losses = batched.gradients(parameters, indices, out)
        assert gradients is out
        assert_same(learner, (gradients, losses), serial(learner, parameters, images, labels))
    own, _ = batched.gradients(parameters, indices)
    assert torch.equal(own, out)
    wide[1:-1, 1 : 1 + total] = 7
    assert (wide == 7).all()


@pytest.mark.parametrize("shared", [False, True])
def test_more_workers_than_the_largest_padded_block_are_computed(shared: bool) -> None:
    workers = SIZES[-1] + 3
    parameters = torch.randn(workers, 7850, generator=torch.Generator().manual_seed(1)) / 28
    images, labels, indices = draw(workers, 2)
    learner, batched = Learner(_linear(), 2), batched_learner(_linear(), 2, padded=True)
    if shared:
        parameters = parameters[:1].expand(workers, -1)
        got = batched.shared(parameters[0], indices)
    else:
        got = batched.gradients(list(parameters), indices)
    assert_same(learner, got, serial(learner, parameters, images, labels))


def test_the_pairwise_max_pool_equals_torch_s_bit_for_bit_with_ties() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(-2, 3, (4, 6, 10, 3), generator=generator).float()
    dy = torch.randn(4, 3, 5, 3, generator=generator)
    leaf = x.clone().requires_grad_()
    pooled = nn.functional.max_pool2d(leaf.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
    pooled.backward(dy)  # type: ignore[no-untyped-call]
    layer = PairwiseMaxPool((4, 6, 10, 3))
    assert layer.output_shape == dy.shape
    y = torch.empty(layer.output_shape)
    layer.connect(y)
    layer.x.copy_(x)
    layer.forward()
    assert torch.equal(y, pooled)
    y.copy_(dy)
    layer.backward(into_input=True)
    assert leaf.grad is not None
    assert torch.equal(layer.x, leaf.grad)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that counts operations and records the devices of their tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self.devices: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += 1
        every = tree_leaves((args, kwargs))
        self.devices |= {t.device.type for t in every if isinstance(t, Tensor)}
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("model", "most"), [("cnn", 130), ("mlp", 40), ("mlp-large", 40)])
@pytest.mark.parametrize("shared", [False, True])
def test_operations_are_few_and_all_on_the_device(model: str, most: int, shared: bool) -> None:
    # The meta device computes nothing, so a read back from it would fail.
    batched, (_, _, indices) = batched_learner(model, device="meta"), draw(18)
    parameters = torch.empty(18, batched.layout.total, device="meta")
    batched.gradients(parameters, indices)
    batched.shared(parameters[0], indices)
    here, apart = indices.to("meta"), list(parameters)
    with _Operations() as seen:
        if shared:
            gradients, losses = batched.shared(parameters[0], here)
        else:
            gradients, losses = batched.gradients(apart, here)
    assert seen.devices == {"meta"}
    assert seen.count < most
    assert gradients.shape == parameters.shape
    assert losses.shape == (18,)


def test_inputs_that_do_not_match_are_refused() -> None:
    batched = batched_learner("mlp")
    parameters, (_, _, indices) = versions("mlp", 2), draw(2)
    with pytest.raises(ValueError, match="where 2 workers need 2 of 109386"):
        batched.gradients(parameters[:1], indices)
    with pytest.raises(ValueError, match="where 2 workers need 2 of 109386"):
        batched.gradients([row[1:] for row in parameters], indices)
    with pytest.raises(ValueError, match="0 parameter vectors"):
        batched.gradients([], indices)
    with pytest.raises(ValueError, match="no batches of the 10 announced"):
        batched.gradients(parameters, indices[:, 1:])
    with pytest.raises(ValueError, match="do not go into"):
        batched.gradients(parameters, indices, torch.empty(3, 109386))
    with pytest.raises(ValueError, match="no workers"):
        batched.gradients(parameters[:0], indices[:0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("make", [*(MODELS[name] for name in FAST), wide, strided, _Centred])
def test_gradients_on_cuda_equal_the_serial_learner_s(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(4)
    workers = 5
    parameters = torch.stack(
        [nn.utils.parameters_to_vector(make().parameters()).detach() for _ in range(workers)]
    )
    images, labels, indices = draw(workers)
    learner, batched = Learner(make(), BATCH), batched_learner(make(), device="cuda")
    want = serial(learner, parameters, images, labels)
    for _ in range(3):  # recorded, then replayed
        assert_same(learner, batched.gradients(parameters.cuda(), indices), want)
    want = serial(learner, parameters[:1].expand(workers, -1), images, labels)
    for _ in range(3):
        assert_same(learner, batched.shared(parameters[0].cuda(), indices), want)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_gradients_with_shared_buffers_equal_the_serial_learner_s(
    padded: bool, shared: bool
) -> None:
    """Each worker's BatchNorm statistics move from those of its version, by its own batch."""
    workers, size = 3, 4
    learner = Learner("resnet20", size, inputs=GREY_28, buffers="shared")
    data = load("digits")
    batched = BatchedLearner(
        "resnet20",
        size,
        torch.from_numpy(data.train_images),
        torch.from_numpy(data.train_labels),
        padded=padded,
        buffers="shared",
    )
    assert batched.layout == learner.layout
    rows = [
        initialise("resnet20", "torch", np.random.default_rng(i), GREY_28, "shared")
        for i in range(workers)
    ]
    for i, row in enumerate(rows):  # statistics of training under way
        row[learner.statistics] += np.float32(0.1 * i)
    parameters = torch.from_numpy(np.stack(rows[:1] * workers if shared else rows))
    images, labels, indices = draw(workers, size)
    got = (
        batched.shared(parameters[0], indices) if shared else batched.gradients(parameters, indices)
    )
    want, losses, _ = serial(learner, parameters, images, labels)
    torch.testing.assert_close(got[1], losses, rtol=1e-4, atol=1e-5)
    for part in learner.layout.slices:
        error = (got[0][:, part] - want[:, part]).abs().amax(1)
        assert (error <= 1e-3 * want[:, part].abs().amax(1) + 1e-6).all()
    again = batched.gradients(parameters, indices)  # nothing of the first call is left
    torch.testing.assert_close(again[0], want, rtol=1e-2, atol=1e-4)


def test_images_are_augmented_as_the_serial_batches_are() -> None:
    data = load("digits")
    augmentation = Augmentation(crop=3, flip=True)
    images, labels, indices = draw(3)
    moves = np.stack([augmentation.draw(BATCH, np.random.default_rng(i)) for i in range(3)])
    moved = images.numpy().copy()
    for batch, own in zip(moved, moves, strict=True):
        augmentation.apply(batch, own)
    batched = BatchedLearner(
        "mlp",
        BATCH,
        torch.from_numpy(data.train_images),
        torch.from_numpy(data.train_labels),
        augmentation=augmentation,
    )
    parameters = versions("mlp", 3)
    want = serial(Learner("mlp", BATCH), parameters, torch.from_numpy(moved), labels)
    got = batched.gradients(parameters, indices, moves=torch.from_numpy(moves))
    assert_same(batched, got, want)

"""Many workers' gradients in one call equal those of one model after the other.

The accelerator's path runs here on the processor (``padded``), and on a CUDA device if there is one.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fastgrad.gradient import Gradient
from fastgrad.vector import Vector
from fastgrad.workers.accelerator_blocks import SIZES
from fastgrad.workers.block_layers import PairwiseMaxPool
from fastgrad.workers.gradients import WorkersGradients
from tests.fastgrad.models import (
    FAST,
    IMAGE,
    STATISTICS,
    Centred,
    batches,
    cnn,
    drawn,
    flat,
    linear,
    mlp,
    normalised,
    strided,
    wide,
)

TOLERANCE = 5e-6
"""The largest error, relative to each tensor's largest entry: some roundings."""
BATCH, EXAMPLES = 10, 200

Make = Callable[[], nn.Module]
Batches = tuple[Tensor, Tensor, Tensor]

(IMAGES,), (LABELS,) = batches(1, EXAMPLES)
"""The dataset."""


def draw(workers: int, size: int = BATCH, seed: int = 0) -> Batches:
    """Draw images (m, b, 1, 28, 28); return them, their labels (m, b) and their indices (m, b)."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(EXAMPLES, (workers, size), generator=generator)
    return IMAGES[indices], LABELS[indices], indices


def together(
    module: nn.Module, size: int = BATCH, device: str = "cpu", *, padded: bool = False
) -> WorkersGradients:
    return WorkersGradients(module, size, IMAGES, LABELS, device=device, padded=padded)


def versions(make: Make, workers: int) -> Tensor:
    return torch.stack([flat(drawn(make, seed)) for seed in range(workers)])


def serial(one: Gradient, parameters: Tensor, images: Tensor, labels: Tensor) -> Batches:
    """Compute one worker after the other; return the gradients, the losses and the images."""
    gradients, losses = [], []
    for own, x, y in zip(parameters, images, labels, strict=True):
        one.values.copy_(own)
        losses.append(one.compute(x, y))
        gradients.append(one.gradient.clone())
    return torch.stack(gradients), torch.tensor(losses), images


def assert_same(vector: Vector, got: tuple[Tensor, Tensor], want: Batches) -> None:
    gradients, losses = got
    assert gradients.dtype == losses.dtype == torch.float32
    assert gradients.shape == want[0].shape
    assert losses.shape == want[1].shape
    torch.testing.assert_close(losses.cpu(), want[1], rtol=1e-5, atol=1e-6)
    for part in vector.slices:
        expected = want[0][:, part]
        scale = expected.abs().amax(1)
        assert scale.min() > 0
        error = (gradients.cpu()[:, part] - expected).abs().amax(1) / scale
        assert error.max() < TOLERANCE


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", [cnn, mlp, wide])
def test_gradients_equal_those_one_by_one(make: Make, padded: bool) -> None:
    one, many = Gradient(make(), IMAGE, BATCH), together(make(), padded=padded)
    assert one.fast
    assert many.vector == one.vector
    for workers in (1, 2, 3, 18):
        parameters = versions(make, workers)
        images, labels, indices = draw(workers, seed=workers)
        want = serial(one, parameters, images, labels)
        assert_same(one.vector, many.gradients(parameters, indices), want)
        apart = [row.clone() for row in parameters]
        assert_same(one.vector, many.gradients(apart, indices), want)
        want = serial(one, parameters[:1].expand(workers, -1), images, labels)
        assert_same(one.vector, many.shared(parameters[0], indices), want)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", [strided, Centred])
def test_gradients_of_other_models_equal_those_one_by_one(
    make: Make, padded: bool, shared: bool
) -> None:
    workers, size = 5, 7
    stacked = versions(make, workers)
    if shared:
        stacked = stacked[:1].expand(workers, -1)
    images, labels, indices = draw(workers, size)
    one, module = Gradient(make(), IMAGE, size), make()
    before = copy.deepcopy(module.state_dict())
    many = together(module, size, padded=padded)
    got = many.shared(stacked[0], indices) if shared else many.gradients(stacked, indices)
    assert_same(one.vector, got, serial(one, stacked, images, labels))
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", [cnn, mlp])
def test_a_workers_gradient_does_not_depend_on_the_others(make: Make, padded: bool) -> None:
    many = together(make(), padded=padded)
    parameters, (_, _, indices) = versions(make, 6), draw(6)
    want = [t.clone() for t in many.gradients(parameters, indices)]
    broken = parameters.clone()
    broken[3:] = torch.nan
    gradients, losses = many.gradients(broken, indices)
    assert losses[3:].isnan().all()
    torch.testing.assert_close(gradients[:3], want[0][:3])
    # Fewer workers than before in the same block: the rest of its old content has no effect.
    gradients, losses = many.gradients(parameters[:5], indices[:5])
    torch.testing.assert_close(gradients, want[0][:5])
    torch.testing.assert_close(losses, want[1][:5])
    order = torch.tensor([5, 0, 4, 2, 1, 3])
    gradients, _ = many.gradients(parameters[order], indices[order])
    torch.testing.assert_close(gradients, want[0][order])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("workers", [1, 3, 20])
def test_memory_may_be_given_and_parameters_may_change_in_place(workers: int, padded: bool) -> None:
    one, many = Gradient(mlp(), IMAGE, BATCH), together(mlp(), padded=padded)
    total = one.vector.total
    store = torch.zeros(workers + 2, total + 5)
    parameters, wider = store[1:-1, 2 : 2 + total], torch.full((workers + 2, total + 3), 7.0)
    out = wider[1:-1, 1 : 1 + total]
    images, labels, indices = draw(workers)
    for step in range(3):
        parameters.copy_(versions(mlp, workers + step)[step:])
        gradients, losses = many.gradients(parameters, indices, out)
        assert gradients is out
        assert_same(one.vector, (gradients, losses), serial(one, parameters, images, labels))
    own, _ = many.gradients(parameters, indices)
    assert torch.equal(own, out)
    wider[1:-1, 1 : 1 + total] = 7
    assert (wider == 7).all()


@pytest.mark.parametrize("shared", [False, True])
def test_more_workers_than_the_largest_padded_block_are_computed(shared: bool) -> None:
    workers = SIZES[-1] + 3
    parameters = torch.randn(workers, 7850, generator=torch.Generator().manual_seed(1)) / 28
    images, labels, indices = draw(workers, 2)
    one, many = Gradient(linear(), IMAGE, 2), together(linear(), 2, padded=True)
    if shared:
        parameters = parameters[:1].expand(workers, -1)
        got = many.shared(parameters[0], indices)
    else:
        got = many.gradients(list(parameters), indices)
    assert_same(one.vector, got, serial(one, parameters, images, labels))


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


@pytest.mark.parametrize(("make", "most"), [(cnn, 130), (mlp, 40)])
@pytest.mark.parametrize("shared", [False, True])
def test_operations_are_few_and_all_on_the_device(make: Make, most: int, shared: bool) -> None:
    # The meta device computes nothing, so a read back from it would fail.
    many, (_, _, indices) = together(make(), device="meta"), draw(18)
    parameters = torch.empty(18, many.vector.total, device="meta")
    many.gradients(parameters, indices)
    many.shared(parameters[0], indices)
    here, apart = indices.to("meta"), list(parameters)
    with _Operations() as seen:
        if shared:
            gradients, losses = many.shared(parameters[0], here)
        else:
            gradients, losses = many.gradients(apart, here)
    assert seen.devices == {"meta"}
    assert seen.count < most
    assert gradients.shape == parameters.shape
    assert losses.shape == (18,)


def test_inputs_that_do_not_match_are_refused() -> None:
    many = together(mlp())
    parameters, (_, _, indices) = versions(mlp, 2), draw(2)
    with pytest.raises(ValueError, match="where 2 workers need 2 of 109386"):
        many.gradients(parameters[:1], indices)
    with pytest.raises(ValueError, match="where 2 workers need 2 of 109386"):
        many.gradients([row[1:] for row in parameters], indices)
    with pytest.raises(ValueError, match="0 parameter vectors"):
        many.gradients([], indices)
    with pytest.raises(ValueError, match="no batches of the 10 announced"):
        many.gradients(parameters, indices[:, 1:])
    with pytest.raises(ValueError, match="do not go into"):
        many.gradients(parameters, indices, torch.empty(3, 109386))
    with pytest.raises(ValueError, match="no workers"):
        many.gradients(parameters[:0], indices[:0])


def test_moves_without_a_function_are_refused() -> None:
    many, parameters, (_, _, indices) = together(mlp()), versions(mlp, 2), draw(2)
    with pytest.raises(ValueError, match="moves are given"):
        many.gradients(parameters, indices, moves=torch.zeros(2, BATCH, 1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("make", [*FAST, strided, Centred])
def test_gradients_on_cuda_equal_those_one_by_one(make: Make) -> None:
    workers = 5
    parameters = versions(make, workers)
    images, labels, indices = draw(workers)
    one, many = Gradient(make(), IMAGE, BATCH), together(make(), device="cuda")
    want = serial(one, parameters, images, labels)
    for _ in range(3):  # recorded, then replayed
        assert_same(one.vector, many.gradients(parameters.cuda(), indices), want)
    want = serial(one, parameters[:1].expand(workers, -1), images, labels)
    for _ in range(3):
        assert_same(one.vector, many.shared(parameters[0].cuda(), indices), want)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_gradients_with_buffers_in_the_vector_equal_those_one_by_one(
    padded: bool, shared: bool
) -> None:
    """Each worker's BatchNorm statistics move from those of its version, by its own batch."""
    workers, size = 3, 4
    one = Gradient(normalised(), IMAGE, size, buffers=STATISTICS)
    many = WorkersGradients(normalised(), size, IMAGES, LABELS, buffers=STATISTICS, padded=padded)
    # Statistics of training under way.
    begun = torch.linspace(0.5, 1.5, 12) + torch.arange(workers)[:, None]
    parameters = torch.cat((versions(normalised, workers), begun), 1)
    if shared:
        parameters = parameters[:1].expand(workers, -1)
    images, labels, indices = draw(workers, size)

    def computed(rows: Tensor) -> tuple[Tensor, Tensor]:
        return many.shared(rows[0], indices) if shared else many.gradients(rows, indices)

    want, losses, _ = serial(one, parameters, images, labels)
    assert want[:, one.vector.parameters :].abs().min() > 0
    for _ in range(2):  # nothing of the first call is left
        got = computed(parameters)
        torch.testing.assert_close(got[1], losses, rtol=1e-4, atol=1e-5)
        for part in one.vector.slices:
            error = (got[0][:, part] - want[:, part]).abs().amax(1)
            assert (error <= 1e-4 * want[:, part].abs().amax(1) + 1e-6).all()


def test_images_are_changed_as_their_moves_say() -> None:
    def brightened(images: Tensor, moves: Tensor) -> Tensor:
        return images + moves.view(-1, 1, 1, 1)

    images, labels, indices = draw(3)
    moves = torch.rand(3, BATCH, 1, generator=torch.Generator().manual_seed(1))
    moved = images + moves.view(3, BATCH, 1, 1, 1)
    many = WorkersGradients(mlp(), BATCH, IMAGES, LABELS, change=brightened)
    one, parameters = Gradient(mlp(), IMAGE, BATCH), versions(mlp, 3)
    want = serial(one, parameters, moved, labels)
    assert_same(one.vector, many.gradients(parameters, indices, moves=moves), want)

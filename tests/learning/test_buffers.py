"""Buffers and random layers: what a gradient depends on, and what it leaves behind."""

import numpy as np
import pytest
import torch
from torch import nn

from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import load
from testbed.learning.inputs import GREY_28
from testbed.learning.learner import Learner
from testbed.learning.models import MODELS, initialise
from testbed.random_streams import stream
from tests.learning.test_learner import Batch, batch, filled


def learner(buffers: str) -> Learner:
    assert buffers in ("none", "shared")
    made = Learner("cnn-small", 10, buffers=buffers)  # type: ignore[arg-type]
    generator = np.random.default_rng(3)
    made.parameters[:] = initialise("cnn-small", "torch", generator, buffers=buffers)  # type: ignore[arg-type]
    return made


def test_the_gradient_of_shared_buffers_is_what_a_step_of_torch_takes_away() -> None:
    one, images = learner("shared"), batch(10)
    start = one.parameters.copy()
    gradient, _ = one.gradient(*images, 7)
    np.testing.assert_array_equal(one.parameters, start)
    module = filled(MODELS["cnn-small"](), start[: one.statistics.start])
    torch.manual_seed(7)
    loss = nn.functional.cross_entropy(module(torch.from_numpy(images[0])), _labels(images))
    loss.backward()  # type: ignore[no-untyped-call]
    whole = nn.utils.parameters_to_vector(
        [p.grad for p in module.parameters() if p.grad is not None]
    )
    np.testing.assert_array_equal(gradient[: one.statistics.start], whole.numpy())
    after = torch.cat([b for b in module.buffers() if b.is_floating_point()]).numpy()
    np.testing.assert_array_equal(gradient[one.statistics], start[one.statistics] - after)
    assert np.abs(gradient[one.statistics]).min() > 0


def _labels(images: Batch) -> torch.Tensor:
    return torch.from_numpy(images[1])


@pytest.mark.parametrize("buffers", ["none", "shared"])
def test_a_gradient_depends_on_nothing_that_came_before(buffers: str) -> None:
    one, other = learner(buffers), learner(buffers)
    images = batch(10)
    for seed in (1, 2):
        one.gradient(*batch(10, seed), seed)
    one.evaluate(*batch(60, 5))
    torch.rand(3)
    gradient, loss = one.gradient(*images, 7)
    again, same = other.gradient(*images, 7)
    assert loss == same
    np.testing.assert_array_equal(gradient, again)
    different, _ = other.gradient(*images, 8)  # another seed of the dropout
    assert not np.array_equal(gradient, different)


def test_an_evaluation_reads_shared_statistics_and_drops_nothing_out() -> None:
    one, (images, labels) = learner("shared"), batch(100, 2)
    module = filled(MODELS["cnn-small"](), one.parameters[: one.statistics.start])
    one.parameters[one.statistics] = np.linspace(0.5, 1.5, 48)
    at = one.statistics.start
    for buffer in (b for b in module.buffers() if b.is_floating_point()):
        buffer.copy_(torch.from_numpy(one.parameters[at : at + buffer.numel()]))
        at += buffer.numel()
    module.eval()
    with torch.no_grad():
        logits = module(torch.from_numpy(images))
    expected = float(nn.functional.cross_entropy(logits, torch.from_numpy(labels)))
    assert one.evaluate(images, labels)[1] == pytest.approx(expected, rel=1e-5)
    # Statistics are of no batch: images one by one give the same.
    assert one.evaluate(images, labels, batch=1)[1] == pytest.approx(expected, rel=1e-5)


def test_without_buffers_an_evaluation_normalises_by_the_batch() -> None:
    one, (images, labels) = learner("none"), batch(50, 2)
    module = filled(MODELS["cnn-small"](), one.parameters)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    with torch.no_grad():
        logits = module(torch.from_numpy(images))
    expected = float(nn.functional.cross_entropy(logits, torch.from_numpy(labels)))
    assert one.evaluate(images, labels)[1] == pytest.approx(expected, rel=1e-5)


class _Counting(nn.Module):
    """Adds to its logits how often it was called."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(10, dtype=torch.int64))
        self.dense = nn.Linear(784, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += torch.arange(10)
        logits: torch.Tensor = self.dense(x.flatten(1)) + self.calls
        return logits


@pytest.mark.parametrize("buffers", ["none", "shared"])
def test_other_buffers_are_made_anew_for_each_gradient(buffers: str) -> None:
    one = Learner(_Counting(), 10, buffers=buffers)  # type: ignore[arg-type]
    images = batch(10)
    first, loss = one.gradient(*images)
    kept = first.copy()
    again, same = one.gradient(*images)
    assert loss == same > 0
    np.testing.assert_array_equal(kept, again)


def test_statistics_over_all_batches_cannot_be_shared() -> None:
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784, momentum=None), nn.Linear(784, 10))
    with pytest.raises(ValueError, match="1 averages its statistics over all batches"):
        Learner(module, 10, buffers="shared")


def test_seeds_of_layers_are_drawn_with_the_images_and_move_no_other_stream() -> None:
    dataset, shard = load("digits"), np.arange(100)
    plain = Batches(dataset, shard, 10, stream(1, "batches"))
    seeded = Batches(dataset, shard, 10, stream(1, "batches"), layers=stream(1, "layers"))
    assert plain.draw().layers is None
    first, start = seeded.draw(), seeded.position
    second = seeded.draw()
    assert first.layers != second.layers
    seeded.reposition(start)
    again = seeded.draw()
    assert (again.layers, again.images.tolist()) == (second.layers, second.images.tolist())
    np.testing.assert_array_equal(plain.draw().images, again.images)


def test_twins_have_memory_of_their_own() -> None:
    one = Learner("cnn-small", 10, inputs=GREY_28, buffers="shared")
    two = one.twin()
    two.parameters[:] = 1
    assert one.parameters.max() == 0
    assert two.statistics == one.statistics

"""Workers' gradients computed together are those of a learner, for named models, buffers and images."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from testbed.learning.data.augmentation import Augmentation
from testbed.learning.data.datasets import load
from testbed.learning.inputs import GREY_28
from testbed.learning.learner import Learner, workers_gradients
from testbed.learning.models import FAST, initialise
from testbed.updates import FloatVector

WORKERS, BATCH = 3, 10

Indices = npt.NDArray[np.int64]
Images = npt.NDArray[np.float32]


def drawn(size: int = BATCH) -> tuple[Images, Indices, Indices]:
    """Draw images (m, b, 1, 28, 28); return them, their labels (m, b) and their indices (m, b)."""
    data = load("digits")
    indices = np.random.default_rng(0).integers(0, len(data.train_labels), (WORKERS, size))
    return data.train_images[indices], data.train_labels[indices], indices


def one_by_one(
    learner: Learner, parameters: list[FloatVector], images: Images, labels: Indices
) -> tuple[Images, list[float]]:
    """Return the workers' gradients and losses."""
    gradients, losses = [], []
    for own, x, y in zip(parameters, images, labels, strict=True):
        learner.parameters[:] = own
        gradient, loss = learner.gradient(x, y)
        gradients.append(gradient.copy())
        losses.append(loss)
    return np.stack(gradients), losses


@pytest.mark.parametrize("model", sorted(FAST))
def test_gradients_of_named_models_are_the_learner_s(model: str) -> None:
    learner, together = Learner(model, BATCH), workers_gradients(model, BATCH, load("digits"))
    images, labels, indices = drawn()
    parameters = [initialise(model, "paper", np.random.default_rng(i)) for i in range(WORKERS)]
    rows = torch.from_numpy(np.stack(parameters))
    got, losses = together.gradients(rows, torch.from_numpy(indices))
    want, expected = one_by_one(learner, parameters, images, labels)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for part in learner.layout.slices:
        scale = np.abs(want[:, part]).max()
        np.testing.assert_allclose(got[:, part], want[:, part], rtol=0, atol=5e-6 * scale)


def test_gradients_of_shared_buffers_are_the_learner_s() -> None:
    """Each worker's BatchNorm statistics move from those of its version, by its own batch."""
    learner = Learner("resnet20", 4, inputs=GREY_28, buffers="shared")
    together = workers_gradients("resnet20", 4, load("digits"), buffers="shared")
    assert together.vector.parameters == learner.layout.parameters
    assert together.vector.slices == list(learner.layout.slices)
    images, labels, indices = drawn(4)
    parameters = [
        initialise("resnet20", "torch", np.random.default_rng(i), GREY_28, "shared")
        for i in range(WORKERS)
    ]
    for i, row in enumerate(parameters):  # statistics of training under way
        row[learner.statistics] += np.float32(0.1 * i)
    rows = torch.from_numpy(np.stack(parameters))
    got, losses = together.gradients(rows, torch.from_numpy(indices))
    want, expected = one_by_one(learner, parameters, images, labels)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for part in learner.layout.slices:
        scale = np.abs(want[:, part]).max()
        np.testing.assert_allclose(got[:, part], want[:, part], rtol=0, atol=1e-3 * scale + 1e-6)


def test_images_are_augmented_as_the_serial_batches_are() -> None:
    augmentation = Augmentation(crop=3, flip=True)
    images, labels, indices = drawn()
    moves = np.stack([augmentation.draw(BATCH, np.random.default_rng(i)) for i in range(WORKERS)])
    for batch, own in zip(images, moves, strict=True):
        augmentation.apply(batch, own)
    together = workers_gradients("mlp", BATCH, load("digits"), augmentation=augmentation)
    parameters = [initialise("mlp", "torch", np.random.default_rng(i)) for i in range(WORKERS)]
    got, _ = together.gradients(
        torch.from_numpy(np.stack(parameters)),
        torch.from_numpy(indices),
        moves=torch.from_numpy(moves),
    )
    want, _ = one_by_one(Learner("mlp", BATCH), parameters, images, labels)
    np.testing.assert_allclose(got, want, rtol=0, atol=5e-6 * np.abs(want).max())

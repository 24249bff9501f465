"""Models and mini-batches for the tests: what the fast paths support, and what they do not."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

IMAGE, CLASSES = (1, 28, 28), 10


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, CLASSES),
    )


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


def wide() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding="same"),
        nn.MaxPool2d((2, 2)),
        nn.ReLU(),
        nn.Conv2d(6, 12, 3, padding=1),
        nn.Conv2d(12, 5, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3),
        nn.Flatten(),
        nn.Linear(80, CLASSES),
    )


def without_pool() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 784, CLASSES)
    )


def cut_off() -> nn.Module:
    """Make a model whose pooling windows leave a border out."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(3 * 81, CLASSES)
    )


def rectified() -> nn.Module:
    """Make a model whose first layers, done in place, would change the images."""
    return nn.Sequential(
        nn.MaxPool2d(1), nn.ReLU(), nn.Flatten(), nn.ReLU(), nn.Linear(784, CLASSES)
    )


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES))


FAST: list[Callable[[], nn.Module]] = [cnn, mlp, wide, without_pool, cut_off, rectified, linear]


def without_bias() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES, bias=False))


def strided() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(676, CLASSES)
    )


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(784, 784)
        self.out = nn.Linear(784, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = images.flatten(1)
        result: Tensor = self.out(x + torch.tanh(self.inside(x)))
        return result


class Centred(nn.Module):
    """A model that is no ``nn.Sequential`` and has a constant buffer besides its parameters."""

    centre: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.linspace(-1, 1, 784))
        self.inside = nn.Linear(784, 20)
        self.out = nn.Linear(20, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.tanh(self.inside(images.flatten(1) - self.centre))
        result: Tensor = self.out(hidden)
        return result


SLOW: list[Callable[[], nn.Module]] = [without_bias, strided, Residual, Centred]


def normalised() -> nn.Module:
    """Make a model with the running statistics of a BatchNorm, ``STATISTICS``."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 169, CLASSES),
    )


STATISTICS = ("1.running_mean", "1.running_var")


def drawn(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Make a model whose values torch draws from a seed."""
    torch.manual_seed(seed)
    return make()


def flat(module: nn.Module) -> Tensor:
    """Return a module's parameters in one vector, laid out by torch alone."""
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def batches(count: int, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw images, (count, b, 1, 28, 28), half of whose pixels are equal, and labels, (count, b)."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, size, *IMAGE, generator=generator).clamp_min(0)
    return images, torch.randint(CLASSES, (count, size), generator=generator)

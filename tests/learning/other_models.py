"""Models for tests: names of known ones, and two that no experiment file names."""

from torch import nn

from testbed.learning import models

FAST = sorted(models.FAST)


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
        nn.Linear(80, 10),
    )


def strided() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(676, 10))

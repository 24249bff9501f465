"""A dataset and a model of one's own: coloured stripes, 32 × 32 × 3, and a network with BatchNorm."""

import csv
from pathlib import Path

import numpy as np
from torch import nn

from testbed.learning.inputs import Inputs

SIDE = 32


def stripes(path: Path, train: int = 400, test: int = 100, noise: float = 40.0):
    """Return pictures of stripes, whose width and two colours are those of their class.

    Args:
        path: a CSV file with a row for each class: the width in pixels, and two colours, each as red,
            green and blue from 0 to 255. In the experiment file a key whose value is a path.
        train, test: the number of pictures.
        noise: the standard deviation that is added to each value.

    Returns:
        Training pictures, uint8, (N, 3, 32, 32), their labels, test pictures and their labels.
    """
    with path.open(newline="") as file:
        rows = [[float(value) for value in row] for row in csv.reader(file)]
    # The same pictures each time: a role checks that it has those that the run was planned with.
    generator = np.random.default_rng(len(rows))
    found = []
    for count in (train, test):
        labels = generator.integers(len(rows), size=count)
        pictures = np.empty((count, 3, SIDE, SIDE), np.uint8)
        for picture, label in zip(pictures, labels, strict=True):
            width, *colours = rows[label]
            at = (np.arange(SIDE) + generator.integers(SIDE)) // width % 2
            columns = np.where(at[None] == 0, *np.reshape(colours, (2, 3, 1)))
            noisy = columns[:, None] + generator.normal(0, noise, (3, SIDE, SIDE))
            picture[:] = np.clip(noisy, 0, 255)
        found += [pictures, labels]
    return tuple(found)


def normed(inputs: Inputs, width: int = 8) -> nn.Module:
    """Return two convolutions with BatchNorm, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(inputs.image[0], width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, inputs.classes),
    )

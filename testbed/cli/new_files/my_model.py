"""A model of one's own: two convolutions and a linear layer."""

from torch import nn

from testbed.learning.inputs import Inputs


def network(inputs: Inputs, width: int = 8) -> nn.Module:
    """Return the network for a dataset's images; ``width`` is a key of the experiment file."""
    return nn.Sequential(
        nn.Conv2d(inputs.image[0], width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(2 * width * 4 * 4, inputs.classes),
    )

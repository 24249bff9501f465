"""The Flower app's network, for the testbed's own algorithms."""

from torch import nn

from testbed.learning.inputs import Inputs


def one_hidden_layer(inputs: Inputs, hidden: int = 32) -> nn.Module:
    """Return the perceptron 64-`hidden`-10 on the image as 8 × 8 pixels."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(8),
        nn.Flatten(),
        nn.Linear(64, hidden),
        nn.ReLU(),
        nn.Linear(hidden, inputs.classes),
    )

"""The models, by the names they have in an experiment file, and their initial parameters.

A new model is a function here that returns a module for images of 28 × 28 with one channel, and
one line in ``MODELS``. A ``torch.nn.Sequential`` of convolutions, ReLUs, max-pools, a flatten and
linear layers runs on the fast path (``testbed.learning.fast.chain``); any other module without buffers
runs on autograd. The flat parameter vector is the module's parameters in the order of
``named_parameters``, each in C order.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from testbed.updates import FloatVector, Layout

Initialisation: TypeAlias = Literal["paper", "torch"]

IMAGE = (1, 28, 28)
"""Channels, height and width of every image."""
CLASSES = 10


def cnn() -> nn.Module:
    """AdaComp's convolutional network (paper 001, §V-B): 211,690 parameters in eight tensors."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 32, 3, padding=1),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 32, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            dense1=nn.Linear(1568, 128),
            relu3=nn.ReLU(),
            dense2=nn.Linear(128, CLASSES),
        )
    )


def mlp() -> nn.Module:
    """The perceptron 784-128-64-10 of Shokri and Shmatikov: 109,386 parameters."""
    return _perceptron(784, 128, 64, CLASSES)


def mlp_large() -> nn.Module:
    """A perceptron 784-512-512-10: 669,706 parameters."""
    return _perceptron(784, 512, 512, CLASSES)


def _perceptron(*widths: int) -> nn.Module:
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for i in range(1, len(widths)):
        layers[f"dense{i}"] = nn.Linear(widths[i - 1], widths[i])
        if i < len(widths) - 1:
            layers[f"relu{i}"] = nn.ReLU()
    return nn.Sequential(layers)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "cnn": cnn,
    "mlp": mlp,
    "mlp-large": mlp_large,
}


def structure(model: str) -> nn.Module:
    """Make a model without memory for its parameters and without drawing a random number.

    Raises:
        KeyError: no model has this name (the experiment file is checked against ``MODELS``).
        ValueError: the model keeps state that is not a parameter, such as BatchNorm's statistics,
            and which therefore would not travel with the parameter vector.
    """
    with torch.device("meta"):
        module = MODELS[model]()
    if stateful := [name for name, _ in module.named_buffers()]:
        raise ValueError(f"model {model!r} keeps state outside its parameters: {stateful}")
    return module


def layout(model: str) -> Layout:
    """Return the position of each of a model's tensors in the flat parameter vector."""
    return layout_of(structure(model))


def layout_of(module: nn.Module) -> Layout:
    """Return the position of each of a module's parameters in a flat vector."""
    parameters = dict(module.named_parameters())
    return Layout(tuple(parameters), tuple(p.numel() for p in parameters.values()))


def initialise(
    model: str, initialisation: Initialisation, generator: np.random.Generator
) -> FloatVector:
    """Draw a model's initial parameters.

    Args:
        model: a name in ``MODELS``.
        initialisation: ``"paper"``: weights normal, σ = 0.1, redrawn outside 2σ; biases 0.1 (the
            AdaComp authors'). ``"torch"``: torch's default for convolutions and linear layers,
            weights and biases uniform in ±1/√fan_in (kaiming_uniform with a = √5).
        generator: the source of the random numbers.

    Returns:
        float32, shape (|Θ|,).
    """
    parts: list[npt.NDArray[np.float32]] = []
    fan_in = 1
    for parameter in structure(model).parameters():
        size, is_weight = parameter.numel(), parameter.dim() > 1
        if is_weight:  # a bias follows the weight whose fan-in it shares
            fan_in = size // parameter.shape[0]
        if initialisation == "torch":
            bound = 1 / np.sqrt(fan_in)
            values = generator.uniform(-bound, bound, size)
        elif is_weight:
            values = _truncated_normal(size, 0.1, generator)
        else:
            values = np.full(size, 0.1)
        parts.append(values.astype(np.float32))
    return np.concatenate(parts)


def _truncated_normal(
    size: int, sigma: float, generator: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Draw normal values of mean 0; values beyond 2σ are drawn again."""
    values = generator.standard_normal(size)
    while len(outside := np.flatnonzero(np.abs(values) > 2)):
        values[outside] = generator.standard_normal(len(outside))
    return values * sigma

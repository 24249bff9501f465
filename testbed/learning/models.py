"""The models, by the names they have in an experiment file, and their initial parameters.

A model is any ``torch.nn.Module`` that takes images, float32 (b, channels, height, width), or a
dataset's other examples, and returns logits (b, classes), or what else the run's loss takes. A
``torch.nn.Sequential`` of convolutions, ReLUs, max-pools, a flatten and linear layers runs on the fast
path (``fastgrad.chain``); any other module runs on autograd. A new model is a function in
``testbed.learning.networks`` and one line in ``MODELS``.

The flat vector is the module's parameters in the order of ``named_parameters``, each in C order; with
shared buffers these follow, as the buffers' rule says (``testbed.learning.buffers``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from testbed.errors import SpecError
from testbed.learning import buffers as rules
from testbed.learning.buffers import Buffers
from testbed.learning.inputs import GREY_28, Inputs
from testbed.learning.networks import (
    ako_imagenet,
    ako_mnist,
    cnn,
    cnn_5x5,
    cnn_small,
    mlp,
    mlp_large,
    resnet18,
    resnet20,
    wide_resnet_16_4,
)
from testbed.learning.transformer import transformer
from testbed.plugins.names import find
from testbed.updates import FloatVector, Layout

Initialisation: TypeAlias = Literal["paper", "torch", "module"]

MODELS: dict[str, Callable[..., nn.Module]] = {
    "cnn": cnn,
    "mlp": mlp,
    "mlp-large": mlp_large,
    "cnn-small": cnn_small,
    "cnn-5x5": cnn_5x5,
    "ako-mnist": ako_mnist,
    "ako-imagenet": ako_imagenet,
    "resnet20": resnet20,
    "resnet18": resnet18,
    "wide-resnet-16-4": wide_resnet_16_4,
}

OF_TOKENS: dict[str, Callable[..., nn.Module]] = {"transformer": transformer}
"""The models of tokens, which have options."""
FAST = frozenset({"cnn", "mlp", "mlp-large"})
"""The models of these that the fast path supports, whatever the images."""
SMALLEST = 4
"""The least height and width of images that all of these models take."""


ENTRY_POINTS = "testbed.models"
"""The group of entry points by which installed packages give their models short names."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is chosen by name, with its options.

    Attributes:
        name: as in the experiment file.
        make: the function that makes it; a plug-in's may be another one with the same name later.
        options: names and values of the function's arguments besides the ``Inputs``.
    """

    name: str
    make: Callable[..., nn.Module]
    options: tuple[tuple[str, Any], ...] = ()

    def __hash__(self) -> int:
        # Not of the values, which may be lists and mappings; comparing tells them apart.
        return hash((self.name, self.make, tuple(key for key, _ in self.options)))

    def __call__(self, inputs: Inputs) -> nn.Module:
        """Make the module for a dataset's images."""
        return self.make(inputs, **dict(self.options))

    def __str__(self) -> str:
        return self.name


def model_named(name: str, options: Mapping[str, object] | None = None) -> Model:
    """Return the model of a name.

    Args:
        options: arguments of a plug-in's function besides the ``Inputs``.

    Raises:
        SpecError: there is none, its module cannot be imported, or it is no function.
    """
    made = find(name, {**MODELS, **OF_TOKENS}, ENTRY_POINTS)
    if not callable(made):
        raise SpecError(
            f"'{name}' is no model: it must be a function of testbed.learning.inputs.Inputs that "
            "returns a torch.nn.Module"
        )
    return Model(name, made, tuple((options or {}).items()))


def _chosen(model: str | Model) -> Model:
    return model_named(model) if isinstance(model, str) else model


def structure(model: str | Model, inputs: Inputs = GREY_28) -> nn.Module:
    """Make a model without memory for its parameters and without drawing a random number.

    Raises:
        SpecError: as ``model_named``; or what a plug-in's function returns is no module.
    """
    chosen = _chosen(model)
    with torch.device("meta"), _Undrawn():
        module = chosen(inputs)
    if not isinstance(module, nn.Module):
        raise SpecError(f"model {chosen} returns {type(module).__name__} and no torch.nn.Module")
    return module


class _Undrawn(TorchFunctionMode):
    """Draws no normal values for tensors without memory.

    Nothing is drawn for these in any case, but torch imports its compiler for that: 1.4 s of a process.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in (torch.Tensor.normal_, nn.init.normal_):
            tensor = args[0] if args else given["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **given)


def drawn(model: str | Model, inputs: Inputs, seed: int) -> nn.Module:
    """Make a model whose constructor draws its values from torch's generator, seeded for it alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return _chosen(model)(inputs)


def layout(model: str | Model, inputs: Inputs = GREY_28, buffers: Buffers = "none") -> Layout:
    """Return the position of each of a model's tensors in the flat vector."""
    return layout_of(structure(model, inputs), buffers)


def layout_of(module: nn.Module, buffers: Buffers = "none") -> Layout:
    """Return the position of each of a module's parameters, and shared buffers, in a flat vector."""
    shared = rules.shared_by(module, buffers)
    tensors = {**dict(module.named_parameters()), **shared}
    sizes = tuple(tensor.numel() for tensor in tensors.values())
    return Layout(tuple(tensors), sizes, sum(one.numel() for one in shared.values()))


def initialise(
    model: str | Model,
    initialisation: Initialisation,
    generator: np.random.Generator,
    inputs: Inputs = GREY_28,
    buffers: Buffers = "none",
) -> FloatVector:
    """Draw a model's initial parameters, and make its shared buffers.

    Args:
        model: a name in ``MODELS``, or a chosen model.
        initialisation: the law of the parameters of convolutions and linear layers. ``"paper"``:
            weights normal, σ = 0.1, redrawn outside 2σ; biases 0.1 (the AdaComp authors').
            ``"torch"``: torch's default, weights and biases uniform in ±1/√fan_in (kaiming_uniform
            with a = √5). ``"module"``: as the module's constructor draws them. All other parameters,
            such as BatchNorm's, are always the constructor's.
        generator: the source of the random numbers.

    Returns:
        float32, shape (|Θ|,).
    """
    shape = structure(model, inputs)
    by_law = _by_law(shape) if initialisation != "module" else set()
    made: dict[str, npt.NDArray[np.float32]] = {}
    if len(by_law) < len(list(shape.named_parameters())) or rules.shared_by(shape, buffers):
        module = drawn(model, inputs, int(generator.integers(2**63)))
        tensors = {**dict(module.named_parameters()), **rules.shared_by(module, buffers)}
        made = {name: value.detach().numpy().reshape(-1) for name, value in tensors.items()}
    parts: list[npt.NDArray[np.float32]] = []
    fan_in = 1
    for name, parameter in shape.named_parameters():
        if name not in by_law:
            parts.append(made[name])
            continue
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
    parts += [made[name] for name in rules.shared_by(shape, buffers)]
    return np.concatenate(parts)


def _by_law(module: nn.Module) -> set[str]:
    """Return the names of the parameters of convolutions and linear layers."""
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)
        for name, _ in part.named_parameters(recurse=False)
    }


def _truncated_normal(
    size: int, sigma: float, generator: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Draw normal values of mean 0; values beyond 2σ are drawn again."""
    values = generator.standard_normal(size)
    while len(outside := np.flatnonzero(np.abs(values) > 2)):
        values[outside] = generator.standard_normal(len(outside))
    return values * sigma

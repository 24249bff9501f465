"""What a model is made of: its size, how its gradient is computed, and what it needs for that."""

import functools
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from testbed.errors import SpecError
from testbed.learning.batched.chain import template
from testbed.learning.buffers import Buffers
from testbed.learning.inputs import Inputs
from testbed.learning.models import structure


@dataclass(frozen=True, slots=True)
class Description:
    """A model for the images of a dataset.

    Attributes:
        parameters: their number, without buffers.
        path: fast: the gradient is computed without autograd (``testbed.learning.fast``).
        buffers: the number of values in its buffers of floating-point numbers.
    """

    parameters: int
    path: Literal["fast", "autograd"]
    buffers: int

    def vector(self, buffers: Buffers) -> int:
        """Return the length of the flat vector, |Θ|."""
        return self.parameters + (self.buffers if buffers == "shared" else 0)

    @property
    def may_draw(self) -> bool:
        """True if a layer may draw random numbers, as dropout does: no layer of the fast path does."""
        return self.path == "autograd"


@functools.cache
def describe(model: str, inputs: Inputs) -> Description:
    """Describe a named model, without memory for its parameters.

    Raises:
        SpecError: it does not take these images.
    """
    try:
        module = structure(model, inputs)
        _try(module, inputs)
    except (RuntimeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(
            f"model {model} does not take images of {inputs}: {reason}; use another model or dataset"
        ) from error
    return Description(
        sum(parameter.numel() for parameter in module.parameters()),
        "autograd" if template(module, inputs) is None else "fast",
        sum(one.numel() for one in module.buffers() if one.is_floating_point()),
    )


def _try(module: nn.Module, inputs: Inputs) -> None:
    """Find the shape of the logits of two images; nothing is computed, and no thread begun.

    Raises:
        ValueError: it is not (2, classes).
    """
    with torch.device("meta"):
        logits = module(torch.zeros(2, *inputs.image))
    if tuple(logits.shape) != (2, inputs.classes):
        raise ValueError(f"for 2 images it returns {tuple(logits.shape)}")

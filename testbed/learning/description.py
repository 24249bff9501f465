"""Descriptions of models: the size, the way to its gradient, and its buffers."""

import functools
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from fastgrad.chain import template
from testbed.errors import SpecError
from testbed.learning.buffers import Buffers
from testbed.learning.inputs import Inputs
from testbed.learning.losses import CLASSIFICATION, NEXT_TOKEN
from testbed.learning.models import FAST, MODELS, SMALLEST, Model, structure
from testbed.plugins.names import place_of, said

BUILT_IN = frozenset(MODELS)


@dataclass(frozen=True, slots=True)
class Description:
    """A model for the images of a dataset.

    Attributes:
        parameters: their number, without buffers.
        path: fast: the gradient is computed without autograd (``fastgrad``).
        buffers: the number of values in its buffers of floating-point numbers.
        may_draw: True if a layer may draw random numbers, as dropout does: one of somebody else's may
            on autograd, whatever its type; no layer of the fast path does.
        classifies: True if its loss is that of classification.
    """

    parameters: int
    path: Literal["fast", "autograd"]
    buffers: int
    may_draw: bool
    classifies: bool

    def vector(self, buffers: Buffers) -> int:
        """Return the length of the flat vector, |Θ|."""
        return self.parameters + (self.buffers if buffers == "shared" else 0)

    @property
    def together(self) -> bool:
        """True if the gradients of several devices can be computed together.

        Random numbers must be each device's own.
        """
        return self.classifies and not self.may_draw


@functools.cache
def describe(model: str | Model, inputs: Inputs, loss: str | None = None) -> Description:
    """Describe a named model, without memory for its parameters.

    Args:
        loss: the name of the run's loss: no other than classification has a fast path; None: that of
            these examples.

    Raises:
        SpecError: it does not take these images.
    """
    name = str(model)
    try:
        if name in BUILT_IN and not inputs.are_images:
            raise ValueError("it takes images only")
        module = structure(model, inputs)
        # What is known of the models here need not be found out, which takes a second of each command.
        chosen = loss or (NEXT_TOKEN if inputs.tokens else CLASSIFICATION)
        is_fast = name in FAST if name in BUILT_IN else _found_out(module, inputs, chosen)
        is_fast = is_fast and chosen == CLASSIFICATION
        if name in BUILT_IN and min(inputs.image[1:]) < SMALLEST:
            raise ValueError(f"it needs {SMALLEST} × {SMALLEST} pixels")
    except SpecError:
        raise
    except Exception as error:  # a plug-in's function may raise anything
        own = place_of(error)
        if own is not None:
            raise SpecError(f"model {model} fails with {inputs}: {own}: {said(error)}") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        what = "images of" if inputs.are_images else "examples of"
        raise SpecError(
            f"model {model} does not take {what} {inputs}: {reason}; use another model or dataset"
        ) from error
    return Description(
        sum(parameter.numel() for parameter in module.parameters()),
        "fast" if is_fast else "autograd",
        sum(one.numel() for one in module.buffers() if one.is_floating_point()),
        not is_fast and (name not in BUILT_IN or _has_dropout(module)),
        chosen == CLASSIFICATION,
    )


def _has_dropout(module: nn.Module) -> bool:
    return any(isinstance(part, _DropoutNd) for part in module.modules())


def _found_out(module: nn.Module, inputs: Inputs, loss: str) -> bool:
    """Find the shape of the logits of two images, and return True if the fast path supports the module.

    Nothing is computed, and no thread begun.

    Raises:
        ValueError: the shape is none that the loss takes, as far as that is known.
    """
    with torch.device("meta"):
        kind = torch.int64 if inputs.tokens else torch.float32
        logits = module(torch.zeros(2, *inputs.image, dtype=kind))
    expected = {
        CLASSIFICATION: (2, inputs.classes),
        NEXT_TOKEN: (2, *inputs.image, inputs.classes),
    }
    if loss in expected and tuple(logits.shape) != expected[loss]:
        raise ValueError(f"for 2 images it returns {tuple(logits.shape)}")
    return template(module, inputs.image) is not None

"""The flat vector of a module: its parameters, and chosen buffers, one after the other.

Parameters come first, in the order of ``named_parameters``, then the buffers, each tensor in C order.
So a vector is sent, added and stored as one array, and no tensor is copied: modules and layers compute
on views of it.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor and its gradient: views of one shape on the two flat vectors."""

    value: Tensor
    gradient: Tensor


@dataclass(frozen=True, slots=True)
class Vector:
    """The positions of a module's tensors in a flat vector.

    Attributes:
        shapes: of the tensors, by name, in their order in the vector.
        buffers: the names of those that are buffers: the last ones.
    """

    shapes: Mapping[str, torch.Size]
    buffers: tuple[str, ...] = ()

    @staticmethod
    def of(module: nn.Module, buffers: Sequence[str] = ()) -> "Vector":
        """Return the positions of a module's parameters, and of the named buffers after them."""
        shapes = {name: parameter.shape for name, parameter in module.named_parameters()}
        return Vector(shapes | {n: module.get_buffer(n).shape for n in buffers}, tuple(buffers))

    @property
    def sizes(self) -> list[int]:
        """The number of entries of each tensor."""
        return [math.prod(shape) for shape in self.shapes.values()]

    @property
    def total(self) -> int:
        """The length of the vector, |Θ|."""
        return sum(self.sizes)

    @property
    def parameters(self) -> int:
        """The number of entries that are parameters: those before the buffers."""
        return self.total - sum(math.prod(self.shapes[name]) for name in self.buffers)

    @property
    def slices(self) -> list[slice]:
        """The part of the vector that each tensor occupies."""
        ends = itertools.accumulate(self.sizes, initial=0)
        return [slice(start, stop) for start, stop in itertools.pairwise(ends)]

    def views(self, rows: Tensor) -> dict[str, Tensor]:
        """Return each tensor of some vectors, (m, |Θ|): views of shape (m, …), by name."""
        parts = torch.split(rows, self.sizes, 1)
        return {
            name: part.view(len(rows), *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

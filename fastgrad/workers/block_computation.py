"""The parts of a block of workers, and the methods of each kind of block."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fastgrad.chain import template
from fastgrad.layers import Layer
from fastgrad.vector import Vector


@dataclass(frozen=True, slots=True)
class BlockModule:
    """A module that blocks are made of.

    Attributes:
        module: its structure; values are read only of its buffers.
        example: the shape of an image.
        batch_size: b, images per worker.
        vector: the positions of its tensors in a flat vector.
        chain: the layers of its chain, or None if it has none.
    """

    module: nn.Module
    example: tuple[int, ...]
    batch_size: int
    device: torch.device
    vector: Vector
    chain: tuple[Layer, ...] | None

    @staticmethod
    def of(
        module: nn.Module,
        example: tuple[int, ...],
        batch_size: int,
        device: torch.device,
        buffers: Sequence[str],
    ) -> "BlockModule":
        """Describe a module, with the names of the buffers that follow its parameters."""
        vector, chain = Vector.of(module, buffers), template(module, example)
        return BlockModule(module, example, batch_size, device, vector, chain)

    def rows(self, count: int) -> Tensor:
        """Allocate memory for parameter vectors, float32, (count, |Θ|)."""
        return torch.zeros(count, self.vector.total, device=self.device)


class BlockComputation(ABC):
    """The computation of a block of workers' losses and gradients.

    Attributes:
        images: float32, (workers, b, channels, height, width), contiguous: the caller writes the input
            here.
        labels: int64, (workers, b), contiguous: the caller writes the labels here.
        losses: float32, (workers,): the mean cross-entropy of each worker's batch, after ``run``.
    """

    images: Tensor
    labels: Tensor
    losses: Tensor

    @abstractmethod
    def bind(self, parameters: Tensor, gradients: Tensor, lasting: bool) -> None:
        """Set where parameters are read and gradients written, until the next call.

        Args:
            parameters: float32, (workers, |Θ|), rows contiguous; (1, |Θ|) if shared.
            gradients: float32, (workers, |Θ|), rows contiguous.
            lasting: True if the gradients are always part of the same memory in calls that say so;
                views of it may then be kept instead of made again.
        """

    @abstractmethod
    def run(self) -> None:
        """Compute ``losses`` and the gradients from ``images``, ``labels`` and the parameters."""

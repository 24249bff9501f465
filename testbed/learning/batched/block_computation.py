"""The parts of a block of workers, and the methods of each kind of block."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from testbed.learning.buffers import Buffers
from testbed.learning.fast.layers import Layer
from testbed.learning.inputs import Inputs
from testbed.updates import Layout


@dataclass(frozen=True, slots=True)
class Model:
    """A module that blocks are made of.

    Attributes:
        module: its structure; values are read only of its buffers.
        layout: the positions of its parameters in a flat vector.
        batch_size: b, images per worker.
        device: the device that computes.
        inputs: the images that it takes.
        chain: the layers of its chain, or None if it has none.
        buffers: the rule about its buffers: none, or shared.
    """

    module: nn.Module
    layout: Layout
    batch_size: int
    device: torch.device
    inputs: Inputs
    chain: tuple[Layer, ...] | None
    buffers: Buffers = "none"

    def rows(self, count: int) -> Tensor:
        """Allocate memory for parameter vectors, float32, (count, |Θ|)."""
        return torch.zeros(count, self.layout.total, device=self.device)


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

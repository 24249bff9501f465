"""Any module for a block of workers, on autograd, for modules that ``batched.chain`` does not support.

``torch.func.vmap`` over the gradient, as a function of the parameters, computes all workers at
once. On a processor that saves calls where layers are dense, more than half of a small model's time;
but its grouped convolutions take longer than the workers one by one (1.1 to 1.5 times as long for the
CNN), and so does a single worker. In these cases a serial learner computes the gradients.
"""

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from testbed.learning.learner import Learner
from testbed.learning.models import IMAGE
from testbed.updates import Layout


class OneByOne:
    """A block of workers whose gradients a serial learner computes in turn, on a processor.

    Attributes:
        images: float32, (workers, b, 1, 28, 28), contiguous: the caller writes the input here.
        labels: int64, (workers, b), contiguous: the caller writes the labels here.
        losses: float32, (workers,): the mean cross-entropy of each worker's batch, after ``run``.
    """

    def __init__(self, module: nn.Module, workers: int, batch_size: int) -> None:
        """Allocate the memory for a block; the module is copied."""
        self._learner = Learner(copy.deepcopy(module), batch_size)
        self.images = torch.zeros(workers, batch_size, *IMAGE)
        self.labels = torch.zeros(workers, batch_size, dtype=torch.int64)
        self.losses = torch.zeros(workers)

    def bind(self, parameters: Tensor, gradients: Tensor, lasting: bool) -> None:
        """Set where parameters are read and gradients written, until the next call.

        Args:
            parameters: float32, (workers, |Θ|), or (1, |Θ|) if shared.
            gradients: float32, (workers, |Θ|).
            lasting: ignored here; see ``WorkersChain``.
        """
        self._values = parameters.expand(len(gradients), -1).numpy()
        self._gradients = gradients.numpy()

    def run(self) -> None:
        """Compute ``losses`` and the gradients from ``images``, ``labels`` and the parameters."""
        batches = zip(self.images.numpy(), self.labels.numpy(), strict=True)
        for worker, (images, labels) in enumerate(batches):
            self._learner.parameters[:] = self._values[worker]
            self._gradients[worker], loss = self._learner.gradient(images, labels)
            self.losses[worker] = loss


class WorkersModule:
    """A module on a block of workers' batches, computed all at once.

    Attributes:
        images: float32, (workers, b, 1, 28, 28), contiguous: the caller writes the input here.
        labels: int64, (workers, b), contiguous: the caller writes the labels here.
        losses: float32, (workers,): the mean cross-entropy of each worker's batch, after ``run``.
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        layout: Layout,
        workers: int,
        batch_size: int,
        shared: bool,
        device: torch.device,
    ) -> None:
        """Allocate the memory for a block.

        Args:
            module: its structure and buffers are read.
            layout: the positions of its parameters in a flat vector.
            workers: the number of workers.
            batch_size: b, images per worker.
            shared: True if all workers have one version of the parameters.
            device: the device that computes.
        """
        self._module, self._layout = module, layout
        self._shared = shared
        self._shapes = [p.shape for p in module.parameters()]
        self._buffers = {name: buffer.to(device) for name, buffer in module.named_buffers()}
        self.images = torch.zeros(workers, batch_size, *IMAGE, device=device)
        self.labels = torch.zeros(workers, batch_size, dtype=torch.int64, device=device)
        self.losses = torch.zeros(workers, device=device)

    def bind(self, parameters: Tensor, gradients: Tensor, lasting: bool) -> None:
        """Set where parameters are read and gradients written, until the next call.

        Args:
            parameters: float32, (workers, |Θ|), rows contiguous; (1, |Θ|) if shared.
            gradients: float32, (workers, |Θ|), rows contiguous.
            lasting: ignored here; see ``WorkersChain``.
        """
        self._values = self._named(parameters)
        self._gradients = self._named(gradients)

    def _named(self, rows: Tensor) -> dict[str, Tensor]:
        parts = torch.split(rows, list(self._layout.sizes), 1)
        return {
            name: part.view(len(rows), *shape)
            for name, part, shape in zip(self._layout.names, parts, self._shapes, strict=True)
        }

    def run(self) -> None:
        """Compute ``losses`` and the gradients from ``images``, ``labels`` and the parameters."""
        values = {n: v[0] for n, v in self._values.items()} if self._shared else self._values
        each = vmap(
            grad_and_value(self._loss),
            in_dims=(None if self._shared else 0, 0, 0),
            randomness="different",
        )
        gradients, losses = each(values, self.images, self.labels)
        for name, gradient in gradients.items():
            self._gradients[name].copy_(gradient)
        self.losses.copy_(losses)

    def _loss(self, values: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        logits = functional_call(self._module, {**values, **self._buffers}, (images,))
        return nn.functional.cross_entropy(logits, labels)

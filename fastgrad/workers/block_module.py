"""Any module for a block of workers, on autograd, for modules that the chain does not support.

``torch.func.vmap`` over the gradient, as a function of the parameters, computes all workers at
once. On a processor that saves calls where layers are dense, more than half of a small model's time;
but its grouped convolutions take longer than the workers one by one (1.1 to 1.5 times as long for the
CNN), and so does a single worker. In these cases one worker is computed after the other.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fastgrad.gradient import Gradient
from fastgrad.workers.block_computation import BlockComputation, BlockModule


class OneByOne(BlockComputation):
    """A block of workers whose gradients are computed one after the other, on a processor."""

    def __init__(self, model: BlockModule, workers: int) -> None:
        """Allocate the memory for a block; the module is copied."""
        batch_size, example = model.batch_size, model.example
        module, buffers = copy.deepcopy(model.module), model.vector.buffers
        self._one = Gradient(module, example, batch_size, buffers=buffers)
        self.images = torch.zeros(workers, batch_size, *example)
        self.labels = torch.zeros(workers, batch_size, dtype=torch.int64)
        self.losses = torch.zeros(workers)

    def bind(self, parameters: Tensor, gradients: Tensor, lasting: bool) -> None:
        self._values = parameters.expand(len(gradients), -1)
        self._gradients = gradients

    def run(self) -> None:
        one = self._one
        batches = zip(self.images, self.labels, strict=True)
        for worker, (images, labels) in enumerate(batches):
            one.values.copy_(self._values[worker])
            self.losses[worker] = one.compute(images, labels)
            self._gradients[worker].copy_(one.gradient)


class WorkersModule(BlockComputation):
    """A module on a block of workers' batches, computed all at once."""

    def __init__(self, model: BlockModule, workers: int, *, shared: bool) -> None:
        """Allocate the memory for a block; ``shared``: all workers have one version."""
        module, batch_size, device = model.module, model.batch_size, model.device
        self._module, self._vector, self._shared = module, model.vector, shared
        self._of_vector = frozenset(model.vector.buffers)
        self._constant = {
            name: buffer.to(device)
            for name, buffer in module.named_buffers()
            if name not in self._of_vector
        }
        self.images = torch.zeros(workers, batch_size, *model.example, device=device)
        self.labels = torch.zeros(workers, batch_size, dtype=torch.int64, device=device)
        self.losses = torch.zeros(workers, device=device)

    def bind(self, parameters: Tensor, gradients: Tensor, lasting: bool) -> None:
        self._values = self._vector.views(parameters)
        self._gradients = self._vector.views(gradients)

    def run(self) -> None:
        values = {n: v for n, v in self._values.items() if n not in self._of_vector}
        if self._shared:
            values = {name: value[0] for name, value in values.items()}
        # Those of one version, too, become each worker's own.
        before = {
            name: self._values[name].expand(len(self.images), *self._values[name].shape[1:])
            for name in self._of_vector
        }
        each = vmap(
            grad_and_value(self._loss, has_aux=True),
            in_dims=(None if self._shared else 0, 0, 0, 0),
            randomness="different",
        )
        gradients, (losses, after) = each(values, before, self.images, self.labels)
        for name, gradient in gradients.items():
            self._gradients[name].copy_(gradient)
        for name, buffer in after.items():
            torch.sub(before[name], buffer, out=self._gradients[name])
        self.losses.copy_(losses)

    def _loss(
        self,
        values: Mapping[str, Tensor],
        shared: Mapping[str, Tensor],
        images: Tensor,
        labels: Tensor,
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the loss, and what the computation has left in the shared buffers."""
        # The module changes copies of its buffers, because each gradient begins with the same ones.
        own = {name: buffer.clone() for name, buffer in shared.items()}
        constant = {name: buffer.clone() for name, buffer in self._constant.items()}
        logits = functional_call(self._module, {**values, **own, **constant}, (images,))
        return nn.functional.cross_entropy(logits, labels), own

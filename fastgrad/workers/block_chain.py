"""``fastgrad.chain`` for a block of workers, each with its own batch and gradient.

``fastgrad.chain.template`` itself decides which modules are supported: it builds the chain on the meta
device, where it takes no memory, and each of its layers is then made again for the block. This module
never waits for the device.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fastgrad.layers import Dense, Flatten, Layer, MaxPool, PatchConvolution, Relu
from fastgrad.winograd import WinogradConvolution
from fastgrad.workers.block_computation import BlockComputation, BlockModule
from fastgrad.workers.block_layers import (
    Block,
    PairwiseMaxPool,
    WorkersDense,
    WorkersLayer,
    WorkersPatchConvolution,
    WorkersWinogradConvolution,
)


class WorkersChain(BlockComputation):
    """A row of layers, ending in softmax cross-entropy, on a block of workers' batches."""

    def __init__(
        self, model: BlockModule, chain: Sequence[Layer], workers: int, *, shared: bool
    ) -> None:
        """Allocate the memory for a block.

        Args:
            chain: the model's layers, from ``template``.
            shared: True if all workers have one version of the parameters.
        """
        batch_size = model.batch_size
        self._batch_size = batch_size
        images, kernels = workers * batch_size, 1 if shared else workers
        weights = iter([p.shape for p in model.module.parameters()][::2])
        with torch.device(model.device):
            self._layers = [_for_block(layer, weights, images, workers, kernels) for layer in chain]
            self._logits = torch.empty(self._layers[-1].output_shape)
            self._log_probabilities = torch.empty_like(self._logits)
            self._labels = torch.zeros(images, 1, dtype=torch.int64)
            self._of_labels = torch.empty(images, 1)
            self._minus_one = torch.full((images, 1), -1.0)
            self.losses = torch.empty(workers)
        self._of_labels_each = self._of_labels.view(workers, batch_size)
        self.images = self._layers[0].x.view(workers, batch_size, *model.example)
        self.labels = self._labels.view(workers, batch_size)
        outputs = [*(after.x for after in self._layers[1:]), self._logits]
        for layer, y in zip(self._layers, outputs, strict=True):
            layer.connect(y)
        # In the vector, each layer's weight is followed by its bias and then by the next layer.
        self._with_parameters = [x for x in self._layers if isinstance(x, WorkersLayer)]
        self._values: Block | None = None
        self._gradients: Block | None = None
        self._lasting: dict[int, list[tuple[Tensor, Tensor]]] = {}
        starts = [part.start for part in model.vector.slices]
        for i, layer in enumerate(self._with_parameters):
            layer.place(starts[2 * i], starts[2 * i + 1])

    def bind(self, parameters: Tensor, gradients: Tensor, lasting: bool) -> None:
        if self._values is None or not self._values.same(parameters):
            self._values = Block.of(parameters)
            with torch.inference_mode():
                for layer in self._with_parameters:
                    layer.read(self._values)
        if self._gradients is None or not self._gradients.same(gradients):
            self._gradients = Block.of(gradients)
            self._write(self._gradients, lasting)

    def _write(self, gradients: Block, lasting: bool) -> None:
        if lasting and (kept := self._lasting.get(gradients.start)):
            for layer, views in zip(self._with_parameters, kept, strict=True):
                layer.gradient, layer.bias_gradient = views
            return
        with torch.inference_mode():
            for layer in self._with_parameters:
                layer.write(gradients)
        if lasting:
            self._lasting[gradients.start] = [
                (layer.gradient, layer.bias_gradient) for layer in self._with_parameters
            ]

    def run(self) -> None:
        with torch.inference_mode():
            for layer in self._layers:
                layer.forward()
            torch.log_softmax(self._logits, 1, out=self._log_probabilities)
            torch.gather(self._log_probabilities, 1, self._labels, out=self._of_labels)
            torch.sum(self._of_labels_each, 1, out=self.losses)
            self.losses.div_(-self._batch_size)
            torch.exp(self._log_probabilities, out=self._logits)
            self._logits.scatter_add_(1, self._labels, self._minus_one)
            self._logits.div_(self._batch_size)
            for i in range(len(self._layers) - 1, -1, -1):
                self._layers[i].backward(into_input=i > 0)


def _for_block(
    layer: Layer, weights: Iterator[torch.Size], images: int, workers: int, kernels: int
) -> Layer:
    shape = (images, *layer.x.shape[1:])
    match layer:
        case Dense():
            return WorkersDense(shape, next(weights)[0], workers, kernels)
        case PatchConvolution():
            outputs, _, size, _ = next(weights)
            return WorkersPatchConvolution(shape, outputs, size, workers, kernels)
        case WinogradConvolution():
            return WorkersWinogradConvolution(shape, next(weights)[0], workers, kernels)
        case MaxPool() if layer.size == [2, 2] and shape[1] % 2 == shape[2] % 2 == 0:
            return PairwiseMaxPool(shape)
        case MaxPool():
            return MaxPool(shape, layer.size[0])
        case Relu() | Flatten():
            return type(layer)(shape)
    raise TypeError(f"{type(layer).__name__} has no form for several workers; add it here")

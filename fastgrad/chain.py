"""A ``torch.nn.Sequential`` of common layers as a chain that runs without autograd.

``build`` translates the layers that it supports (convolution, ReLU, max-pool, flatten, linear) and
returns None for any other module, which then runs on autograd. The chain differs from the
module in two ways that do not change the result: images are NHWC inside, and a max-pool is moved
before the ReLU that precedes it (the two commute, in the gradient as well), which leaves the ReLU a
quarter of the values.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from fastgrad.layers import Dense, Flatten, Layer, MaxPool, PatchConvolution, Relu
from fastgrad.recognising import (
    FEW_CHANNELS,
    plain_pool,
    pool_first,
    same_convolution,
    side,
)
from fastgrad.vector import Slot
from fastgrad.winograd import WinogradConvolution


class Chain:
    """A row of layers, ending in softmax cross-entropy, on a fixed batch.

    Attributes:
        images: float32, (batch, 1, height, width): the caller writes the input here.
        layers: the layers in order.
        labels: int64, (batch, 1): the caller writes the labels here, before ``loss``.
        logits: float32, (batch, classes): the output after ``forward``; overwritten by ``backward``.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        x = self.layers[0].x
        self.images = x.permute(0, 3, 1, 2) if x.dim() == 4 else x
        self.logits = torch.empty(self.layers[-1].output_shape)
        self._log_probabilities = torch.empty_like(self.logits)
        batch = len(self.logits)
        self.labels = torch.zeros(batch, 1, dtype=torch.int64)
        self._of_labels = torch.empty(batch, 1)
        self._minus_one = torch.full((batch, 1), -1.0)
        self._loss = torch.empty(())
        outputs = [*(after.x for after in self.layers[1:]), self.logits]
        for layer, y in zip(self.layers, outputs, strict=True):
            layer.connect(y)

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors of the chain and its layers, which include all its scratch memory."""
        for part in (self, *self.layers):
            for value in vars(part).values():
                for item in value if isinstance(value, tuple | list) else (value,):
                    if isinstance(item, Tensor):
                        yield item

    def forward(self) -> None:
        """Compute ``logits`` from ``images``."""
        for layer in self.layers:
            layer.forward()

    def loss(self) -> float:
        """Return the mean cross-entropy of ``logits`` and ``labels``; call it before ``backward``."""
        torch.log_softmax(self.logits, 1, out=self._log_probabilities)
        torch.gather(self._log_probabilities, 1, self.labels, out=self._of_labels)
        torch.mean(self._of_labels, (0, 1), out=self._loss)
        return -float(self._loss)

    def backward(self) -> None:
        """Write the gradient of the mean cross-entropy into the parameters' slots."""
        torch.exp(self._log_probabilities, out=self.logits)
        self.logits.scatter_add_(1, self.labels, self._minus_one)
        self.logits.div_(len(self.logits))
        for i in range(len(self.layers) - 1, -1, -1):
            self.layers[i].backward(into_input=i > 0)


def build(module: nn.Module, shape: tuple[int, ...], slots: Mapping[str, Slot]) -> Chain | None:
    """Translate a module into a chain, or return None if a layer of it is not supported.

    Args:
        module: the module to translate; only its structure is read.
        shape: of the images, (batch, channels, height, width); other examples have no chain.
        slots: the parameters' values and gradients, by name.
    """
    if not isinstance(module, nn.Sequential) or len(shape) != 4:
        return None
    batch, channels, height, width = shape
    current: tuple[int, ...] = (batch, height, width, channels)
    layers: list[Layer] = []
    for name, part in pool_first(list(module.named_children())):
        layer = _translate(name, part, current, slots, first=not layers)
        if layer is None:
            return None
        layers.append(layer)
        current = layer.output_shape
    return Chain(layers) if len(current) == 2 else None


def template(module: nn.Module, example: tuple[int, ...]) -> tuple[Layer, ...] | None:
    """Return the layers of a module's chain for one example, without memory; None if it has none."""
    with torch.device("meta"):
        slots = {
            name: Slot(torch.empty(p.shape), torch.empty(p.shape))
            for name, p in module.named_parameters()
        }
        chain = build(module, (1, *example), slots)
    return None if chain is None else chain.layers


def _translate(
    name: str, part: nn.Module, shape: tuple[int, ...], slots: Mapping[str, Slot], first: bool
) -> Layer | None:
    images = len(shape) == 4
    layer: Layer | None = None
    match part:
        case nn.Linear() if not images and part.bias is not None:
            layer = Dense(shape, slots[f"{name}.weight"], slots[f"{name}.bias"])
        case nn.ReLU():
            layer = Relu(shape)
        case nn.Flatten(start_dim=1, end_dim=-1) if images:
            layer = Flatten(shape)
        case nn.MaxPool2d() if images and plain_pool(part):
            layer = MaxPool(shape, side(part.kernel_size))
        case nn.Conv2d() if images and part.bias is not None and same_convolution(part):
            weight, bias = slots[f"{name}.weight"], slots[f"{name}.bias"]
            if first and part.in_channels <= FEW_CHANNELS:
                layer = PatchConvolution(shape, weight, bias)
            elif part.kernel_size == (3, 3) and shape[1] % 2 == shape[2] % 2 == 0:
                layer = WinogradConvolution(shape, weight, bias)
    return layer

"""A model's forward pass alone, which computes the logits of many images at a time, for evaluation.

An evaluation reads ten thousand images where an update reads ten, needs no gradient, and need not
equal training in every bit. So its passes through the same layers differ: no positions of maxima are
kept; a first convolution stores the pixels of each position in a pooling window in a separate plane,
so that the maximum goes over whole planes; other convolutions are the library's direct ones, which
need no transformed tiles and are faster than ``winograd`` where there is no backward pass.

As in ``chain``, images are NHWC inside and a max-pool comes before the ReLU that precedes it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from fastgrad.layers import patches
from fastgrad.recognising import (
    FEW_CHANNELS,
    plain_pool,
    pool_first,
    same_convolution,
    side,
)
from fastgrad.vector import Slot

ForwardPass: TypeAlias = Callable[[Tensor], Tensor]
"""The forward pass of a layer: float32 in and out, images as (batch, height, width, channels).

The output is a new tensor, a view of the input or the layer's memory; the input is unchanged.
"""


class Inference:
    """The forward pass of a model on up to ``batch`` images."""

    def __init__(self, layers: list[ForwardPass]) -> None:
        self._layers = layers

    def __call__(self, images: Tensor) -> Tensor:
        """Return logits, float32, (n, classes), of images, float32, (n, channels, height, width)."""
        x = images.permute(0, 2, 3, 1)
        for layer in self._layers:
            x = layer(x)
        return x


def build(module: nn.Module, shape: tuple[int, ...], slots: Mapping[str, Slot]) -> Inference | None:
    """Translate a module, or return None if a layer of it is not supported.

    Args:
        module: the module to translate; only its structure is read.
        shape: of the largest batch of images, (batch, channels, height, width); other examples have
            no such pass.
        slots: the parameters' values, by name.
    """
    if not isinstance(module, nn.Sequential) or len(shape) != 4:
        return None
    parts = pool_first(list(module.named_children()))
    layers: list[ForwardPass] = []
    images = True
    while parts:
        (name, part), *parts = parts
        match part:
            case nn.Conv2d() if images and part.bias is not None and same_convolution(part):
                weight, bias = slots[f"{name}.weight"].value, slots[f"{name}.bias"].value
                if not layers and part.in_channels <= FEW_CHANNELS:
                    size = _exact_windows(parts, shape)
                    if size > 1:
                        parts.pop(0)
                    layers.append(PooledPatches(shape, weight, bias, size))
                else:
                    layers.append(Convolution(weight, bias))
            case nn.MaxPool2d() if images and plain_pool(part):
                layers.append(Pool(side(part.kernel_size)))
            case nn.ReLU():
                layers.append(partial(torch.clamp_min, min=0.0))
            case nn.Flatten(start_dim=1, end_dim=-1) if images:
                layers.append(_flatten)
                images = False
            case nn.Linear() if not images and part.bias is not None:
                weight, bias = slots[f"{name}.weight"].value, slots[f"{name}.bias"].value
                layers.append(partial(functional.linear, weight=weight, bias=bias))
            case _:
                return None
    return None if images else Inference(layers)


def _exact_windows(parts: list[tuple[str, nn.Module]], shape: tuple[int, ...]) -> int:
    """Return the side of the next layer's windows if it is a max-pool that fits exactly, else 1."""
    match parts:
        case [(_, nn.MaxPool2d() as pool), *_] if plain_pool(pool):
            size = side(pool.kernel_size)
            return size if shape[2] % size == shape[3] % size == 0 else 1
    return 1


class PooledPatches:
    """A "same" convolution of images with few channels, and the maxima of size × size windows.

    As in ``layers.PatchConvolution`` this is one matrix product over patches; the rows of the product
    are ordered by (position within the window, image, window), so that maxima go over the first axis.
    """

    def __init__(
        self, shape: tuple[int, int, int, int], weight: Tensor, bias: Tensor, size: int
    ) -> None:
        batch, channels, height, width = shape
        outputs, _, taps, _ = weight.shape
        self._weight, self._bias = weight, bias
        self._inside, self._windows, self._columns, self._patches = patches(
            (batch, height, width, channels), taps, size
        )
        self._grid = (batch, height // size, width // size, outputs)
        self._kernel = torch.empty(len(self._columns), outputs)
        self._planes = torch.empty(size * size, batch * height * width // size**2, outputs)
        self._pooled = torch.empty(self._planes.shape[1:])

    def __call__(self, x: Tensor) -> Tensor:
        self._inside[: len(x)].copy_(x)
        self._patches.copy_(self._windows)
        self._kernel[:-1].copy_(self._weight.flatten(1).t())
        self._kernel[-1].copy_(self._bias)
        torch.mm(self._columns.t(), self._kernel, out=self._planes.flatten(0, 1))
        torch.amax(self._planes, 0, out=self._pooled)
        return self._pooled.view(self._grid)[: len(x)]


class Convolution:
    """A "same" convolution."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        weight = self._weight.contiguous(memory_format=torch.channels_last)
        y = functional.conv2d(x.permute(0, 3, 1, 2), weight, self._bias, padding="same")
        return y.permute(0, 2, 3, 1)


class Pool:
    """Maxima of size × size windows that do not overlap; incomplete windows are dropped."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, x: Tensor) -> Tensor:
        size = self._size
        height, width = (length // size * size for length in x.shape[1:3])
        rows = _maximum([x[:, i:height:size] for i in range(size)])
        return _maximum([rows[:, :, i:width:size] for i in range(size)])


def _maximum(tensors: list[Tensor]) -> Tensor:
    largest = tensors[0]
    for tensor in tensors[1:]:
        largest = torch.maximum(largest, tensor)
    return largest


def _flatten(x: Tensor) -> Tensor:
    """Return images as vectors in torch's order, channel-major."""
    return x.permute(0, 3, 1, 2).flatten(1)

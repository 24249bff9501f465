"""Layers whose forward and backward passes write into memory that is allocated once.

On a small batch autograd spends much of its time on allocating and clearing memory and on layouts
that suit larger batches. Here each layer owns the buffer ``x`` of its input and is connected once to
the next layer's buffer, ``y``. The forward pass fills these buffers with the activations; the
backward pass overwrites each with the gradient of its content, as soon as nothing else needs it. The
gradients of the parameters are written straight into the flat gradient. After the first steps no
step allocates memory, so there are no page faults, and a step touches little memory.

Images are NHWC (batch, height, width, channels), contiguous: convolutions become matrix products
over channels. Parameters keep torch's order, so the flat vector has the same meaning on every path.
Every layer's results equal those of plain autograd up to float32 rounding, and are the same bits for
the same input on one thread. Callers run layers under ``torch.inference_mode``.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from fastgrad.vector import Slot

_aten = torch.ops.aten


class Layer(ABC):
    """A layer on a fixed batch.

    Attributes:
        x: its input, float32, contiguous, images as NHWC; after ``backward`` the loss's gradient
            with respect to it.
        y: likewise for its output: the next layer's ``x``.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.x = self.y = torch.zeros(shape)

    @property
    @abstractmethod
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the output."""

    def connect(self, y: Tensor) -> None:
        """Set, once and before the first pass, the memory of the output.

        Args:
            y: float32, ``output_shape``, contiguous.
        """
        self.y = y

    @abstractmethod
    def forward(self) -> None:
        """Compute ``y`` from ``x``."""

    @abstractmethod
    def backward(self, into_input: bool) -> None:
        """Compute the parameters' gradients and, if ``into_input``, ``x`` from ``y``, now a gradient.

        Call it once after each ``forward``.
        """


class Dense(Layer):
    """A linear layer, y = x Wᵀ + b, with W of shape (out, in) and x of shape (batch, in)."""

    def __init__(self, shape: tuple[int, ...], weight: Slot, bias: Slot) -> None:
        super().__init__(shape)
        self._weight, self._bias = weight, bias
        self._transposed = weight.value.t()

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.x.shape[0], self._weight.value.shape[0])

    def forward(self) -> None:
        torch.addmm(self._bias.value, self.x, self._transposed, out=self.y)

    def backward(self, into_input: bool) -> None:
        torch.mm(self.y.t(), self.x, out=self._weight.gradient)
        torch.sum(self.y, 0, out=self._bias.gradient)
        if into_input:
            torch.mm(self.y, self._weight.value, out=self.x)


class Relu(Layer):
    """A ReLU, y = max(x, 0), of any shape; the gradient at 0 is 0, as in torch."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    def forward(self) -> None:
        torch.clamp_min(self.x, 0.0, out=self.y)

    def backward(self, into_input: bool) -> None:
        if into_input:
            _aten.threshold_backward.grad_input(self.y, self.x, 0.0, grad_input=self.x)


class Flatten(Layer):
    """Images flattened to vectors in torch's order, channel-major: (B, H, W, C) to (B, C·H·W)."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        batch, height, width, channels = self.x.shape
        return (batch, channels * height * width)

    def connect(self, y: Tensor) -> None:
        batch, height, width, channels = self.x.shape
        super().connect(y.view(batch, channels, height, width).permute(0, 2, 3, 1))

    def forward(self) -> None:
        self.y.copy_(self.x)

    def backward(self, into_input: bool) -> None:
        if into_input:
            self.x.copy_(self.y)


class MaxPool(Layer):
    """Maxima of size × size windows that do not overlap; of equal entries the first counts."""

    def __init__(self, shape: tuple[int, ...], size: int) -> None:
        super().__init__(shape)
        self.size = [size, size]
        self._images = self.x.permute(0, 3, 1, 2)
        self._positions = torch.empty(self.output_shape, dtype=torch.int64).permute(0, 3, 1, 2)

    @property
    def output_shape(self) -> tuple[int, ...]:
        batch, height, width, channels = self.x.shape
        return (batch, height // self.size[0], width // self.size[1], channels)

    def connect(self, y: Tensor) -> None:
        super().connect(y.permute(0, 3, 1, 2))

    def forward(self) -> None:
        _aten.max_pool2d_with_indices.out(
            self._images, self.size, self.size, out=self.y, indices=self._positions
        )

    def backward(self, into_input: bool) -> None:
        if into_input:
            _aten.max_pool2d_with_indices_backward.grad_input(
                self.y,
                self._images,  # only its shape is read
                self.size,
                self.size,
                [0, 0],
                [1, 1],
                False,
                self._positions,
                grad_input=self._images,
            )


def patches(
    shape: tuple[int, ...], size: int, pooled: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocate memory for the patches that a "same" convolution reads.

    Args:
        shape: of the images, (batch, height, width, channels).
        size: side of the kernel.
        pooled: side of the windows of the max-pool after it, which cover the images exactly.

    Returns:
        a tensor to write the images to, inside a border of zeros; overlapping windows of it, indexed
        first by the position within the kernel, then by the position within the pool's window; a
        matrix, shape (channels·size² + 1, batch·height·width), whose last row is 1; and its other rows
        in the shape of the windows, to which the caller copies the windows.
    """
    batch, height, width, channels = shape
    border = size // 2
    padded = torch.zeros(batch, height + 2 * border, width + 2 * border, channels)
    inside = padded[:, border : border + height, border : border + width]
    b, h, w, c = padded.stride()
    windows = padded.as_strided(
        (channels, size, size, pooled, pooled, batch, height // pooled, width // pooled),
        (c, h, w, h, w, b, pooled * h, pooled * w),
    )
    columns = torch.ones(channels * size * size + 1, batch * height * width)
    return inside, windows, columns, columns[:-1].view(windows.shape)


class PatchConvolution(Layer):
    """A first layer's "same" convolution of images with few channels, as one matrix product.

    The patches are the columns of a matrix, shape (channels·size² + 1, batch·height·width), whose last
    row is 1, so that the product includes the bias and its gradient. There is no gradient of the
    input, which is the data.
    """

    def __init__(self, shape: tuple[int, ...], weight: Slot, bias: Slot) -> None:
        super().__init__(shape)
        outputs, _, size, _ = weight.value.shape
        self._weight, self._bias = weight, bias
        self._inside, self._windows, self._columns, self._patches = patches(shape, size)
        self._kernel = torch.zeros(len(self._columns), outputs)
        self._kernel_gradient = torch.zeros(len(self._columns), outputs)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (*self.x.shape[:3], self._weight.value.shape[0])

    def connect(self, y: Tensor) -> None:
        super().connect(y.view(-1, y.shape[3]))

    def forward(self) -> None:
        self._inside.copy_(self.x)
        self._patches.copy_(self._windows)
        self._kernel[:-1].copy_(self._weight.value.flatten(1).t())
        self._kernel[-1].copy_(self._bias.value)
        torch.mm(self._columns.t(), self._kernel, out=self.y)

    def backward(self, into_input: bool) -> None:
        if into_input:
            raise ValueError("a patch convolution gives no gradient to its input")
        torch.mm(self._columns, self.y, out=self._kernel_gradient)
        self._weight.gradient.flatten(1).copy_(self._kernel_gradient[:-1].t())
        self._bias.gradient.copy_(self._kernel_gradient[-1])

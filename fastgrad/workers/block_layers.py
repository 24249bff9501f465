"""Layers for several workers at a time, those with parameters with each worker's own values.

These are the counterparts of ``Dense``, ``PatchConvolution`` and ``WinogradConvolution`` for a block
of workers; layers without parameters serve a block unchanged, and a max-pool of 2 × 2 has a faster
form. A block's images form one batch,
worker after worker (workers·b images); the same memory is viewed as (workers, b, …) where a matrix
product has to keep the workers apart. One product per worker is one batched product, so a block
costs as few calls as one worker.

A layer does not own its values and gradients: ``read`` and ``write`` set where they are, on a
processor for each block, on an accelerator once. Where all workers share one version, products with
the parameters take one large batch, and only the gradients are per worker.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fastgrad.layers import Layer
from fastgrad.vector import Slot
from fastgrad.winograd import (
    WinogradConvolution,
    collect_input,
    spread_output,
    transform_input,
    transform_output,
)

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Block:
    """The rows in memory of a block of workers' parameters, or of their gradients.

    Making views is a considerable part of a small model's cost, so a layer makes each view that it
    needs in one step, from the whole memory.
    """

    memory: Tensor
    start: int
    stride: int

    @staticmethod
    def of(rows: Tensor) -> "Block":
        """Make the block of these rows, (workers, |Θ|), each contiguous."""
        return Block(rows, int(rows.storage_offset()), rows.stride(0))

    def same(self, rows: Tensor) -> bool:
        """Return True if these rows are the block's in memory."""
        place = self.memory.data_ptr(), self.stride
        return place == (rows.data_ptr(), rows.stride(0))

    def view(self, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
        """Return a part of every row, from ``offset`` on; the first axis of ``size`` is the rows."""
        return self.memory.as_strided(size, (self.stride, *stride), self.start + offset)


class WorkersLayer(Layer):
    """A layer with a weight and a bias, for a block of workers.

    Attributes:
        workers: the number of workers.
        kernels: the number of versions of the parameters: ``workers``, or 1 if all share one.
        weight_at: the position in a flat vector where the weight begins.
        bias_at: likewise for the bias.
        gradient: memory for the weight's gradients, in the layer's shape.
        bias_gradient: likewise for the bias.
    """

    workers: int
    kernels: int
    weight_at: int
    bias_at: int
    gradient: Tensor
    bias_gradient: Tensor

    def place(self, weight_at: int, bias_at: int) -> None:
        """Set, once, the positions of the parameters in a flat vector."""
        self.weight_at, self.bias_at = weight_at, bias_at

    @abstractmethod
    def read(self, values: Block) -> None:
        """Set where parameters are read, until the next call."""

    @abstractmethod
    def write(self, gradients: Block) -> None:
        """Set where gradients are written, until the next call."""


class WorkersDense(WorkersLayer):
    """A linear layer, y = x Wᵀ + b, for each worker's W of shape (out, in)."""

    def __init__(self, shape: tuple[int, ...], outputs: int, workers: int, kernels: int) -> None:
        super().__init__(shape)
        self.workers, self.kernels = workers, kernels
        self._outputs, self._inputs = outputs, shape[1]
        self._x_each = self.x.view(workers, -1, shape[1])

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.x.shape[0], self._outputs)

    def connect(self, y: Tensor) -> None:
        super().connect(y)
        self._y_each = y.view(self.workers, -1, self._outputs)
        self._y_transposed = self._y_each.transpose(1, 2)
        together = self.kernels == 1
        self._x_by_w = self.x.view(1, *self.x.shape) if together else self._x_each
        self._y_by_w = y.view(1, *y.shape) if together else self._y_each

    def read(self, values: Block) -> None:
        m, n = self._outputs, self._inputs
        self._value = values.view(self.weight_at, (self.kernels, m, n), (n, 1))
        self._transposed = values.view(self.weight_at, (self.kernels, n, m), (1, n))
        self._bias = values.view(self.bias_at, (self.kernels, 1, m), (0, 1))

    def write(self, gradients: Block) -> None:
        m, n = self._outputs, self._inputs
        self.gradient = gradients.view(self.weight_at, (self.workers, m, n), (n, 1))
        self.bias_gradient = gradients.view(self.bias_at, (self.workers, m), (1,))

    def forward(self) -> None:
        torch.baddbmm(self._bias, self._x_by_w, self._transposed, out=self._y_by_w)

    def backward(self, into_input: bool) -> None:
        torch.bmm(self._y_transposed, self._x_each, out=self.gradient)
        torch.sum(self._y_each, 1, out=self.bias_gradient)
        if into_input:
            torch.bmm(self._y_by_w, self._value, out=self._x_by_w)


class WorkersPatchConvolution(WorkersLayer):
    """``PatchConvolution``, with a matrix of patches per worker."""

    def __init__(
        self, shape: tuple[int, ...], outputs: int, size: int, workers: int, kernels: int
    ) -> None:
        super().__init__(shape)
        self.workers, self.kernels = workers, kernels
        batch, height, width, channels = shape
        border = size // 2
        padded = torch.zeros(batch, height + 2 * border, width + 2 * border, channels)
        self._inside = padded[:, border : border + height, border : border + width]
        taps, each = channels * size * size, batch // workers
        b, h, w, c = padded.stride()
        # Overlapping windows of the padded images; the position within the window comes first.
        self._windows = padded.as_strided(
            (workers, channels, size, size, each, height, width), (each * b, c, h, w, b, h, w)
        )
        self._columns = torch.ones(workers, taps + 1, each * height * width)
        self._patches = self._columns[:, :taps].view(self._windows.shape)
        self._rows = self._columns.transpose(1, 2)
        self._kernel = torch.zeros(kernels, taps + 1, outputs)
        self._kernel_each = self._kernel.expand(workers, -1, -1)
        self._kernel_gradient = torch.zeros(workers, taps + 1, outputs)
        # The kernel is the weight transposed, with the bias as its last row.
        self._weight_part, self._bias_part = self._kernel[:, :taps], self._kernel[:, taps]
        self._weight_gradient = self._kernel_gradient[:, :taps]
        self._bias_of_gradient = self._kernel_gradient[:, taps]

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (*self.x.shape[:3], self._kernel.shape[2])

    def connect(self, y: Tensor) -> None:
        super().connect(y.view(self.workers, -1, y.shape[3]))

    def read(self, values: Block) -> None:
        _, taps, m = self._weight_part.shape
        self._value = values.view(self.weight_at, (self.kernels, taps, m), (1, taps))
        self._bias = values.view(self.bias_at, (self.kernels, m), (1,))

    def write(self, gradients: Block) -> None:
        _, taps, m = self._weight_part.shape
        self.gradient = gradients.view(self.weight_at, (self.workers, taps, m), (1, taps))
        self.bias_gradient = gradients.view(self.bias_at, (self.workers, m), (1,))

    def forward(self) -> None:
        self._inside.copy_(self.x)
        self._patches.copy_(self._windows)
        self._weight_part.copy_(self._value)
        self._bias_part.copy_(self._bias)
        torch.bmm(self._rows, self._kernel_each, out=self.y)

    def backward(self, into_input: bool) -> None:
        if into_input:
            raise ValueError("a patch convolution gives no gradient to its input")
        torch.bmm(self._columns, self.y, out=self._kernel_gradient)
        self.gradient.copy_(self._weight_gradient)
        self.bias_gradient.copy_(self._bias_of_gradient)


class WorkersWinogradConvolution(WorkersLayer, WinogradConvolution):
    """``WinogradConvolution``: sixteen products per worker, the transforms over the whole block."""

    def __init__(self, shape: tuple[int, ...], outputs: int, workers: int, kernels: int) -> None:
        inputs = shape[3]
        unread = torch.empty(outputs, inputs, 3, 3, device="meta")  # only its shape is read
        WinogradConvolution.__init__(self, shape, Slot(unread, unread), Slot(unread, unread))
        self.workers, self.kernels = workers, kernels
        self._kron = self._kron.to(self.x.device)
        self._kernel = torch.empty(3, 3, kernels, inputs, outputs)
        self._u = torch.empty(16 * kernels, inputs, outputs)
        self._taps = torch.empty(3, 3, workers, inputs, outputs)
        self._du = torch.empty(16 * workers, inputs, outputs)
        self._v_each = self._v.view(16 * workers, -1, inputs)
        self._m_each = self._m.view(16 * workers, -1, outputs)
        self._m_tile = self._m[5].view(workers, -1, outputs)
        self._v_by_u = self._v.view(16 * kernels, -1, inputs)
        self._m_by_u = self._m.view(16 * kernels, -1, outputs)

    def read(self, values: Block) -> None:
        *_, n, m = self._kernel.shape
        size, stride = (self.kernels, 3, 3, n, m), (3, 1, 9, 9 * n)  # torch's: (out, in, 3, 3)
        self._value = values.view(self.weight_at, size, stride)
        self._bias_value = values.view(self.bias_at, (self.kernels, 1, m), (0, 1))

    def write(self, gradients: Block) -> None:
        *_, n, m = self._kernel.shape
        size, stride = (self.workers, 3, 3, n, m), (3, 1, 9, 9 * n)
        self.gradient = gradients.view(self.weight_at, size, stride)
        self.bias_gradient = gradients.view(self.bias_at, (self.workers, m), (1,))

    def forward(self) -> None:
        self._inside.copy_(self.x)
        self._kernel.permute(2, 0, 1, 3, 4).copy_(self._value)
        torch.mm(self._kron, self._kernel.view(9, -1), out=self._u.view(16, -1))
        transform_input(self._d_rows, self._d_half)
        transform_input(self._d_columns, self._v_columns)
        torch.bmm(self._v_by_u, self._u, out=self._m_by_u)
        # See WinogradConvolution on why the bias is added to, and its gradient read from, m₁₁.
        self._m_tile.add_(self._bias_value)
        transform_output(self._m_rows, self._y_half)
        transform_output(self._y_columns, self._y_pixels)

    def backward(self, into_input: bool) -> None:
        spread_output(self._dy_pixels, self._dy_half)
        spread_output(self._dy_columns, self._m_columns)
        torch.sum(self._m_tile, 1, out=self.bias_gradient)
        torch.bmm(self._v_each.transpose(1, 2), self._m_each, out=self._du)
        torch.mm(self._kron.t(), self._du.view(16, -1), out=self._taps.view(9, -1))
        self.gradient.copy_(self._taps.permute(2, 0, 1, 3, 4))
        if into_input:
            torch.bmm(self._m_by_u, self._u.transpose(1, 2), out=self._v_by_u)
            collect_input(self._v_rows, self._dx_half, axis=2)
            collect_input(self._dx_columns, self._dx_pixels, axis=3)


class PairwiseMaxPool(Layer):
    """Maxima of 2 × 2 windows that do not overlap, of images of even height and width.

    Pairs are compared, and no table of positions is needed: each window's two columns first, then its
    two rows. A comparison keeps the difference, second minus first, in place of the second entry: it is
    positive exactly where the second is larger, so the gradient goes there, and to the first otherwise.
    Of equal entries the first counts, in the order of rows and then columns, as in torch; the results
    equal torch's to the bit. It takes three quarters of the time of torch's own (one core, 20 images of
    28 × 28 × 32), and needs no atomics.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        batch, height, width, channels = shape
        if height % 2 or width % 2:
            raise ValueError(f"images of {height}×{width} cannot be cut into windows of 2×2")
        self._left, self._right = self.x.view(batch, height, width // 2, 2, channels).unbind(3)
        self._row = torch.empty(batch, height, width // 2, channels)
        halves = self._row.view(batch, height // 2, 2, width // 2, channels)
        self._upper, self._lower = halves.unbind(2)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return tuple(self._upper.shape)

    def forward(self) -> None:
        torch.maximum(self._left, self._right, out=self._row)
        self._right.sub_(self._left)
        torch.maximum(self._upper, self._lower, out=self.y)
        self._lower.sub_(self._upper)

    def backward(self, into_input: bool) -> None:
        if into_input:
            _share(self.y, self._upper, self._lower)
            _share(self._row, self._left, self._right)


def _share(gradient: Tensor, first: Tensor, difference: Tensor) -> None:
    """Give the gradient to the second of a pair where the difference is positive, else to the first.

    The second's part replaces the difference.
    """
    _aten.threshold_backward.grad_input(gradient, difference, 0.0, grad_input=difference)
    torch.sub(gradient, difference, out=first)

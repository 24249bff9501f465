"""A 3×3 "same" convolution by Winograd's minimal filtering, with 2.25 times fewer multiplications.

It is F(2×2, 3×3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015): with
4×4 input tiles d that overlap by two, and 2×2 output tiles y,

    y = Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A

and the sum over input channels turns ⊙ into sixteen matrix products, (tiles × in) · (in × out). The
gradients are the transposes of the same steps, so the weights' gradient uses the transformed input of
the forward pass again. A and B hold only 0 and ±1: their transforms are sums of strided views, one
axis after the other. Larger tiles would save more multiplications but lose digits; these do not.
"""

import math
from typing import TypeAlias

import torch
from torch import Tensor

from fastgrad.layers import Layer
from fastgrad.vector import Slot

_Views: TypeAlias = tuple[Tensor, ...] | list[Tensor]

_G = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]])


class WinogradConvolution(Layer):
    """A 3×3 convolution, stride 1, padding 1, of images of even height and width.

    Names follow the paper: ``u`` is the transformed kernel (16, in, out), ``v`` the transformed input
    (16, tiles, in), ``m`` their product (16, tiles, out); tiles run over (batch, row, column).
    """

    def __init__(self, shape: tuple[int, ...], weight: Slot, bias: Slot) -> None:
        super().__init__(shape)
        batch, height, width, inputs = shape
        if height % 2 or width % 2:
            raise ValueError(f"images of {height}×{width} cannot be cut into tiles of 2×2")
        outputs = weight.value.shape[0]
        rows, columns = height // 2, width // 2
        tiles = batch * rows * columns
        grid_in, grid_out = (batch, rows, columns, inputs), (batch, rows, columns, outputs)
        self._weight, self._bias = weight, bias
        self._kron = torch.kron(_G, _G)  # (16, 9): G g Gᵀ as a product with the flattened g
        self._taps = torch.empty(9, inputs, outputs)
        self._u = torch.empty(16, inputs, outputs)
        self._du = torch.empty(16, inputs, outputs)
        self._v = torch.empty(16, tiles, inputs)
        self._m = torch.empty(16, tiles, outputs)

        # The views below are made once: making a view takes as long as a sum over a small view.
        padded = torch.zeros(batch, height + 2, width + 2, inputs)
        self._inside = padded[:, 1:-1, 1:-1]
        # Results between the two axes of a transform; one buffer serves all transforms, one at a time.
        plane = tiles * max(inputs, outputs)
        between = torch.empty(max(4 * batch * rows * (width + 2) * inputs, 8 * plane))
        half = _first(between, 4, batch, rows, width + 2, inputs)
        self._d_rows = [padded[:, i : i + height - 1 : 2] for i in range(4)]
        self._d_half = half.unbind(0)
        self._d_columns = [half[:, :, :, i : i + width - 1 : 2] for i in range(4)]
        v = self._v.view(4, 4, *grid_in)
        self._v_rows, self._v_columns = v.unbind(0), v.unbind(1)
        m = self._m.view(4, 4, *grid_out)
        self._m_rows, self._m_columns = m.unbind(0), m.unbind(1)
        y_half = _first(between, 2, 4, *grid_out)
        self._y_half, self._y_columns = y_half.unbind(0), y_half.unbind(1)
        dy_half = _first(between, 4, 2, *grid_out)
        self._dy_half, self._dy_columns = dy_half.unbind(0), dy_half.unbind(1)
        dx_half = _first(between, 4, batch, rows, 2, columns, inputs)
        self._dx_half, self._dx_columns = dx_half.unbind(3), dx_half.unbind(0)
        self._dx_pixels = self.x.view(batch, rows, 2, columns, 2, inputs).unbind(4)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (*self.x.shape[:3], self._weight.value.shape[0])

    def connect(self, y: Tensor) -> None:
        super().connect(y)
        batch, height, width, outputs = y.shape
        tiled = (batch, height // 2, 2, width // 2, 2, outputs)
        # By the column within the tile: (row within the tile, batch, row, column, channel).
        self._y_pixels = [p.permute(2, 0, 1, 3, 4) for p in y.view(tiled).unbind(4)]
        # By the row within the tile: (column within the tile, batch, row, column, channel).
        self._dy_pixels = [p.permute(3, 0, 1, 2, 4) for p in y.view(tiled).unbind(2)]

    def forward(self) -> None:
        self._inside.copy_(self.x)
        self._taps.copy_(self._weight.value.permute(2, 3, 1, 0).flatten(0, 1))
        torch.mm(self._kron, self._taps.view(9, -1), out=self._u.view(16, -1))
        transform_input(self._d_rows, self._d_half)
        transform_input(self._d_columns, self._v_columns)
        torch.bmm(self._v, self._u, out=self._m)
        # Column 1 of Aᵀ is (1, 1)ᵀ: a term added to m₁₁ is added to each of the four outputs.
        self._m[5].add_(self._bias.value)
        transform_output(self._m_rows, self._y_half)
        transform_output(self._y_columns, self._y_pixels)

    def backward(self, into_input: bool) -> None:
        spread_output(self._dy_pixels, self._dy_half)
        spread_output(self._dy_columns, self._m_columns)
        # For the same reason, (A dy Aᵀ)₁₁ is the sum over the tile.
        torch.sum(self._m[5], 0, out=self._bias.gradient)
        torch.bmm(self._v.transpose(1, 2), self._m, out=self._du)
        torch.mm(self._kron.t(), self._du.view(16, -1), out=self._taps.view(9, -1))
        self._weight.gradient.permute(2, 3, 1, 0).copy_(
            self._taps.view(3, 3, *self._taps.shape[1:])
        )
        if into_input:
            torch.bmm(self._m, self._u.transpose(1, 2), out=self._v)
            collect_input(self._v_rows, self._dx_half, axis=2)
            collect_input(self._dx_columns, self._dx_pixels, axis=3)


def _first(buffer: Tensor, *shape: int) -> Tensor:
    """Return the beginning of a flat buffer, in this shape."""
    return buffer[: math.prod(shape)].view(shape)


def transform_input(d: _Views, v: _Views) -> None:
    """Compute v = Bᵀ d along one axis; Bᵀ = (1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1)."""
    torch.sub(d[0], d[2], out=v[0])
    torch.add(d[1], d[2], out=v[1])
    torch.sub(d[2], d[1], out=v[2])
    torch.sub(d[1], d[3], out=v[3])


def transform_output(m: _Views, y: _Views) -> None:
    """Compute y = Aᵀ m along one axis; Aᵀ = (1 1 1 0; 0 1 -1 -1)."""
    torch.add(m[0], m[1], out=y[0])
    y[0].add_(m[2])
    torch.sub(m[1], m[2], out=y[1])
    y[1].sub_(m[3])


def spread_output(dy: _Views, m: _Views) -> None:
    """Compute m = A dy along one axis."""
    m[0].copy_(dy[0])
    torch.add(dy[0], dy[1], out=m[1])
    torch.sub(dy[0], dy[1], out=m[2])
    torch.neg(dy[1], out=m[3])


def collect_input(v: _Views, dx: _Views, axis: int) -> None:
    """Compute dx = B v along one axis of tiles, added up where tiles overlap.

    A tile's entries 1 and 2 are its own two pixels; its entry 0 is the second pixel of the tile
    before it and its entry 3 the first pixel of the tile after it, or padding, which is dropped.
    """
    tiles = v[0].shape[axis]
    first, second = dx
    torch.sub(v[1], v[2], out=first)
    first.add_(v[3])
    first.narrow(axis, 1, tiles - 1).sub_(v[3].narrow(axis, 0, tiles - 1))
    torch.add(v[1], v[2], out=second)
    second.sub_(v[0])
    second.narrow(axis, 0, tiles - 1).add_(v[0].narrow(axis, 1, tiles - 1))

"""Blocks of workers on a processor, each small enough for its caches.

Stacked parameters are read in place, and gradients are written where they are wanted. Versions in
separate tensors are copied into a block first, as one worker after the other would copy each.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fastgrad.workers.block_chain import WorkersChain
from fastgrad.workers.block_computation import BlockComputation, BlockModule
from fastgrad.workers.block_module import OneByOne, WorkersModule

Parameters: TypeAlias = Tensor | Sequence[Tensor]
"""One vector per worker, stacked or not."""
Fill: TypeAlias = Callable[[Tensor, Tensor, slice], None]
"""A function that writes the images and labels of some workers into the given tensors."""

_CACHE = 4 << 20
"""Bytes of activations that a block may have: room for two workers of the CNN, the fastest size."""
_LARGEST = 16
"""The most workers per block; more save next to nothing."""


def block_of(model: BlockModule, workers: int, *, shared: bool) -> BlockComputation:
    """Make a block that computes all its workers at once."""
    if model.chain is not None:
        return WorkersChain(model, model.chain, workers, shared=shared)
    return WorkersModule(model, workers, shared=shared)


class CachedBlocks:
    """Blocks for a processor; the block of a size is made when that size first occurs."""

    def __init__(self, model: BlockModule) -> None:
        """Make no block yet; memory is allocated when it is needed."""
        self._model = model
        activations = 4 * model.batch_size * sum(layer.x.numel() for layer in model.chain or ())
        self._size = max(1, min(_LARGEST, _CACHE // max(activations, 1)))
        self._convolves = any(
            isinstance(m, nn.Conv2d | nn.ConvTranspose2d) for m in model.module.modules()
        )
        self._blocks: dict[tuple[int, bool], BlockComputation] = {}
        self._gradients, self._copies = model.rows(0), model.rows(0)
        self._losses = torch.zeros(0)

    def compute(
        self, parameters: Parameters, fill: Fill, workers: int, out: Tensor | None, shared: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute gradients and losses; see ``WorkersGradients.gradients``.

        Args:
            parameters: of each worker, or one vector if shared.
            fill: writes the workers' batches.
            workers: m, the number of workers.
            out: memory for the gradients; None: memory that the next call overwrites.
            shared: True if all workers have one version.
        """
        size, own = self._size, out is None
        if out is None:
            if self._gradients.shape[0] < workers:
                self._blocks.clear()  # the blocks keep views of the old memory
                self._gradients = self._model.rows(max(workers, 2 * self._gradients.shape[0]))
            out = self._gradients[:workers]
        if workers <= size:
            part = slice(0, workers)
            return out, self._one_block(parameters, fill, part, out, shared=shared, own=own)
        if len(self._losses) < workers:
            self._losses = torch.zeros(workers)
        for first in range(0, workers, size):
            part = slice(first, min(first + size, workers))
            rows = parameters if shared else parameters[part]
            losses = self._one_block(rows, fill, part, out[part], shared=shared, own=own)
            self._losses[part].copy_(losses)
        return out, self._losses[:workers]

    def _one_block(
        self, rows: Parameters, fill: Fill, part: slice, out: Tensor, *, shared: bool, own: bool
    ) -> Tensor:
        # For one worker, products with shared parameters are simpler, and a copy of the parameters
        # takes less time than views of them.
        alone = part.stop - part.start == 1
        block = self._block(part.stop - part.start, shared or alone)
        fill(block.images, block.labels, part)
        block.bind(
            rows if shared and isinstance(rows, Tensor) else self._stacked(rows, alone), out, own
        )
        block.run()
        return block.losses

    def _block(self, workers: int, shared: bool) -> BlockComputation:
        key = (workers, shared)
        if key not in self._blocks:
            one_by_one = self._model.chain is None and (workers == 1 or self._convolves)
            self._blocks[key] = (
                OneByOne(self._model, workers)
                if one_by_one
                else block_of(self._model, workers, shared=shared)
            )
        return self._blocks[key]

    def _stacked(self, rows: Parameters, alone: bool) -> Tensor:
        if isinstance(rows, Tensor) and not alone:
            return rows
        if self._copies.shape[0] == 0:
            self._copies = self._model.rows(self._size)
        into = self._copies[: len(rows)]
        return into.copy_(rows) if isinstance(rows, Tensor) else torch.stack(tuple(rows), out=into)

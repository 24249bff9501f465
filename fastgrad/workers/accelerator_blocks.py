"""Blocks of workers on an accelerator, padded to few sizes, each of which is recorded and replayed.

A CNN's gradient is about a hundred launches, which would cost more than the arithmetic; a CUDA graph
makes them one. A recorded block reads and writes fixed memory, so parameters and batches are copied
there first, on the same stream, and nothing waits for it. Without CUDA a block is computed without a
recording, on the same memory, so this path can be tested without an accelerator.
"""

import torch
from torch import Tensor

from fastgrad.workers.block_computation import BlockComputation, BlockModule
from fastgrad.workers.blocks import Fill, Parameters, block_of

SIZES = (1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
"""Workers per block; more than the last size are computed in several blocks."""
_WARM_UP = 3
"""Runs before recording, in which libraries choose their kernels and allocate their workspaces."""


class Replay:
    """A block on its own memory, recorded as a CUDA graph.

    Attributes:
        block: the caller writes its ``images`` and ``labels``, and reads its ``losses``.
        parameters: float32, (workers, |Θ|), or (1, |Θ|) if shared: written by the caller.
        gradients: float32, (workers, |Θ|): read by the caller, after ``run``.
    """

    block: BlockComputation
    parameters: Tensor
    gradients: Tensor

    def __init__(self, model: BlockModule, workers: int, shared: bool) -> None:
        """Allocate the memory for a block."""
        self.block = block_of(model, workers, shared=shared)
        self.parameters = model.rows(1 if shared else workers)
        self.gradients = model.rows(workers)
        self.block.bind(self.parameters, self.gradients, lasting=True)
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self) -> None:
        """Compute the block; on CUDA the first call records it and each later call is one launch."""
        if self.parameters.device.type != "cuda":
            self.block.run()
            return
        if self._graph is None:
            self._graph = self._record()
        self._graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        current = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self.block.run()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.block.run()
        return graph


class PaddedBlocks:
    """Blocks for an accelerator; the block of a size is made when that size first occurs."""

    def __init__(self, model: BlockModule) -> None:
        """Make no block yet; memory is allocated when it is needed."""
        self._model = model
        self._replays: dict[tuple[int, bool], Replay] = {}

    def compute(
        self, parameters: Parameters, fill: Fill, workers: int, out: Tensor | None, shared: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute gradients and losses; see ``CachedBlocks.compute``."""
        largest = SIZES[-1]
        if workers <= largest:
            gradients, losses = self._one_block(parameters, fill, slice(0, workers), shared)
            return gradients if out is None else out.copy_(gradients), losses
        if out is None:
            out = self._model.rows(workers)
        all_losses = torch.empty(workers, device=out.device)
        for first in range(0, workers, largest):
            part = slice(first, min(first + largest, workers))
            rows = parameters if shared else parameters[part]
            gradients, losses = self._one_block(rows, fill, part, shared)
            out[part].copy_(gradients)
            all_losses[part].copy_(losses)
        return out, all_losses

    def _one_block(
        self, rows: Parameters, fill: Fill, part: slice, shared: bool
    ) -> tuple[Tensor, Tensor]:
        workers = part.stop - part.start
        replay = self._replay(workers, shared)
        fill(replay.block.images[:workers], replay.block.labels[:workers], part)
        into = replay.parameters[: len(rows)]
        if isinstance(rows, Tensor):
            into.copy_(rows)
        else:
            torch.stack(tuple(rows), out=into)
        replay.run()
        return replay.gradients[:workers], replay.block.losses[:workers]

    def _replay(self, workers: int, shared: bool) -> Replay:
        size = next(size for size in SIZES if size >= workers)
        if (size, shared) not in self._replays:
            self._replays[size, shared] = Replay(self._model, size, shared)
        return self._replays[size, shared]

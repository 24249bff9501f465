"""Gradients of many workers in one call, each at its own parameters and on its own mini-batch.

An asynchronous worker's gradient depends only on the version it pulled, so the gradients of all
outstanding workers can be computed as soon as one of them is needed; synchronous workers share a
version. Each worker's gradient is that of ``Learner.gradient``, up to float32 rounding.

On a processor workers are computed in blocks small enough for the caches (``batched.blocks``). This
saves calls, not arithmetic. Measured on one core, b = 10, m = 8 to 200, relative to m serial gradients
with their parameters copied in (medians): the mlp takes 0.65 to 0.75 of the time, 0.47 to 0.54 where
workers share a version; the CNN 0.94 to 1.03 and 0.89 to 1.00. One mlp worker alone takes 1.02 to 1.09.

On an accelerator a call costs launches, not arithmetic: workers are padded to one of a few block
sizes, each of which is recorded once as a CUDA graph and then replayed (``batched.replay``). This
module never waits for an accelerator: results are in order on its current stream.
"""

import torch
from torch import Tensor, nn

from testbed.learning.batched.blocks import CachedBlocks, Fill, Parameters, describe
from testbed.learning.batched.replay import PaddedBlocks
from testbed.learning.buffers import Buffers, prepare
from testbed.learning.data.augmentation import NONE, Augmentation
from testbed.learning.inputs import GREY_28, Inputs
from testbed.learning.models import Model, drawn, structure
from testbed.updates import Layout


class BatchedLearner:
    """A model whose gradient is computed for many workers at a time.

    Losses are valid until the next call, and so are gradients, unless memory for them was given.

    Attributes:
        layout: the position of each tensor in a flat parameter vector.
        device: the device that computes and holds the dataset, parameters and results.
    """

    layout: Layout
    device: torch.device

    def __init__(  # noqa: PLR0917 - a model, its data and a device
        self,
        model: str | Model | nn.Module,
        batch_size: int,
        images: Tensor,
        labels: Tensor,
        device: str = "cpu",
        padded: bool = False,
        inputs: Inputs = GREY_28,
        buffers: Buffers = "none",
        augmentation: Augmentation = NONE,
    ) -> None:
        """Prepare a model; the first call of each size allocates its memory.

        Args:
            model: a name in ``MODELS``, a chosen model, or a module of the same kind (its values are
                not read).
            batch_size: b, images per worker.
            images: the dataset, float32, (N, channels, height, width).
            labels: int64, (N,).
            device: torch's name of it.
            padded: compute in padded blocks even on a processor, as on an accelerator.
            inputs: the images, and the classes, that a named model is made for.
            buffers: the rule about the module's buffers: none, or shared. The gradient of those is
                β − β′, as the serial learner's.
            augmentation: how images are changed, if moves are given.
        """
        torch.set_num_threads(1)
        self.device = torch.device(device)
        if self.device.type == "cuda":
            # TF32 cuts factors to ten bits, more than rounding; atomics differ from run to run.
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.deterministic = True
        module = model if isinstance(model, nn.Module) else structure(model, inputs)
        prepare(module, buffers)
        if not isinstance(model, nn.Module) and any(True for _ in module.buffers()):
            module = drawn(model, inputs, seed=0)  # buffers need values, as the serial learner's
            prepare(module, buffers)
        described = describe(module, batch_size, self.device, inputs, buffers)
        self.layout = described.layout
        self._batch_size = batch_size
        self._augmentation = augmentation
        padded = padded or self.device.type != "cpu"
        self._blocks = PaddedBlocks(described) if padded else CachedBlocks(described)
        self._images = images.to(self.device).contiguous()
        self._labels = labels.to(self.device).contiguous()

    def gradients(
        self,
        parameters: Parameters,
        indices: Tensor,
        out: Tensor | None = None,
        moves: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return each worker's gradient of the mean cross-entropy of its batch, at its own parameters.

        Args:
            parameters: float32, on the device: (m, |Θ|) with contiguous rows, or m vectors (|Θ|,), in
                which a version may occur more than once.
            indices: int64, (m, b), on the device or not: the images of each worker's batch.
            out: float32, (m, |Θ|), on the device, rows contiguous: memory for the gradients.
            moves: int64, (m, b, 3): how each image is augmented; None: not at all.

        Returns:
            float32, (m, |Θ|), ``out`` if it was given; and the losses, float32, (m,).

        Raises:
            ValueError: the shapes do not match.
        """
        return self._compute(parameters, indices, out, moves, shared=False)

    def shared(
        self,
        parameters: Tensor,
        indices: Tensor,
        out: Tensor | None = None,
        moves: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return ``gradients`` where all workers have one version, of shape (|Θ|,)."""
        return self._compute(parameters.unsqueeze(0), indices, out, moves, shared=True)

    def _compute(
        self,
        parameters: Parameters,
        indices: Tensor,
        out: Tensor | None,
        moves: Tensor | None,
        *,
        shared: bool,
    ) -> tuple[Tensor, Tensor]:
        workers = len(indices)
        if workers == 0:
            raise ValueError("there are no workers to compute a gradient for")
        versions, total = 1 if shared else workers, self.layout.total
        count, *shape = (
            parameters.shape
            if isinstance(parameters, Tensor)
            else (len(parameters), *(size for row in parameters[:1] for size in row.shape))
        )
        if count != versions or shape != [total]:
            raise ValueError(
                f"{count} parameter vectors of shape {tuple(shape)} where {workers} workers need "
                f"{versions} of {total}"
            )
        if out is not None and out.shape != (workers, total):
            raise ValueError(f"gradients {(workers, total)} do not go into {tuple(out.shape)}")
        return self._blocks.compute(parameters, self._filling(indices, moves), workers, out, shared)

    def _filling(self, indices: Tensor, moves: Tensor | None) -> Fill:
        if indices.shape != (indices.shape[0], self._batch_size):
            raise ValueError(
                f"indices {tuple(indices.shape)} are no batches of the {self._batch_size} announced"
            )
        workers, chosen = len(indices), indices.to(self.device, non_blocking=True)
        changes = None if moves is None else moves.to(self.device, non_blocking=True)

        def fill(to_images: Tensor, to_labels: Tensor, part: slice) -> None:
            # A slice is made only if the part is not all workers, because it takes time.
            every = part.stop - part.start == workers
            own = (chosen if every else chosen[part]).flatten()
            torch.index_select(self._images, 0, own, out=to_images.flatten(0, 1))
            torch.index_select(self._labels, 0, own, out=to_labels.flatten())
            if changes is not None:
                images = to_images.flatten(0, 1)
                images.copy_(self._augmentation.applied(images, changes[part].flatten(0, 1)))

        return fill

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

from testbed.learning.batched.blocks import CachedBlocks, Fill, Model, Parameters
from testbed.learning.batched.replay import PaddedBlocks
from testbed.learning.models import IMAGE, structure
from testbed.updates import Layout


class BatchedLearner:
    """A model whose gradient is computed for many workers at a time.

    Losses are valid until the next call, and so are gradients, unless memory for them was given.

    Attributes:
        layout: the position of each tensor in a flat parameter vector.
        device: the device that computes and holds parameters and results.
    """

    layout: Layout
    device: torch.device

    def __init__(
        self,
        model: str | nn.Module,
        batch_size: int,
        device: str = "cpu",
        padded: bool = False,
    ) -> None:
        """Prepare a model; the first call of each size allocates its memory.

        Args:
            model: a name in ``MODELS``, or a module of the same kind (its values are not read).
            batch_size: b, images per worker.
            device: torch's name of it.
            padded: compute in padded blocks even on a processor, as on an accelerator.
        """
        torch.set_num_threads(1)
        self.device = torch.device(device)
        if self.device.type == "cuda":
            # TF32 cuts factors to ten bits, more than rounding; atomics differ from run to run.
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.deterministic = True
        module = structure(model) if isinstance(model, str) else model
        parts = Model.of(module, batch_size, self.device)
        self.layout = parts.layout
        self._batch_size = batch_size
        padded = padded or self.device.type != "cpu"
        self._blocks = PaddedBlocks(parts) if padded else CachedBlocks(parts)
        self._attached: tuple[Tensor, Tensor] | None = None

    def attach(self, images: Tensor, labels: Tensor) -> None:
        """Keep a dataset on the device, for ``gradients_of`` and ``shared_of``.

        Args:
            images: float32, (N, 1, 28, 28).
            labels: int64, (N,).
        """
        self._attached = images.to(self.device).contiguous(), labels.to(self.device).contiguous()

    def gradients(
        self, parameters: Parameters, images: Tensor, labels: Tensor, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return each worker's gradient of the mean cross-entropy of its batch, at its own parameters.

        Args:
            parameters: float32, on the device: (m, |Θ|) with contiguous rows, or m vectors (|Θ|,), in
                which a version may occur more than once.
            images: float32, (m, b, 1, 28, 28), on the device or not.
            labels: int64, (m, b), likewise.
            out: float32, (m, |Θ|), on the device, rows contiguous: memory for the gradients.

        Returns:
            float32, (m, |Θ|), ``out`` if it was given; and the losses, float32, (m,).

        Raises:
            ValueError: the shapes do not match.
        """
        return self._compute(parameters, self._given(images, labels), images.shape[0], out, False)

    def shared(
        self, parameters: Tensor, images: Tensor, labels: Tensor, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return ``gradients`` where all workers have one version, of shape (|Θ|,)."""
        one = parameters.unsqueeze(0)
        return self._compute(one, self._given(images, labels), images.shape[0], out, True)

    def gradients_of(
        self, parameters: Parameters, indices: Tensor, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return ``gradients`` on images of the attached dataset.

        Args:
            parameters: as for ``gradients``.
            indices: int64, (m, b), on the device or not: the images' indices.
            out: as for ``gradients``.

        Raises:
            ValueError: no dataset is attached, or the shapes do not match.
        """
        return self._compute(parameters, self._drawn(indices), indices.shape[0], out, False)

    def shared_of(
        self, parameters: Tensor, indices: Tensor, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return ``shared`` on images of the attached dataset; see ``gradients_of``."""
        one = parameters.unsqueeze(0)
        return self._compute(one, self._drawn(indices), indices.shape[0], out, True)

    def _compute(
        self, parameters: Parameters, fill: Fill, workers: int, out: Tensor | None, shared: bool
    ) -> tuple[Tensor, Tensor]:
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
        return self._blocks.compute(parameters, fill, workers, out, shared)

    def _given(self, images: Tensor, labels: Tensor) -> Fill:
        batches = (labels.shape[0], self._batch_size)
        if images.shape != (*batches, *IMAGE) or labels.shape != batches:
            raise ValueError(
                f"images {tuple(images.shape)} with labels {tuple(labels.shape)} are no batches "
                f"of the {self._batch_size} announced"
            )

        def fill(to_images: Tensor, to_labels: Tensor, part: slice) -> None:
            to_images.copy_(_part(images, part), non_blocking=True)
            to_labels.copy_(_part(labels, part), non_blocking=True)

        return fill

    def _drawn(self, indices: Tensor) -> Fill:
        if self._attached is None:
            raise ValueError("no dataset is attached to draw from; call attach first")
        if indices.shape != (indices.shape[0], self._batch_size):
            raise ValueError(
                f"indices {tuple(indices.shape)} are no batches of the {self._batch_size} announced"
            )
        images, labels = self._attached
        drawn = indices.to(self.device, non_blocking=True)

        def fill(to_images: Tensor, to_labels: Tensor, part: slice) -> None:
            which = _part(drawn, part).flatten()
            torch.index_select(images, 0, which, out=to_images.flatten(0, 1))
            torch.index_select(labels, 0, which, out=to_labels.flatten())

        return fill


def _part(values: Tensor, workers: slice) -> Tensor:
    """Return some workers' values; a slice is made only if they are not all, because it takes time."""
    return values if workers.stop - workers.start == values.shape[0] else values[workers]

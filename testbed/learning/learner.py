"""A model on one device: its parameters, its gradient on a mini-batch, its accuracy.

Parameters and gradient are each one flat float32 buffer that lives as long as the learner: a socket
receives straight into ``parameters``, and the result of ``gradient`` is sent as it is. ``fastgrad``
computes between them, without autograd for common layers; here a model has a name, its buffers follow
a rule, and evaluations and the run's loss are added.

A learner computes in one thread and never starts another: it is made in a forked child, and two
hundred of them share a few cores.
"""

import copy
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fastgrad.gradient import Gradient
from fastgrad.workers.gradients import WorkersGradients
from testbed.learning import buffers as rules
from testbed.learning.buffers import Buffers
from testbed.learning.data.augmentation import NONE, Augmentation
from testbed.learning.data.datasets import Dataset
from testbed.learning.data.raw import Array
from testbed.learning.inputs import GREY_28, Inputs
from testbed.learning.losses import CROSS_ENTROPY, Evaluated, Loss, single
from testbed.learning.models import Model, drawn, layout_of, structure
from testbed.nodes.shared_memory import in_large_pages, shared_memory
from testbed.updates import FloatVector, Layout

OwnBuffers: TypeAlias = tuple[Array, ...]
"""A device's own buffers, in the order of ``named_buffers``."""


class Learner:
    """A model with its parameters and gradient in flat buffers.

    Attributes:
        parameters: float32, shape (|Θ|,), each tensor in C order; write new values into it in place.
            Shared buffers follow the parameters.
        layout: the position of each tensor in it.
        statistics: the part of the vector that is shared buffers; its gradient is β − β′
            (``testbed.learning.buffers``), which the caller divides by the learning rate.
        own_buffers: where each device has its own: those that the next gradient begins with, and after
            it those that it has left; None: as the constructor made them.
    """

    parameters: FloatVector
    layout: Layout
    statistics: slice
    own_buffers: OwnBuffers | None = None

    def __init__(
        self,
        model: str | Model | nn.Module,
        batch_size: int,
        autograd: bool = False,
        *,
        inputs: Inputs = GREY_28,
        buffers: Buffers = "none",
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        """Make a model whose parameters are all zero.

        Args:
            model: a name in ``MODELS``, a chosen model, or a module of the same kind (values are read
                only of its buffers).
            batch_size: b, the number of images that ``gradient`` takes.
            autograd: run on autograd even if the fast path supports the model.
            inputs: the images, and the classes, that a named model is made for.
            buffers: the rule about the module's buffers.
            loss: what gradients are taken of; all but classification run on autograd.
        """
        torch.set_num_threads(1)
        module = _made(model, inputs, buffers)
        self.layout = layout_of(module, buffers)
        self._model, self._inputs, self._buffers, self._loss = model, inputs, buffers, loss
        self._batch_size, self._autograd = batch_size, autograd
        self._computed = Gradient(
            module,
            inputs.image,
            batch_size,
            buffers=tuple(rules.shared_by(module, buffers)),
            loss=None if loss.is_classification else lambda *both: single(loss.mean(*both)),
            autograd=autograd,
        )
        self.parameters: FloatVector = self._computed.values.numpy()
        self._gradient: FloatVector = self._computed.gradient.numpy()
        self.statistics = slice(self.layout.parameters, self.layout.total)
        self._evaluation: tuple[int, Callable[[Tensor], Tensor]] | None = None

    def twin(self) -> "Learner":
        """Return a learner of the same model, with memory of its own."""
        model = copy.deepcopy(self._model) if isinstance(self._model, nn.Module) else self._model
        return Learner(
            *(model, self._batch_size, self._autograd),
            inputs=self._inputs,
            buffers=self._buffers,
            loss=self._loss,
        )

    def share_memory(self) -> None:
        """Move parameters, gradient and scratch memory to memory that forked processes share.

        Processes that take turns with one learner find its 7 MB (for the CNN) in the caches, and
        need no pages of their own. The caller decides which process may use it; that process first
        writes all that a gradient reads, unless it is the same for all processes.

        ``parameters`` is another array afterwards, with the same values.

        Raises:
            OSError: the host has no memory left.
        """
        in_large_pages(self._computed.move(shared_memory))
        # Arrays still refer to the old memory.
        self.parameters = self._computed.values.numpy()
        self._gradient = self._computed.gradient.numpy()

    @property
    def fast(self) -> bool:
        """True if the gradient is computed without autograd."""
        return self._computed.fast

    def gradient(
        self,
        images: Array,
        labels: Array,
        seed: int | None = None,
    ) -> tuple[FloatVector, float]:
        """Return the gradient of the mean loss at ``parameters``, and that loss.

        Args:
            images: float32, (b, channels, height, width), or other examples.
            labels: int64, (b,), or other targets.
            seed: of torch's generator, from which random layers draw; None where there are none.

        Returns:
            float32, (|Θ|,), the same buffer at every call; and the loss.

        Raises:
            ValueError: the batch does not have ``batch_size`` images.
        """
        if seed is not None and not self.fast:
            torch.default_generator.manual_seed(seed)
        own = None if self.own_buffers is None else list(map(torch.from_numpy, self.own_buffers))
        loss = self._computed.compute(torch.from_numpy(images), torch.from_numpy(labels), own)
        if self._buffers == "per-worker" and not self.fast:
            self.own_buffers = tuple(one.numpy().copy() for one in self._computed.others)
        return self._gradient, loss

    def evaluate(
        self,
        images: Array,
        labels: Array,
        batch: int = 50,
    ) -> Evaluated:
        """Return the accuracy in percent, the mean loss and the run's measure at ``parameters``.

        Args:
            images: float32, (N, channels, height, width), or other examples; N ≥ 1.
            labels: int64, (N,), or other targets.
            batch: images at a time; a greater number takes more memory and is hardly faster.
        """
        if self._evaluation is None or self._evaluation[0] != batch:
            self._evaluation = batch, self._computed.outputs(batch)
        outputs_of, module = self._evaluation[1], self._computed.module
        totals = self._loss.total()
        module.eval()
        if self._buffers == "per-worker":
            rules.by_batch(module)
        if not self.fast:
            torch.default_generator.manual_seed(0)  # a layer may draw in an evaluation, too
        with torch.inference_mode():
            self._computed.set_buffers()
            for start in range(0, len(images), batch):
                some = torch.from_numpy(images[start : start + batch])
                truth = torch.from_numpy(labels[start : start + batch])
                totals.add(outputs_of(some), truth)
        module.train()
        return totals.result()


def workers_gradients(
    model: str | Model | nn.Module,
    batch_size: int,
    dataset: Dataset,
    device: str = "cpu",
    *,
    buffers: Buffers = "none",
    augmentation: Augmentation = NONE,
) -> WorkersGradients:
    """Make what computes the gradients of many workers together; each is that of a ``Learner``.

    Args:
        model: as a learner's.
        batch_size: b, images per worker.
        dataset: whose training images the workers draw from.
        device: torch's name of the device that computes.
        buffers: the rule about the module's buffers: none, or shared.
        augmentation: how images are changed, if moves are given.
    """
    torch.set_num_threads(1)
    module = _made(model, dataset.inputs, buffers)
    return WorkersGradients(
        module,
        batch_size,
        torch.from_numpy(dataset.train_images),
        torch.from_numpy(dataset.train_labels),
        device=device,
        buffers=tuple(rules.shared_by(module, buffers)),
        change=augmentation.applied,
    )


def _made(model: str | Model | nn.Module, inputs: Inputs, buffers: Buffers) -> nn.Module:
    """Make a model's module, prepared for the rule about its buffers; with values if it has any."""
    module = model if isinstance(model, nn.Module) else structure(model, inputs)
    rules.prepare(module, buffers)
    if not isinstance(model, nn.Module) and any(True for _ in module.buffers()):
        module = drawn(model, inputs, seed=0)  # buffers need values, those of all devices
        rules.prepare(module, buffers)
    return module

"""A model on one device: its parameters, its gradient on a mini-batch, its accuracy.

Parameters and gradient are each one flat float32 buffer that lives as long as the learner: a socket
receives straight into ``parameters``, and the result of ``gradient`` is sent as it is. No tensor is
copied in between. A model that ``testbed.learning.fast.chain`` supports runs there; any other model
runs on autograd, on views of the same buffers.

A gradient depends on nothing but the parameters, the mini-batch and, for models with random layers, the
seed that comes with it: whatever else a module keeps is set anew before each computation.

A learner computes in one thread and never starts another: it is made in a forked child, and two
hundred of them share a few cores. The buffers have the same alignment in every process (64 bytes),
because the last bit of the matrix library's result may depend on it.
"""

import copy
from typing import TypeAlias

import torch
from torch import nn

from testbed.learning import buffers as rules
from testbed.learning.buffers import Buffers
from testbed.learning.contiguous import move
from testbed.learning.data.raw import Array
from testbed.learning.fast import inference
from testbed.learning.fast.chain import Chain, build
from testbed.learning.fast.inference import Inference
from testbed.learning.fast.layers import Slot
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
        module = model if isinstance(model, nn.Module) else structure(model, inputs)
        rules.prepare(module, buffers)
        if not isinstance(model, nn.Module) and any(True for _ in module.buffers()):
            module = drawn(model, inputs, seed=0)  # buffers need values, those of all devices
            rules.prepare(module, buffers)
        named = dict(module.named_parameters())
        self.layout = layout_of(module, buffers)
        self._model, self._inputs, self._buffers, self._loss = model, inputs, buffers, loss
        values, gradient = torch.zeros(self.layout.total), torch.zeros(self.layout.total)
        self._values, self._flat_gradient = values, gradient
        self.parameters = values.numpy()
        self._gradient: FloatVector = gradient.numpy()
        self._slots = {
            name: Slot(values[part].view(p.shape), gradient[part].view(p.shape))
            for (name, p), part in zip(named.items(), self.layout.slices, strict=False)
        }
        self._put_buffers_aside(module, buffers)
        self._module = module
        self._batch_size = batch_size
        self._autograd = autograd
        self._training = self._chain()
        self._evaluation: tuple[int, Inference | None] | None = None
        if self._training is None:
            for name, slot in self._slots.items():
                _put(module, name, slot)

    def _put_buffers_aside(self, module: nn.Module, buffers: Buffers) -> None:
        """Note where the shared buffers are in the flat vector, and what all others are like."""
        shared = rules.shared_by(module, buffers)
        parts = self.layout.slices[len(self.layout.slices) - len(shared) :]
        self._shared = list(zip(shared.values(), parts, strict=True))
        self._constant = [
            (one, one.clone()) for name, one in module.named_buffers() if name not in shared
        ]
        start = parts[0].start if parts else self.layout.total
        self.statistics = slice(start, self.layout.total)

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
        tensors = [self._values, self._flat_gradient]
        for slot in self._slots.values():
            tensors += (slot.value, slot.gradient)
        if self._training is not None:
            tensors += self._training.tensors()
        in_large_pages(move(tensors, shared_memory))
        if self._training is None:
            for name, slot in self._slots.items():
                _put(self._module, name, slot)
        # Arrays still refer to the old memory.
        self.parameters = self._values.numpy()
        self._gradient = self._flat_gradient.numpy()

    @property
    def fast(self) -> bool:
        """True if the gradient is computed without autograd."""
        return self._training is not None

    def _chain(self) -> Chain | None:
        shape = (self._batch_size, *self._inputs.image)
        if self._autograd or not self._loss.is_classification:
            return None
        return build(self._module, shape, self._slots)

    def _inference(self, batch: int) -> Inference | None:
        shape = (batch, *self._inputs.image)
        return None if self._autograd else inference.build(self._module, shape, self._slots)

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
        if len(images) != self._batch_size:
            raise ValueError(f"a batch of {len(images)} where {self._batch_size} were announced")
        chain = self._training
        if chain is None:
            return self._gradient, self._by_autograd(images, labels, seed)
        with torch.inference_mode():
            chain.images.copy_(torch.from_numpy(images))
            chain.labels[:, 0].copy_(torch.from_numpy(labels))
            chain.forward()
            loss = chain.loss()
            chain.backward()
        return self._gradient, loss

    def _by_autograd(
        self,
        images: Array,
        labels: Array,
        seed: int | None,
    ) -> float:
        self._flat_gradient.zero_()  # backward adds to existing gradients
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        self._set_buffers(self.own_buffers)
        outputs = self._module(torch.from_numpy(images))
        loss = single(self._loss.mean(outputs, torch.from_numpy(labels)))
        loss.backward()  # type: ignore[no-untyped-call]
        for buffer, part in self._shared:
            torch.sub(self._values[part], buffer.flatten(), out=self._flat_gradient[part])
        if self._buffers == "per-worker":
            self.own_buffers = tuple(one.numpy().copy() for one, _ in self._constant)
        return float(loss.detach())

    def _set_buffers(self, own: OwnBuffers | None = None) -> None:
        """Set the module's buffers as they are in the flat vector, a device's own, or as made."""
        for buffer, part in self._shared:
            buffer.copy_(self._values[part].view(buffer.shape))
        for buffer, made in self._constant:
            buffer.copy_(made)
        for (buffer, _), value in zip(self._constant, own or (), strict=False):
            buffer.copy_(torch.from_numpy(value))

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
            self._evaluation = batch, self._inference(batch)
        logits_of = self._evaluation[1] or self._module
        totals = self._loss.total()
        self._module.eval()
        if self._buffers == "per-worker":
            rules.by_batch(self._module)
        if self._training is None:
            torch.default_generator.manual_seed(0)  # a layer may draw in an evaluation, too
        with torch.inference_mode():
            self._set_buffers()
            for start in range(0, len(images), batch):
                some = torch.from_numpy(images[start : start + batch])
                truth = torch.from_numpy(labels[start : start + batch])
                totals.add(logits_of(some), truth)
        self._module.train()
        return totals.result()


def _put(module: nn.Module, name: str, slot: Slot) -> None:
    """Make a module's parameter a view of the flat buffers."""
    *path, last = name.split(".")
    parameter = nn.Parameter(slot.value)
    parameter.grad = slot.gradient
    setattr(module.get_submodule(".".join(path)), last, parameter)

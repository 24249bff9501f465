"""A module's gradient on one mini-batch, from one flat vector into another.

A module that ``chain`` supports is computed there; any other runs on autograd, on views of the same
vectors. A gradient depends on nothing but the values in the vector, the mini-batch and what torch's
generator gives to random layers: whatever else a module keeps is set anew before each computation. On
one thread the same input gives the same bits, in every process: the vectors are aligned (64 bytes),
because the last bit of the matrix library's result may depend on it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fastgrad import inference
from fastgrad.chain import build
from fastgrad.vector import Slot, Vector

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""A function of outputs and targets that returns the mean over a mini-batch, a tensor of one value."""
_ALIGNED = 64
"""Bytes of a cache line, at whose multiples torch's own memory begins, too."""


class Gradient:
    """The gradient of a module's mean loss on one mini-batch.

    Attributes:
        module: what is computed.
        vector: the positions of its tensors in the flat vectors.
        values: float32, (|Θ|,), all zero at first: the caller writes the parameters here.
        gradient: float32, (|Θ|,): written by ``compute``. That of a buffer is β − β′, with its value β
            before the computation and β′ after it.
        others: the module's buffers that are not in the vector, as the last computation left them.
    """

    def __init__(
        self,
        module: nn.Module,
        example: Sequence[int],
        batch_size: int,
        *,
        buffers: Sequence[str] = (),
        loss: Loss | None = None,
        autograd: bool = False,
    ) -> None:
        """Allocate the vectors.

        Args:
            module: only its structure is read, and the values of its buffers; it may be on the meta
                device if it has none. Its parameters become views of ``values`` on autograd.
            example: the shape of one example: (channels, height, width) of an image.
            batch_size: b, the number of examples that ``compute`` takes.
            buffers: the names of buffers that follow the parameters in the vector.
            loss: what the gradient is taken of; None: the mean cross-entropy of logits, (b, classes),
                and labels, (b,). Any other loss runs on autograd.
            autograd: run on autograd even if the module is supported without.
        """
        self.module, self._example, self._batch_size = module, tuple(example), batch_size
        self.vector = Vector.of(module, buffers)
        self.values = torch.zeros(self.vector.total)
        self.gradient = torch.zeros(self.vector.total)
        values, gradients = map(self.vector.views, (self.values[None], self.gradient[None]))
        self._slots = {name: Slot(values[name][0], gradients[name][0]) for name in values}
        self._moving = [(module.get_buffer(name), self._slots[name]) for name in buffers]
        self.others = tuple(one for name, one in module.named_buffers() if name not in buffers)
        self._made = [one.clone() for one in self.others]
        self._loss = loss or nn.functional.cross_entropy
        self._autograd = autograd
        on_chain = loss is None and not autograd
        self._chain = build(module, (batch_size, *self._example), self._slots) if on_chain else None
        self._put_into_module()

    @property
    def fast(self) -> bool:
        """True if the gradient is computed without autograd."""
        return self._chain is not None

    def move(self, memory: Callable[[int], memoryview]) -> memoryview:
        """Move the vectors, and all memory that ``compute`` writes without autograd, into one block.

        Args:
            memory: returns a block of so many bytes, for example such as forked processes share; this
                method returns it.
        """
        tensors = [self.values, self.gradient]
        for slot in self._slots.values():
            tensors += (slot.value, slot.gradient)
        if self._chain is not None:
            tensors += self._chain.tensors()
        block = move(tensors, memory)
        self._put_into_module()
        return block

    def _put_into_module(self) -> None:
        """Make the module's parameters views of the vectors, if it runs on autograd."""
        if self._chain is None:
            for name, _ in list(self.module.named_parameters()):
                _put(self.module, name, self._slots[name])

    def compute(
        self, examples: Tensor, targets: Tensor, others: Sequence[Tensor] | None = None
    ) -> float:
        """Compute ``gradient`` at ``values``, and return the mean loss.

        Args:
            examples: float32, (b, channels, height, width), or others.
            targets: int64, (b,), or others.
            others: what the buffers outside the vector hold before; None: as the module was made.

        Raises:
            ValueError: the batch does not have ``batch_size`` examples.
        """
        if len(examples) != self._batch_size:
            raise ValueError(f"a batch of {len(examples)} where {self._batch_size} were announced")
        if self._chain is None:
            return self._by_autograd(examples, targets, others)
        with torch.inference_mode():
            self._chain.images.copy_(examples)
            self._chain.labels[:, 0].copy_(targets)
            self._chain.forward()
            loss = self._chain.loss()
            self._chain.backward()
        return loss

    def _by_autograd(
        self, examples: Tensor, targets: Tensor, others: Sequence[Tensor] | None
    ) -> float:
        self.gradient.zero_()  # backward adds to existing gradients
        self.set_buffers(others)
        loss = self._loss(self.module(examples), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        for buffer, slot in self._moving:
            torch.sub(slot.value, buffer, out=slot.gradient)
        return float(loss.detach())

    def set_buffers(self, others: Sequence[Tensor] | None = None) -> None:
        """Set the module's buffers: from ``values``, and all others as given or as they were made."""
        for buffer, slot in self._moving:
            buffer.copy_(slot.value)
        for buffer, value in zip(self.others, others or self._made, strict=True):
            buffer.copy_(value)

    def outputs(self, batch: int) -> Callable[[Tensor], Tensor]:
        """Return a function that gives the outputs, at ``values``, of up to ``batch`` examples.

        It is ``inference``'s where that supports the module, and else the module, whose buffers and
        mode (training or evaluation) are the caller's to set.
        """
        shape = (batch, *self._example)
        fast = None if self._autograd else inference.build(self.module, shape, self._slots)
        return fast or self.module


def _put(module: nn.Module, name: str, slot: Slot) -> None:
    """Make a module's parameter a view of the vectors."""
    *path, last = name.split(".")
    parameter = nn.Parameter(slot.value)
    parameter.grad = slot.gradient
    setattr(module.get_submodule(".".join(path)), last, parameter)


def move(tensors: Iterable[Tensor], memory: Callable[[int], memoryview]) -> memoryview:
    """Move tensors in place, so that all that refer to them go on with the new memory.

    Args:
        tensors: none may require a gradient; a view that is not among them keeps the old memory.
        memory: returns a block of so many bytes, writable; this function returns it.
    """
    distinct = {id(one): one for one in tensors}.values()
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in distinct}
    places, size = {}, 0
    for start, storage in storages.items():
        places[start] = size
        size += -(-storage.nbytes() // _ALIGNED) * _ALIGNED
    block = memory(size)
    storage_of_all = torch.frombuffer(block, dtype=torch.uint8).untyped_storage()
    for start, storage in storages.items():
        storage_of_all[places[start] : places[start] + storage.nbytes()].copy_(storage)
    with torch.no_grad():
        for one in distinct:
            place = places[one.untyped_storage().data_ptr()] // one.element_size()
            offset = place + one.storage_offset()
            one.set_(storage_of_all, offset, one.shape, one.stride())
    return block

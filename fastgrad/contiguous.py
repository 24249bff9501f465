"""Moving tensors, with all that are views of the same memory, into one block of memory."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

_ALIGNED = 64
"""Bytes of a cache line, at whose multiples torch's own memory begins, too."""


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

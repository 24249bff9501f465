"""Tensors that move into one block of memory."""

import numpy as np
import torch

from fastgrad.gradient import move


def test_all_views_go_on_with_the_new_memory() -> None:
    base = torch.arange(24.0)
    view, turned = base[4:16].view(3, 4), base.view(4, 6).t()
    whole = torch.tensor([1, 2, 3])
    blocks: list[bytearray] = []

    def memory(size: int) -> memoryview:
        blocks.append(bytearray(size))
        return memoryview(blocks[0])

    kept = view.clone(), turned.clone(), whole.clone()
    move([view, base, turned, whole, view], memory)
    assert all(torch.equal(one, two) for one, two in zip((view, turned, whole), kept, strict=True))
    base.fill_(5.0)
    whole[1] = 9
    assert view.eq(5).all()
    assert turned.eq(5).all()
    assert np.frombuffer(blocks[0], np.float32, 24).tolist() == [5.0] * 24
    assert np.frombuffer(blocks[0], np.int64, 3, 128).tolist() == [1, 9, 3]

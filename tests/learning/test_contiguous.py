"""Tensors that move into one block, and learners whose memory forked processes share."""

import os

import numpy as np
import pytest
import torch

from testbed.learning.contiguous import move
from testbed.learning.learner import Learner


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


@pytest.mark.parametrize("model", ["mlp", "cnn", "cnn-5x5", "cnn-small"])
@pytest.mark.parametrize("autograd", [False, True])
def test_a_shared_learner_computes_the_same_bits_and_its_parent_reads_them(
    model: str, autograd: bool
) -> None:
    drawn = np.random.default_rng(1)
    own = Learner(model, 10, autograd=autograd)
    shared = own.twin()
    shared.share_memory()
    own.parameters[:] = 0.1 * drawn.standard_normal(own.layout.total, np.float32)
    images = drawn.standard_normal((10, 1, 28, 28), np.float32)
    labels = drawn.integers(0, 10, 10)
    child = os.fork()
    if not child:
        shared.parameters[:] = own.parameters
        shared.gradient(images, labels, 3)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(shared.parameters, own.parameters)
    expected, loss = own.gradient(images, labels, 3)
    # What the child computed is here: nothing of it was written to memory of its own.
    assert np.array_equal(shared._gradient, expected)
    again, loss_again = shared.gradient(images, labels, 3)
    assert np.array_equal(again, expected)
    assert loss_again == loss

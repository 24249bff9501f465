"""Augmentation: each change against its definition, and all changes equally often."""

import numpy as np
import torch

from testbed.learning.data.augmentation import NONE, Augmentation
from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import load
from testbed.random_streams import stream


def test_each_move_is_the_cut_of_the_padded_image() -> None:
    rule = Augmentation(crop=2, flip=True)
    images = np.random.default_rng(0).random((50, 3, 6, 5), dtype=np.float32)
    moves = rule.draw(50, np.random.default_rng(1))
    changed = images.copy()
    rule.apply(changed, moves)
    for before, after, (row, column, mirrored) in zip(images, changed, moves, strict=True):
        padded = np.pad(before, ((0, 0), (2, 2), (2, 2)))
        cut = padded[:, row : row + 6, column : column + 5]
        np.testing.assert_array_equal(after, cut[..., ::-1] if mirrored else cut)
    together = rule.applied(torch.from_numpy(images), torch.from_numpy(moves))
    np.testing.assert_array_equal(together.numpy(), changed)


def test_all_moves_are_drawn_equally_often() -> None:
    moves = Augmentation(crop=1, flip=True).draw(9000, np.random.default_rng(1))
    kinds, counts = np.unique(moves, axis=0, return_counts=True)
    assert len(kinds) == 18
    assert 400 < counts.min() < counts.max() < 600
    only_flip = Augmentation(flip=True).draw(100, np.random.default_rng(1))
    assert only_flip[:, :2].max() == 0 < only_flip[:, 2].max()
    assert Augmentation(crop=3).draw(100, np.random.default_rng(1))[:, 2].max() == 0
    assert not NONE


def test_augmented_batches_have_the_images_of_plain_ones() -> None:
    dataset, shard = load("digits"), np.arange(100)
    plain = Batches(dataset, shard, 10, stream(1, "batches"))
    changing = Batches(
        *(dataset, shard, 10, stream(1, "batches")),
        augmentation=Augmentation(crop=2),
        moves=stream(1, "augmentation"),
    )
    for _ in range(3):
        drawn, draw = plain.draw(), changing.draw()
        np.testing.assert_array_equal(drawn.images, draw.images)
        images, labels = plain.gather(drawn)
        again, same = changing.gather(draw)
        np.testing.assert_array_equal(labels, same)
        assert not np.array_equal(images, again)
    before = dataset.train_images.copy()
    changing.next()
    np.testing.assert_array_equal(before, dataset.train_images)  # only the copy is changed
    position = changing.position
    first = changing.draw()
    changing.reposition(position)
    moves = changing.draw().moves
    assert moves is not None
    np.testing.assert_array_equal(moves, first.moves)

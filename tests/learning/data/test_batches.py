"""Mini-batches: distinct images of the shard, all equally often, in the order of the stream.

Dealt ones are all images once in each epoch, in an order of the seed.
"""

import numpy as np
import pytest

from testbed.errors import SpecError
from testbed.learning.data.batches import Batches, dealt
from testbed.learning.data.datasets import load
from testbed.random_streams import stream


def test_batches_hold_distinct_images_of_the_shard() -> None:
    dataset = load("digits")
    shard = np.arange(300, 340)
    batches = Batches(dataset, shard, 10, stream(1, "batches", 3))
    index = {dataset.train_images[i].tobytes(): i for i in shard}
    assert len(index) == 40
    seen = []
    for _ in range(200):
        images, labels = batches.next()
        assert images.shape == (10, 1, 28, 28)
        at = [index[image.tobytes()] for image in images]
        assert len(set(at)) == 10
        np.testing.assert_array_equal(labels, dataset.train_labels[at])
        seen += at
    # 2,000 draws of 40 images: 50 each; one binomial in a million is this far off
    assert np.bincount(seen, minlength=340)[300:].min() > 20
    assert np.bincount(seen, minlength=340)[300:].max() < 85


def test_a_batch_as_large_as_the_shard_is_the_shard() -> None:
    dataset = load("digits")
    batches = Batches(dataset, np.arange(5), 5, stream(1, "batches"))
    images, _ = batches.next()
    assert {i.tobytes() for i in images} == {i.tobytes() for i in dataset.train_images[:5]}


def test_equal_streams_give_equal_batches() -> None:
    dataset = load("digits")
    one, same, other = (
        Batches(dataset, np.arange(1000), 10, stream(1, "batches", device)) for device in (3, 3, 4)
    )
    np.testing.assert_array_equal(one.next()[0], same.next()[0])
    np.testing.assert_array_equal(one.next()[0], same.next()[0])
    assert not np.array_equal(one.next()[0], other.next()[0])


def test_a_batch_larger_than_the_shard_is_refused() -> None:
    with pytest.raises(SpecError, match="batch of 10 images cannot be drawn from a worker's 7"):
        Batches(load("digits"), np.arange(7), 10, stream(1, "batches"))


def test_an_epoch_has_each_image_once_and_each_epoch_its_own_order() -> None:
    epochs = [[dealt(25, 4, 3, 6 * epoch + i) for i in range(6)] for epoch in range(2)]
    for epoch in epochs:
        together = np.concatenate(epoch)
        assert len(set(together.tolist())) == len(together) == 24
        assert 0 <= together.min() <= together.max() < 25
    assert not np.array_equal(epochs[0], epochs[1])
    np.testing.assert_array_equal(dealt(25, 4, 3, 7), epochs[1][1])
    assert not np.array_equal(dealt(25, 4, 4, 7), epochs[1][1])


def test_devices_draw_what_they_are_dealt() -> None:
    dataset = load("digits")
    one, other = (
        Batches(dataset, np.arange(1442), 10, stream(5, "batches", device), dealt_by=5)
        for device in range(2)
    )
    for number in (3, 200, 0):
        np.testing.assert_array_equal(one.draw(number).images, dealt(1442, 10, 5, number))
        np.testing.assert_array_equal(other.draw(number).images, dealt(1442, 10, 5, number))

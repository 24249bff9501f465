"""Mini-batches: distinct images of the shard, all equally often, in the order of the stream."""

import numpy as np
import pytest

from testbed.errors import SpecError
from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import load
from testbed.streams import stream


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

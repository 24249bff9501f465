"""The stream of mini-batches: all images once in each epoch, in an order of the seed."""

import numpy as np

from testbed.learning.data.batches import Batches
from testbed.learning.data.datasets import load
from testbed.learning.data.dealing import dealt
from testbed.streams import stream


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

"""One stream of mini-batches for all devices, dealt to whichever device is sent parameters next.

In each epoch, all training images are in a new random order, cut into mini-batches; the images that
make up no whole one are left out of that epoch. A mini-batch depends on nothing but the seed and its
number, so that a device needs only the number, which comes with the parameters.
"""

import functools

import numpy as np
import numpy.typing as npt

from testbed.streams import stream


def dealt(images: int, batch_size: int, seed: int, number: int) -> npt.NDArray[np.int64]:
    """Return the indices of a mini-batch's images, int64, (batch_size,).

    Args:
        images: the number of training images, at least ``batch_size``.
        seed: the experiment's seed.
        number: the mini-batch's, from 0.
    """
    epoch, at = divmod(number, images // batch_size)
    return _order(images, seed, epoch)[at * batch_size : (at + 1) * batch_size]


@functools.lru_cache(maxsize=2)  # devices near the end of an epoch are in two
def _order(images: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    return stream(seed, "stream of mini-batches", epoch).permutation(images).astype(np.int64)

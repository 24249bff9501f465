"""Mini-batches of one worker's shard.

Each batch is drawn without replacement within itself and independently of other batches, from the
worker's own stream. Every ``next`` overwrites the same arrays, so that drawing allocates no memory.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import SpecError
from testbed.learning.data.datasets import Dataset


class Batches:
    """An endless supply of random mini-batches of a shard.

    Attributes:
        shard: int64, indices of the images to draw from.
    """

    def __init__(
        self,
        dataset: Dataset,
        shard: npt.NDArray[np.int64],
        batch_size: int,
        generator: np.random.Generator,
        memory: "Batches | None" = None,
    ) -> None:
        """Prepare to draw.

        Args:
            dataset: its training images are drawn.
            shard: int64, indices of the images that this worker has.
            batch_size: b, images per batch.
            generator: the worker's stream for this purpose.
            memory: an object whose arrays are used, so that thousands of workers need no others.

        Raises:
            SpecError: the shard holds fewer images than a batch.
        """
        if batch_size > len(shard):
            raise SpecError(
                f"a batch of {batch_size} images cannot be drawn from a worker's {len(shard)}; use "
                "a smaller batch_size, fewer workers or more training images"
            )
        self._dataset = dataset
        self.shard = shard
        self._generator = generator
        if memory is None:
            shape = (batch_size, *dataset.train_images.shape[1:])
            self._images = np.empty(shape, dtype=np.float32)
            self._labels = np.empty(batch_size, dtype=np.int64)
        else:
            self._images, self._labels = memory._images, memory._labels

    def draw(self) -> npt.NDArray[np.int64]:
        """Draw a batch; return its images' indices, int64 (b,)."""
        drawn = self._generator.choice(
            len(self.shard), len(self._labels), replace=False, shuffle=False
        )
        at: npt.NDArray[np.int64] = self.shard[drawn]
        return at

    @property
    def position(self) -> Mapping[str, Any]:
        """The state of the random stream, in plain values."""
        return self._generator.bit_generator.state

    def reposition(self, position: Mapping[str, Any]) -> None:
        """Continue drawing at the ``position`` of another object."""
        self._generator.bit_generator.state = position

    def gather(
        self, at: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return the images, float32 (b, 1, 28, 28), and labels, int64 (b,), of these indices.

        Both arrays are overwritten by the next call.
        """
        # mode="clip" writes straight into ``out``; the default mode makes a copy first.
        np.take(self._dataset.train_images, at, axis=0, out=self._images, mode="clip")
        np.take(self._dataset.train_labels, at, out=self._labels, mode="clip")
        return self._images, self._labels

    def next(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Draw a batch and return its images and labels."""
        return self.gather(self.draw())

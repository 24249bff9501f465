"""Mini-batches of one worker's shard.

Each batch is drawn without replacement within itself and independently of the others, by the
worker's own stream. Its arrays are filled anew by every ``next``, so that drawing takes no memory.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import SpecError
from testbed.learning.data.datasets import Dataset


class Batches:
    """Random mini-batches of a shard, without end.

    Attributes:
        shard: int64, indices of the images that are drawn from.
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
            dataset: whose training images are drawn.
            shard: int64, indices of the images that this worker has.
            batch_size: b, images per batch.
            generator: the worker's stream for this purpose.
            memory: gather into this one's arrays, so that thousands of workers need no more.

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
        """Draw a batch: the images' indices, int64 (b,)."""
        drawn = self._generator.choice(
            len(self.shard), len(self._labels), replace=False, shuffle=False
        )
        at: npt.NDArray[np.int64] = self.shard[drawn]
        return at

    @property
    def position(self) -> Mapping[str, Any]:
        """Where its stream is; of plain values."""
        return self._generator.bit_generator.state

    def reposition(self, position: Mapping[str, Any]) -> None:
        """Draw on from where another one of these was."""
        self._generator.bit_generator.state = position

    def gather(
        self, at: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """The images, float32 (b, 1, 28, 28), and labels, int64 (b,), of these indices.

        Both arrays are overwritten by the next call.
        """
        # mode="clip" writes straight into ``out``; the default mode goes through a copy.
        np.take(self._dataset.train_images, at, axis=0, out=self._images, mode="clip")
        np.take(self._dataset.train_labels, at, out=self._labels, mode="clip")
        return self._images, self._labels

    def next(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Draw a batch and gather it."""
        return self.gather(self.draw())

"""Mini-batches of one worker's shard.

Each batch is drawn without replacement within itself and independently of other batches, from the
worker's own stream. With it is drawn, from other streams of the worker, what else its gradient
depends on. Every ``next`` overwrites the same arrays, so that drawing allocates no memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import SpecError
from testbed.learning.data.datasets import Dataset


@dataclass(slots=True)
class Draw:
    """What is drawn for one gradient.

    Attributes:
        images: int64, (b,), indices of the training images.
        layers: the seed of random layers; None for a model that has none.
    """

    images: npt.NDArray[np.int64]
    layers: int | None = None


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
        *,
        layers: np.random.Generator | None = None,
    ) -> None:
        """Prepare to draw.

        Args:
            dataset: its training images are drawn.
            shard: int64, indices of the images that this worker has.
            batch_size: b, images per batch.
            generator: the worker's stream for this purpose.
            memory: an object whose arrays are used, so that thousands of workers need no others.
            layers: the worker's stream for the seeds of random layers, if the model may have any.

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
        self._layers = layers
        if memory is None:
            shape = (batch_size, *dataset.train_images.shape[1:])
            self._images = np.empty(shape, dtype=np.float32)
            self._labels = np.empty(batch_size, dtype=np.int64)
        else:
            self._images, self._labels = memory._images, memory._labels

    def draw(self) -> Draw:
        """Draw a batch."""
        drawn = self._generator.choice(
            len(self.shard), len(self._labels), replace=False, shuffle=False
        )
        layers = None if self._layers is None else int(self._layers.integers(2**63))
        return Draw(self.shard[drawn], layers)

    @property
    def position(self) -> Mapping[str, Any]:
        """The state of the random streams, in plain values."""
        of_images: Mapping[str, Any] = self._generator.bit_generator.state
        if self._layers is None:
            return of_images
        return {**of_images, "layers": self._layers.bit_generator.state}

    def reposition(self, position: Mapping[str, Any]) -> None:
        """Continue drawing at the ``position`` of another object."""
        of_images = dict(position)
        if self._layers is not None:
            self._layers.bit_generator.state = of_images.pop("layers")
        self._generator.bit_generator.state = of_images

    def gather(self, draw: Draw) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return the images, float32 (b, channels, height, width), and the labels, int64 (b,).

        Both arrays are overwritten by the next call.
        """
        at = draw.images
        # mode="clip" writes straight into ``out``; the default mode makes a copy first.
        np.take(self._dataset.train_images, at, axis=0, out=self._images, mode="clip")
        np.take(self._dataset.train_labels, at, out=self._labels, mode="clip")
        return self._images, self._labels

    def next(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Draw a batch and return its images and labels."""
        return self.gather(self.draw())

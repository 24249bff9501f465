"""Mini-batches of one worker's shard, or of one stream that is dealt to whichever device is next.

A batch of a shard is drawn without replacement within itself and independently of other batches, from
the worker's own stream. With each batch is drawn, from other streams of the worker, what else its
gradient depends on. Every ``next`` overwrites the same arrays, so that drawing allocates no memory.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import SpecError
from testbed.learning.data.augmentation import NONE, Augmentation
from testbed.learning.data.datasets import Dataset
from testbed.learning.data.raw import Array
from testbed.random_streams import stream


@dataclass(slots=True)
class Draw:
    """The draws for one gradient.

    Attributes:
        images: int64, (b,), indices of the training images.
        layers: the seed of random layers; None for a model that has none.
        moves: int64, (b, 3), how images are augmented; None if they are not.
    """

    images: npt.NDArray[np.int64]
    layers: int | None = None
    moves: npt.NDArray[np.int64] | None = None


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
        augmentation: Augmentation = NONE,
        moves: np.random.Generator | None = None,
        dealt_by: int | None = None,
    ) -> None:
        """Prepare to draw.

        Args:
            dataset: its training images are drawn.
            shard: int64, indices of the images that this worker has.
            batch_size: b, images per batch.
            generator: the worker's stream for this purpose.
            memory: an object whose arrays are used, so that thousands of workers need no others.
            layers: the worker's stream for the seeds of random layers, if the model may have any.
            augmentation: how the images are changed.
            moves: the worker's stream for that, if they are.
            dealt_by: the experiment's seed, if mini-batches are dealt from one stream of all images.

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
        self._augmentation = augmentation
        self._dealt_by = dealt_by
        self._streams = {
            purpose: own
            for purpose, own in (("layers", layers), ("moves", moves))
            if own is not None
        }
        if memory is None:
            shape = (batch_size, *dataset.train_images.shape[1:])
            labels = dataset.train_labels
            self._images = np.empty(shape, dataset.train_images.dtype)
            self._labels = np.empty((batch_size, *labels.shape[1:]), labels.dtype)
        else:
            self._images, self._labels = memory._images, memory._labels

    def draw(self, number: int = 0) -> Draw:
        """Draw a batch.

        Args:
            number: of the batch in the run's stream of mini-batches, if there is one.
        """
        if self._dealt_by is not None:
            size = len(self._labels)
            return self._drawn(dealt(len(self.shard), size, self._dealt_by, number))
        drawn = self._generator.choice(
            len(self.shard), len(self._labels), replace=False, shuffle=False
        )
        return self._drawn(self.shard[drawn])

    def _drawn(self, images: npt.NDArray[np.int64]) -> Draw:
        """Draw what goes with the images of a batch."""
        draw = Draw(images)
        if self._streams:
            self._draw_more(draw)
        return draw

    def _draw_more(self, draw: Draw) -> None:
        if (layers := self._streams.get("layers")) is not None:
            draw.layers = int(layers.integers(2**63))
        if (moves := self._streams.get("moves")) is not None:
            draw.moves = self._augmentation.draw(len(draw.images), moves)

    @property
    def position(self) -> Mapping[str, object]:
        """The state of the random streams, in plain values."""
        of_images: Mapping[str, object] = self._generator.bit_generator.state
        others = {purpose: own.bit_generator.state for purpose, own in self._streams.items()}
        return {**of_images, **others} if others else of_images

    def reposition(self, position: Mapping[str, Any]) -> None:
        """Continue drawing at the ``position`` of another object."""
        of_images = dict(position)
        for purpose, own in self._streams.items():
            own.bit_generator.state = of_images.pop(purpose)
        self._generator.bit_generator.state = of_images

    def gather(self, draw: Draw) -> tuple[Array, Array]:
        """Return b images and their labels, of the dataset's shapes and types.

        Both arrays are overwritten by the next call.
        """
        at = draw.images
        # mode="clip" writes straight into ``out``; the default mode makes a copy first.
        np.take(self._dataset.train_images, at, axis=0, out=self._images, mode="clip")
        np.take(self._dataset.train_labels, at, axis=0, out=self._labels, mode="clip")
        if draw.moves is not None:
            self._augmentation.apply(self._images, draw.moves)
        return self._images, self._labels

    def next(self) -> tuple[Array, Array]:
        """Draw a batch and return its images and labels."""
        return self.gather(self.draw())


def dealt(images: int, batch_size: int, seed: int, number: int) -> npt.NDArray[np.int64]:
    """Return the images of a mini-batch of the one stream that is dealt to all devices.

    In each epoch, all training images are in a new random order, cut into mini-batches; the images that
    make up no whole one are left out of that epoch. A mini-batch depends on nothing but the seed and
    its number, so that a device needs only the number, which comes with the parameters.

    Args:
        images: the number of training images, at least ``batch_size``.
        seed: the experiment's seed.
        number: the mini-batch's, from 0.

    Returns:
        int64, (batch_size,).
    """
    epoch, at = divmod(number, images // batch_size)
    return _order(images, seed, epoch)[at * batch_size : (at + 1) * batch_size]


@functools.lru_cache(maxsize=2)  # devices near the end of an epoch are in two
def _order(images: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    return stream(seed, "stream of mini-batches", epoch).permutation(images).astype(np.int64)

"""Augmentation: a mini-batch's images shifted and mirrored at random, as each gradient draws it.

A shift is a crop of the padded image: ``crop`` pixels are added on each side, filled with 0 after
scaling (the mean of standardised values, black in ``unit``), and an image of the first size is cut out
anywhere in it, as He et al. (2016) do for CIFAR-10.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How images are changed.

    Attributes:
        crop: the most pixels by which an image is shifted up, down, left or right.
        flip: True to mirror every other image, at random, left to right.
    """

    crop: int = 0
    flip: bool = False

    def __bool__(self) -> bool:
        return self.crop > 0 or self.flip

    def draw(self, images: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draw the changes of some images.

        Returns:
            int64, (images, 3): the first row and the first column of the crop in the padded image, and
            1 to mirror it.
        """
        shifts = generator.integers(2 * self.crop + 1, size=(images, 2))
        mirrored = generator.integers(2 if self.flip else 1, size=(images, 1))
        return np.concatenate((shifts, mirrored), axis=1)

    def apply(self, images: npt.NDArray[np.float32], moves: npt.NDArray[np.int64]) -> None:
        """Change images, float32 (b, channels, height, width), in place, as was drawn."""
        _, channels, height, width = images.shape
        crop = self.crop
        padded = np.zeros((channels, height + 2 * crop, width + 2 * crop), np.float32)
        inside = padded[:, crop : crop + height, crop : crop + width]
        for image, (row, column, mirrored) in zip(images, moves.tolist(), strict=True):
            inside[:] = image
            cut = padded[:, row : row + height, column : column + width]
            image[:] = cut[:, :, ::-1] if mirrored else cut

    def applied(self, images: Tensor, moves: Tensor) -> Tensor:
        """Return the images as ``apply`` changes them, on their device and without waiting for it.

        Args:
            images: float32, (b, channels, height, width).
            moves: int64, (b, 3), on the same device.
        """
        count, channels, height, width = images.shape
        padded = torch.nn.functional.pad(images, [self.crop] * 4)
        row, column, mirrored = moves.unbind(1)
        to_right = torch.arange(width, device=images.device).expand(count, -1)
        columns = torch.where(mirrored[:, None] == 1, width - 1 - to_right, to_right)
        columns = (columns + column[:, None])[:, None, None, :]
        rows = (row[:, None] + torch.arange(height, device=images.device))[:, None, :, None]
        every = torch.arange(count, device=images.device)[:, None, None, None]
        channel = torch.arange(channels, device=images.device)[None, :, None, None]
        return padded[every, channel, rows, columns]


NONE = Augmentation()
"""Images as they are."""

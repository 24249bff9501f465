"""An encoding of one's own: signs, a bit for each parameter, and the mean magnitude of each tensor.

With error feedback this is the compressor of EF-SignSGD (Karimireddy et al. 2019).
"""

import numpy as np

from testbed.updates import DenseUpdate


class Signs:
    """Bodies are a float32 for each tensor, and then the bits."""

    lossy = True

    def __init__(self, sizes: tuple[int, ...]) -> None:
        """Prepare for tensors of these sizes, which follow one another in an update."""
        self._sizes = np.array(sizes)
        self._total = int(self._sizes.sum())

    def longest(self) -> int:
        """Return the most bytes that a body can have."""
        return 4 * len(self._sizes) + -(-self._total // 8)

    def encode(self, update: DenseUpdate) -> bytes:
        """Return the body of an update; a sparse one is refused before a start."""
        if not isinstance(update, DenseUpdate):
            raise TypeError("only whole gradients have signs: use asgd or sync-sgd")
        begins = np.cumsum(self._sizes) - self._sizes
        sums = np.add.reduceat(np.abs(update.values), begins)
        means = (sums / self._sizes).astype("<f4")
        return means.tobytes() + np.packbits(update.values >= 0).tobytes()

    def decode(self, body: memoryview) -> DenseUpdate:
        """Return the update that a body stands for."""
        if len(body) != self.longest():
            raise ValueError(f"{self.longest()} bytes are expected")
        cut = 4 * len(self._sizes)
        means = np.frombuffer(body[:cut], "<f4")
        positive = np.unpackbits(np.frombuffer(body[cut:], np.uint8), count=self._total)
        scales = np.repeat(means, self._sizes)
        return DenseUpdate(np.where(positive == 1, scales, -scales).astype(np.float32))

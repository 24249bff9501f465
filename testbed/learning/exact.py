"""The exact loss, and the gradient's norm and variance, of training images: algorithms estimate them.

The images are cut into mini-batches that do not overlap, and each has a gradient. Their mean is the
gradient of the loss of all of them, and their variance is an unbiased estimate, from as many samples as
there are mini-batches, of that of the gradient of a mini-batch that is drawn at random.
"""

import numpy as np

from testbed.learning.data.raw import Array
from testbed.learning.learner import Learner
from testbed.updates import FloatVector

LOSS, NORM, VARIANCE = "training_loss", "gradient_norm", "gradient_variance"
"""The columns: F(w); ‖∇F(w)‖²; V(g), the sum of the variances of a mini-batch gradient's components."""


def columns(gradient: bool) -> tuple[str, ...]:
    """Return the columns, those of the gradient only if it is computed."""
    return (LOSS, NORM, VARIANCE) if gradient else (LOSS,)


class Exact:
    """Computes the exact values at some parameters."""

    def __init__(
        self, learner: Learner, images: Array, labels: Array, batch_size: int, gradient: bool
    ) -> None:
        """Prepare.

        Args:
            learner: of mini-batches of ``batch_size`` images; nothing else may use it.
            images, labels: the training examples; those that make up no whole mini-batch are left out
                of the gradients.
            gradient: compute the gradient's norm and variance, and not only the loss.
        """
        self._learner = learner
        self._images, self._labels = images, labels
        self._batch_size = batch_size
        self._gradient = gradient

    def at(self, parameters: FloatVector) -> dict[str, float]:
        """Return a value for each of the columns."""
        np.copyto(self._learner.parameters, parameters)
        found = {LOSS: self._learner.evaluate(self._images, self._labels).loss}
        return found | self._of_gradients() if self._gradient else found

    def _of_gradients(self) -> dict[str, float]:
        size, count, squares = self._batch_size, 0, 0.0
        trained = slice(0, self._learner.statistics.start)  # without shared buffers
        total = np.zeros(len(self._learner.parameters[trained]))
        for start in range(0, len(self._images) - size + 1, size):
            part = slice(start, start + size)
            found, _ = self._learner.gradient(self._images[part], self._labels[part], 0)
            gradient = found[trained].astype(np.float64)
            total += gradient
            squares += float(gradient @ gradient)
            count += 1
        norm = float(total @ total) / count**2
        variance = (squares - count * norm) / (count - 1) if count > 1 else float("nan")
        return {NORM: norm, VARIANCE: variance}

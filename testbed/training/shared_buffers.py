"""Changes of shared buffers under a schedule of the learning rate: a step makes them as they are.

A worker pushes (β − β′) / α for a buffer β, with the experiment's α (``testbed.training.objective``).
The server's step multiplies by α(v), the rate at its own version v, so it is given (β − β′) / α(v). If
the worker divided by the rate at its base version, a step at a higher rate would move a buffer too far:
in a warm-up, a running variance below 0.
"""

from dataclasses import dataclass

import numpy as np

from testbed.algorithms.learning_rate import LearningRate
from testbed.updates import DenseUpdate, Update


@dataclass(frozen=True, slots=True)
class SharedBuffers:
    """The shared buffers in a server's slice.

    Attributes:
        parameters: how many entries are parameters; the buffers follow.
        rate: α at each version.
        alpha: the α by which workers divide.
    """

    parameters: int
    rate: LearningRate
    alpha: float

    def fit(self, update: Update, version: int) -> Update:
        """Return a whole update as it is to be applied at a version; the given one stays as it is."""
        rate = self.rate(version)
        if rate in (0.0, self.alpha):  # at a rate of 0 nothing moves, whatever it is
            return update
        assert isinstance(update, DenseUpdate), (
            "buffers are shared by algorithms of whole gradients"
        )
        values = update.values.copy()
        values[self.parameters :] *= np.float32(self.alpha / rate)
        return DenseUpdate(values)

"""What a device computes: the gradient of the loss on a mini-batch, and what training adds to it."""

from dataclasses import dataclass

from testbed.learning.data.batches import Batches, Draw
from testbed.learning.learner import Learner
from testbed.training.settings import Settings
from testbed.updates import FloatVector


@dataclass(frozen=True, slots=True)
class Objective:
    """The rule by which every device of a run computes its gradients; it keeps nothing between them.

    Attributes:
        learning_rate: α, by which the changes of shared buffers are divided.
    """

    learning_rate: float = 1.0

    def gradient(
        self, learner: Learner, batches: Batches, draw: Draw, version: int
    ) -> tuple[FloatVector, float]:
        """Compute the gradient of what was drawn at the learner's parameters; return it and the loss.

        Args:
            version: of these parameters.
        """
        gradient, loss = learner.gradient(*batches.gather(draw), draw.layers)
        if learner.statistics.start < learner.statistics.stop:
            gradient[learner.statistics] /= self.learning_rate
        return gradient, loss


PLAIN = Objective()
"""The gradient of the loss alone."""


def objective(settings: Settings) -> Objective:
    """Return the objective of a run."""
    return Objective(settings.training.learning_rate)

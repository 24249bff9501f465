"""What a device computes: the gradient of the loss on a mini-batch, and what training adds to it.

All of this happens on the device, at its base version and before anything is selected from the
gradient: a compressed algorithm is given the gradient that it would have pushed whole.
"""

from dataclasses import dataclass

import torch

from testbed.learning.data.batches import Batches, Draw
from testbed.learning.learner import Learner
from testbed.training.settings import Settings
from testbed.updates import FloatVector


@dataclass(frozen=True, slots=True)
class Objective:
    """The rule by which every device of a run computes its gradients; it keeps nothing between them.

    Attributes:
        alpha: α, the experiment's learning rate whatever the schedule, by which the changes of shared
            buffers are divided; the server makes of them steps at the rate of its own version
            (``testbed.training.shared_buffers``).
        weight_decay: λ: the gradient is that of the loss plus λ/2 · ‖θ‖².
        clip: the most that the norm of the loss's gradient may be; None: any.
    """

    alpha: float
    weight_decay: float = 0.0
    clip: float | None = None

    def gradient(self, learner: Learner, batches: Batches, draw: Draw) -> tuple[FloatVector, float]:
        """Return the gradient of what was drawn at the learner's parameters, and the loss."""
        gradient, loss = learner.gradient(*batches.gather(draw), draw.layers)
        self.complete(gradient, learner.parameters, learner.statistics.start)
        return gradient, loss

    def complete(self, gradient: FloatVector, parameters: FloatVector, own: int) -> None:
        """Complete the gradient of the loss, in place.

        Args:
            gradient: float32, (|Θ|,), of the shared buffers β − β′.
            parameters: float32, (|Θ|,), at which it was computed.
            own: how many entries are parameters; shared buffers follow.
        """
        if self.clip is not None or self.weight_decay:
            self._regularise(gradient[:own], parameters)
        if own < len(gradient):
            gradient[own:] /= self.alpha

    def _regularise(self, gradient: FloatVector, parameters: FloatVector) -> None:
        """Clip the gradient of the loss, and add that of the decay."""
        # By torch, in the learner's one thread: numpy's products may be computed by several.
        own, theta = torch.from_numpy(gradient), torch.from_numpy(parameters[: len(gradient)])
        if self.clip is not None:
            norm = float(torch.linalg.vector_norm(own))
            if norm > self.clip:
                own.mul_(self.clip / norm)
        if self.weight_decay:
            own.add_(theta, alpha=self.weight_decay)


PLAIN = Objective(1.0)
"""The gradient of the loss alone."""


def objective(settings: Settings) -> Objective:
    training = settings.training
    return Objective(settings.rate.alpha, training.weight_decay, training.clip)

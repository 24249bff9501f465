"""ASGD: asynchronous SGD that divides each step by the update's staleness.

AdaComp (paper 001, §V-B), the baseline: "the learning rate is divided by staleness and is global to
each update", after Zhang et al., "Staleness-aware async-SGD": Θ(i+1) = Θ(i) − α/max(1, σ) · ΔΘ,
where σ is the update's delay. The worker pushes its whole gradient.
"""

from typing import Literal

import numpy as np

from testbed.algorithms.interface import AsynchronousOptions, Conditions, ServedAlgorithm
from testbed.algorithms.learning_rate import LearningRate, as_rate
from testbed.algorithms.server_half import AsynchronousServer, ServerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update


class AsgdOptions(AsynchronousOptions):
    """ASGD has no parameters of its own: α is the experiment's learning rate."""

    name: Literal["asgd"] = "asgd"


class WholeGradient(WorkerHalf):
    """A worker half that pushes the whole gradient."""

    def compress(self, gradient: FloatVector) -> DenseUpdate:
        return DenseUpdate(gradient)


class StalenessDivided(AsynchronousServer):
    """A server with one staleness per update, dense or sparse: the step is α / max(1, delay)."""

    # The tensor shares the parameters' memory.
    not_saved = frozenset({"_as_tensor", "_theta", "learning_rate"})

    def __init__(self, parameters: FloatVector, learning_rate: float | LearningRate) -> None:
        # Imported here: the command line reads every algorithm's options, and torch takes seconds.
        import torch

        super().__init__(parameters)
        self.learning_rate = as_rate(learning_rate)
        self._as_tensor = torch.from_numpy
        self._theta = torch.from_numpy(parameters)

    def _apply(self, worker: int, update: Update, delay: int) -> None:
        step = self.learning_rate(self.version) / max(1, delay)
        if isinstance(update, SparseUpdate):
            # The product is computed in float32, as torch does in the dense branch.
            self.parameters[update.indices] -= np.float32(step) * update.values
        else:
            # One fused pass; numpy would need a temporary as long as the model.
            self._theta.sub_(self._as_tensor(update.values), alpha=step)


class Asgd(ServedAlgorithm):
    """ASGD: whole gradients, one staleness per update."""

    options_type = AsgdOptions
    scheduled = True

    @classmethod
    def averages(cls, options: AsgdOptions) -> bool:
        return True

    @staticmethod
    def worker(options: AsgdOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return WholeGradient()

    @staticmethod
    def server(
        options: AsgdOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        return StalenessDivided(parameters, conditions.rate)

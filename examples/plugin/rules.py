"""ASGD with momentum at the server, as a plug-in: nothing of the testbed is changed for it.

v ← β·v + g;  θ ← θ − α·v for every gradient g that is pushed, however stale it is.
"""

import numpy as np
from pydantic import Field

from testbed.algorithms.asgd import WholeGradient
from testbed.algorithms.interface import Conditions, Options, ServedAlgorithm
from testbed.algorithms.server_half import AsynchronousServer
from testbed.updates import FloatVector, IndexVector, Layout, SparseUpdate, Update


class MomentumOptions(Options):
    """The options of an entry ``{name: "rules:Momentum"}`` of an experiment file."""

    beta: float = Field(default=0.9, ge=0, lt=1, description="β of the momentum; 0: plain ASGD.")


class MomentumServer(AsynchronousServer):
    """The server's half."""

    def __init__(self, parameters: FloatVector, learning_rate: float, beta: float) -> None:
        super().__init__(parameters)
        self._alpha = np.float32(learning_rate)
        self._beta = np.float32(beta)
        self._velocity = np.zeros_like(parameters)

    def _apply(self, worker: int, update: Update, delay: int) -> None:
        pushed = update.indices if isinstance(update, SparseUpdate) else slice(None)
        self._velocity *= self._beta
        self._velocity[pushed] += update.values
        self.parameters -= self._alpha * self._velocity

    def _changes(self, update: Update) -> IndexVector | slice:
        return slice(None)


class Momentum(ServedAlgorithm):
    """ASGD with momentum."""

    options_type = MomentumOptions

    @staticmethod
    def worker(options: MomentumOptions, layout: Layout, conditions: Conditions) -> WholeGradient:
        return WholeGradient()

    @staticmethod
    def server(
        options: MomentumOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> MomentumServer:
        return MomentumServer(parameters, conditions.learning_rate, options.beta)

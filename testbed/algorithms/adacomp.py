"""AdaComp: compressed updates with a staleness for each parameter (paper 001, Algorithms 1 and 2).

The worker keeps the max(1, ⌊c·size⌋) largest entries of each weight matrix and bias vector. The
server counts, for each of these entries, the updates since this worker's pull in which it was not 0
(equation 3), and divides the learning rate by that count (equations 4 and 5). A selected entry may be
0, as the server reads it: where a tensor has fewer non-zero entries than are kept, or where the
encoding rounded it away. It changes nothing, and is not counted.

The paper's server keeps the last d updates and searches them, O(n·c·|Θ|·ln(c·|Θ|)) per update.
Here a counter per parameter holds the number of updates in which it was not 0. A pull keeps a copy
of the counters, and σ_k is the difference of two integers. This costs O(c·|Θ|) per update and one
copy of |Θ| counters per pulled version, in addition to the |Θ| parameters that the pull sends anyway.
Pulls of the same version share one copy, which is kept while a worker that pulled it is outstanding.
"""

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from testbed.algorithms.compression import CompressionOptions, Scope, compressing_worker
from testbed.algorithms.interface import AsynchronousOptions, Conditions, ServedAlgorithm
from testbed.algorithms.learning_rate import LearningRate, as_rate
from testbed.algorithms.outstanding import Outstanding
from testbed.algorithms.server_half import AsynchronousServer, ServerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.updates import FloatVector, Layout, SparseUpdate, Update


class AdaCompOptions(CompressionOptions, AsynchronousOptions):
    """AdaComp's parameters."""

    name: Literal["adacomp"] = "adacomp"
    scope: Scope = Field(
        default="tensor",
        description="Where the largest are sought: in each weight matrix and bias vector (the "
        "paper's) or over the whole model.",
    )


class AdaptiveStaleness(AsynchronousServer):
    """The server of Algorithm 2."""

    not_saved = frozenset({"learning_rate"})

    def __init__(
        self,
        parameters: FloatVector,
        learning_rate: float | LearningRate,
        *,
        overlaps: bool = False,
    ) -> None:
        super().__init__(parameters)
        self.learning_rate = as_rate(learning_rate)
        self._contained = np.zeros(len(parameters), dtype=np.uint32)
        # Copies of the counters at the versions of outstanding pulls.
        self._at_pull: Outstanding[npt.NDArray[np.uint32]] = Outstanding(overlaps=overlaps)

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        self._at_pull.hold(worker, self.version, self._contained)
        return self.version

    def _apply(self, worker: int, update: Update, delay: int) -> None:
        at_pull = self._at_pull.at(worker, self.version - delay)
        k: npt.NDArray[np.intp] | slice
        if isinstance(update, SparseUpdate):
            # Converted once: otherwise numpy would convert the indices at each of the four uses.
            k = update.indices.astype(np.intp)
            now, before = self._contained.take(k), at_pull.take(k)
        else:
            k = slice(None)
            now, before = self._contained, at_pull
        # The counters wrap at 2³²; their unsigned difference remains correct.
        sigma = now - before  # equation 3
        alpha = np.float32(self.learning_rate(self.version))
        alpha_k = alpha / np.maximum(sigma, 1).astype(np.float32)  # equation 5
        alpha_k *= update.values
        self.parameters[k] -= alpha_k  # equation 4
        self._contained[k] = now + (update.values != 0)
        self._at_pull.pushed(worker)

    def forget(self, worker: int) -> None:
        self._at_pull.release(worker)


class AdaComp(ServedAlgorithm):
    """AdaComp: largest entries from the workers, adaptive staleness at the server."""

    options_type = AdaCompOptions
    scheduled = True

    @classmethod
    def vectors_per_worker(cls, options: AdaCompOptions) -> int:
        return options.versions_sent  # the counters at each of them

    @staticmethod
    def worker(options: AdaCompOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return compressing_worker(options, layout, options.scope)

    @staticmethod
    def server(
        options: AdaCompOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        return AdaptiveStaleness(parameters, conditions.rate, overlaps=options.overlaps)

"""The gradients of simulated peers, computed in a pool of processes."""

from collections.abc import Sequence

import numpy as np

from testbed.algorithms.asgd import WholeGradient
from testbed.encoding_choice import EncodingChoice
from testbed.learning.data.batches import Batches
from testbed.learning.learner import Learner
from testbed.simulation.batching import Begun
from testbed.simulation.pool_process import SharedMemory, Work
from testbed.simulation.process_pool import ProcessPool
from testbed.simulation.sent_versions import SentVersions
from testbed.training.computation import Computation, Drawn
from testbed.training.objective import Objective
from testbed.training.peer_computation import PeerComputation
from testbed.training.pushed_parts import PushedParts
from testbed.training.slices import slices
from testbed.updates import FloatVector


class PeersPool:
    """A pool that computes the gradients of peers, at copies of their models.

    The pool sees each peer as a worker that pushes its whole gradient.
    """

    def __init__(
        self,
        processors: int,
        batches: Sequence[Batches],
        learner: Learner,
        goal: Objective,
    ) -> None:
        """Set up the pool's work; its processes start with the first gradient.

        Args:
            batches: of the peers that compute, by their numbers.
        """
        memory, cut = SharedMemory(), slices(learner.layout, 1)
        parts = PushedParts(EncodingChoice(), cut)

        def computation(peer: int, _incarnation: int = 0) -> Computation:
            return Computation(WholeGradient(), batches[peer], parts, goal)

        self._versions = SentVersions(cut, memory.like)
        computations = list(map(computation, range(len(batches))))
        work = Work(computations, cut, learner, True, computation, memory)
        self._pool = ProcessPool(processors, work, self._versions)
        self._begun: dict[int, Begun] = {}

    def computes(self, peer: int) -> bool:
        """Return True if a gradient of a peer has begun, and was not finished."""
        return peer in self._begun

    def begin(self, peer: int, own: PeerComputation) -> None:
        """Start the gradient of a peer at its model as it is now."""
        part = (0, peer)
        self._versions.hold(part, own.half.parameters)
        begun = self._begun[peer] = Begun((part,), (own.half.version,), Drawn([own.draw()]))
        self._pool.begin(peer, begun)

    def finish(self, peer: int, into: FloatVector) -> float:
        """Write a peer's gradient, float32, (|Θ|,), and return its loss."""
        ((_, update),), loss = self._pool.result(peer, self._begun.pop(peer))
        np.copyto(into, update.values)
        return loss

    def begin_anew(self, peer: int) -> None:
        """Forget a peer's gradient, and all that it has left."""
        if (begun := self._begun.pop(peer, None)) is not None:
            self._pool.drop(begun)
            begun.release(self._versions)
        self._pool.begin_anew(peer, 0)

    def close(self) -> None:
        self._pool.close()

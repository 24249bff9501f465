"""EASGD: workers train on copies of their own, which are bound to a centre by an elastic force.

Zhang, Choromanska, LeCun, "Deep learning with Elastic Averaging SGD" (2015), the asynchronous variant.
Worker i takes a step at its own copy for every gradient, x_i ← x_i − η·g. After every τ-th step its
copy and the centre x̃, which is what is evaluated, move towards each other:

    e = α·(x_i − x̃);   x_i ← x_i − e;   x̃ ← x̃ + e.

No copy is replaced by x̃, so that workers may be far from it and from each other; with a small α they
are. With n workers n·α is the paper's β.

The server makes the whole exchange: it keeps each x_i of the last exchange, a worker pushes the sum of
its gradients since, and is sent its new x_i. That takes the bytes of sending x̃ to the worker and e
back, and no other exchange comes between the two. η of all steps since an exchange is that of the
version that followed it. The paper's worker makes the exchange between computing a gradient and taking
its step; here it is made after the step. There is no momentum (EAMSGD).
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.downpour import LocalTrainer
from testbed.algorithms.interface import AsynchronousOptions, Conditions, ServedAlgorithm
from testbed.algorithms.learning_rate import LearningRate
from testbed.algorithms.server_half import AsynchronousServer, ServerHalf
from testbed.algorithms.worker_half import Leg, WorkerHalf
from testbed.errors import SpecError
from testbed.updates import FloatVector, IndexVector, Layout, SparseUpdate, Update

BETA = 0.9
"""β = n·α, by default."""


class EasgdOptions(AsynchronousOptions):
    """EASGD's parameters: how often a worker's copy meets the centre, and how far both then move."""

    name: Literal["easgd"] = "easgd"
    exchange_every: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="τ: the gradients of a worker from one exchange with the centre to the next.",
    )
    elasticity: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="α, the share of their distance that a worker's copy and the centre move towards "
        "each other in an exchange; with 1 they change places. Default (null): 0.9/n, of n workers.",
    )


class BoundTrainer(LocalTrainer):
    """Trains on its own copy, and pushes the sum of its gradients since the last exchange."""

    def local(
        self, step: int, parameters: FloatVector, gradient: FloatVector, version: int
    ) -> None:
        if step == 0:
            self._sum = None
        super().local(step, parameters, gradient, version)


class Centre(AsynchronousServer):
    """The centre x̃, and the copies x_i of the workers as they were sent last."""

    not_saved = frozenset({"learning_rate"})

    def __init__(
        self, parameters: FloatVector, learning_rate: LearningRate, elasticity: float
    ) -> None:
        super().__init__(parameters)
        self.learning_rate = learning_rate
        self._alpha = elasticity
        self._copies: dict[int, FloatVector] = {}

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        if worker not in self._copies:
            self._copies[worker] = self.parameters.copy()
        return self.version

    def outgoing(self, worker: int) -> FloatVector:
        return self._copies[worker]

    def forget(self, worker: int) -> None:
        self._copies.pop(worker, None)

    def _apply(self, worker: int, update: Update, delay: int) -> None:
        x = self._copies[worker]
        eta = np.float32(self.learning_rate(self.version - delay))
        changed = update.indices if isinstance(update, SparseUpdate) else slice(None)
        x[changed] -= eta * update.values
        e = np.float32(self._alpha) * (x - self.parameters)
        x -= e
        self.parameters += e

    def _changes(self, update: Update) -> IndexVector | slice:
        return slice(None)


class Easgd(ServedAlgorithm):
    """EASGD around one server or several, each with a slice of x̃ and of every x_i."""

    options_type = EasgdOptions
    scheduled = True

    @staticmethod
    def check(options: EasgdOptions, conditions: Conditions) -> None:
        if options.overlaps:
            raise SpecError(
                "send_queue: a worker of easgd goes on at the copy that an exchange leaves it, for "
                "which it has to wait"
            )

    @classmethod
    def vectors_per_worker(cls, options: EasgdOptions) -> int:
        return 1  # x_i

    @classmethod
    def gradients_per_update(cls, options: EasgdOptions, conditions: Conditions) -> int | None:
        return options.exchange_every

    @classmethod
    def trains_locally(cls, options: EasgdOptions) -> bool:
        return options.exchange_every > 1

    @staticmethod
    def legs(options: EasgdOptions, conditions: Conditions) -> Sequence[Leg]:
        return (Leg(options.exchange_every),)

    @staticmethod
    def worker(options: EasgdOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return BoundTrainer(conditions.rate)

    @staticmethod
    def server(
        options: EasgdOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        alpha = options.elasticity or BETA / conditions.workers
        return Centre(parameters, conditions.rate, alpha)

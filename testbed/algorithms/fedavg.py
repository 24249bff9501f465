"""Federated averaging: a part of the workers train on their own images, and their models are averaged.

McMahan et al. (2017), "Communication-efficient learning of deep networks from decentralized data",
Algorithm 1. In round t the server draws a set S_t of m = max(C·K, 1) of the K workers that are there.
Each begins at w_t, takes a step for every mini-batch, w ← w − η·g, until it has been over its images E
times, and pushes the sum of its steps, (w_t − w^k)/η. With n_k the images of worker k, the server does

    w_{t+1} = w_t − η · Σ_{k ∈ S_t} n_k/n · (w_t − w^k)/η,   n = Σ_{k ∈ S_t} n_k,

which is the mean of the models w^k, weighted by images; η is that of the round's version. All S_t and
one step are synchronous SGD with weights. FedProx (Li et al., 2020, "Federated optimization in
heterogeneous networks", Algorithm 2) adds μ/2·‖w − w_t‖² to what each worker minimises: its steps are
w ← w − η·(g + μ·(w − w_t)).

The server may average the first k models of a round, or those that come within a time; those of
stragglers are dropped. Mini-batches are
drawn at random, as everywhere in this testbed: E times over n_k images are E·n_k/b of them. A worker
that is gone is not waited for; if all that were drawn are gone, others are drawn.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from testbed.algorithms.compression import Ratio
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.interface import Conditions, Options, ServedAlgorithm
from testbed.algorithms.learning_rate import LearningRate
from testbed.algorithms.server_half import ServerHalf
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.algorithms.worker_half import Leg, WorkerHalf
from testbed.errors import SpecError
from testbed.random_streams import stream
from testbed.units import Duration
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update


class FedAvgOptions(Options):
    """The parameters of federated averaging: η is the experiment's learning rate."""

    name: Literal["fedavg"] = "fedavg"
    fraction: Ratio | None = Field(
        default=None,
        description="C, the fraction of the workers that is drawn for each round, at least one worker. "
        "Default (null): all.",
    )
    local_epochs: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="E: how often a worker goes over its images in a round; at least one mini-batch. "
        "Default (null): once.",
    )
    local_steps: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="The mini-batches of a worker in a round, in place of local_epochs, however many "
        "images it has. Default (null): local_epochs say them.",
    )
    proximal: float | None = Field(
        default=None,
        ge=0,
        le=1e6,
        description="μ of FedProx, which draws a worker's model to the one that it began at. Default "
        "(null): 0, which is FedAvg.",
    )
    wait_for: int | None = Field(
        default=None,
        ge=1,
        description="k: the first k models of a round are averaged, and those of stragglers dropped. "
        "Default (null): all that were drawn.",
    )
    within: Duration | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="The time after its beginning at which a round ends with the models that have "
        "come by then; if there are none, with the first one. Default (null): no time limit.",
    )

    @field_validator("local_steps")
    @classmethod
    def _in_place_of_epochs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("local_epochs") is not None:
            raise ValueError("takes the place of local_epochs: leave one of them out")
        return value


class LocalTraining(WorkerHalf):
    """Trains at the parameters of a round, and pushes the sum of its steps, without η."""

    not_saved = frozenset({"learning_rate"})

    def __init__(self, learning_rate: LearningRate, proximal: float) -> None:
        """Start before the first round.

        Args:
            learning_rate: η.
            proximal: μ.
        """
        self.learning_rate = learning_rate
        self._proximal = proximal
        # (w_t − w)/η of a round, and μ·η; kept in a round only, as thousands of workers may be in one
        # process.
        self._sum: FloatVector | None = None
        self._pull = 0.0

    def _step(self, gradient: FloatVector) -> FloatVector:
        """Return g + μ·(w − w_t)."""
        if self._sum is None or not self._pull:
            return gradient
        return gradient - np.float32(self._pull) * self._sum

    def local(
        self, step: int, parameters: FloatVector, gradient: FloatVector, version: int
    ) -> None:
        if step == 0:
            self._sum = None
        rate = self.learning_rate(version)
        taken = self._step(gradient)
        self._sum = taken.copy() if self._sum is None else self._sum + taken
        self._pull = self._proximal * rate
        parameters -= np.float32(rate) * taken

    def compress(self, gradient: FloatVector) -> DenseUpdate:
        last = self._step(gradient)
        before, self._sum = self._sum, None
        return DenseUpdate(last if before is None else before + last)


class FedAvgServer(SynchronousServer):
    """A server's half that draws the workers of each round, and averages their models."""

    not_saved = SynchronousServer.not_saved | {"_conditions", "_weights", "_within"}

    def __init__(
        self,
        parameters: FloatVector,
        conditions: Conditions,
        fraction: float,
        wait_for: int | None,
        within: float | None = None,
    ) -> None:
        """Start at version 0, with no worker drawn.

        Args:
            parameters: w_0.
            fraction: C.
            wait_for: k; None: all that are drawn.
            within: the time limit of a round, in seconds; None: there is none.
        """
        super().__init__(parameters, conditions.rate, wait_for or conditions.workers, "pull")
        self._conditions, self._fraction, self._within = conditions, fraction, within
        self._has_expired = False
        self._weights = conditions.images or (1,) * conditions.workers
        # The workers of this round; none before it has begun. And how often some were drawn for it.
        self._drawn: set[int] = set()
        self._draws = 0
        self._images = self._models = 0

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        if not self._drawn:
            self._draw()
            self.deadline = None if self._within is None else time + self._within
        return super().pull(worker, time=time) if worker in self._drawn else None

    def _draw(self) -> None:
        """Draw the workers of this round from the server's stream."""
        there = sorted(range(self._conditions.workers) if self._there is None else self._there)
        count = sampled(self._fraction, len(there))
        draws = stream(self._conditions.seed, "workers of a round", self.version, self._draws)
        self._drawn = set(map(int, draws.choice(there, count, replace=False)))
        self._draws += 1

    @property
    def _possible(self) -> set[int]:
        there = self._drawn if self._there is None else self._drawn & self._there
        return there | self._taken

    @property
    def _complete(self) -> bool:
        return self._has_expired or super()._complete

    def expire(self) -> None:
        self.deadline, self._has_expired = None, True
        if self._count:
            self._step(math.nan)  # no push arrived that could give a time

    @property
    def _divisor(self) -> int:
        return self._images

    def _gather(self, worker: int, update: Update, loss: float, time: float) -> None:
        images = self._weights[worker]
        self._images += images
        weighted = update.values * np.float32(images)
        if isinstance(update, SparseUpdate):
            super()._gather(worker, SparseUpdate(update.indices, weighted), loss, time)
        else:
            super()._gather(worker, DenseUpdate(weighted), loss, time)

    def _stepping(self, mean: FloatVector, k: int, time: float) -> None:
        self._models = len(self._taken)

    def _stepped(self, time: float) -> None:
        self._diagnosis = {**self._diagnosis, "k": self._models}
        self._images = self._draws = 0
        self._begin_round()

    def _begin_round(self) -> None:
        """Start a round with no worker drawn; the next worker that asks has them drawn."""
        self._drawn, self.deadline, self._has_expired = set(), None, False

    def forget(self, worker: int) -> None:
        super().forget(worker)
        if not self._possible:
            self._begin_round()  # others are drawn


def sampled(fraction: float, workers: int) -> int:
    """Return m, the number of workers that are drawn for a round."""
    return max(1, round(fraction * workers))


class FedAvg(ServedAlgorithm):
    """Federated averaging around one server."""

    options_type = FedAvgOptions
    scheduled = True
    # Every server would have to draw the same workers, and each knows only its own.
    sliced = False
    diagnostics: ClassVar[tuple[Diagnostic, ...]] = (
        Diagnostic("k", "Models in the update's mean."),
        Diagnostic("late", "Models that were too late for their round, since the update before."),
    )

    @classmethod
    def synchronous(cls, options: FedAvgOptions) -> bool:
        return True

    @classmethod
    def gradients_per_update(cls, options: FedAvgOptions, conditions: Conditions) -> None:
        """Return None: it depends on the images of those that are drawn."""

    @classmethod
    def pushes_per_update(cls, options: FedAvgOptions, conditions: Conditions) -> int | None:
        """Return the workers that are drawn; None where some may be too late."""
        if options.wait_for is not None or options.within is not None:
            return None
        return sampled(options.fraction or 1.0, conditions.workers)

    @classmethod
    def trains_locally(cls, options: FedAvgOptions) -> bool:
        return True

    @staticmethod
    def legs(options: FedAvgOptions, conditions: Conditions) -> Sequence[Leg]:
        steps = options.local_steps
        if steps is None:
            images = conditions.own_images or conditions.batch_size
            epochs = options.local_epochs or 1.0
            steps = max(1, round(epochs * images / conditions.batch_size))
        return (Leg(steps),)

    @staticmethod
    def check(options: FedAvgOptions, conditions: Conditions) -> None:
        drawn = sampled(options.fraction or 1.0, conditions.workers)
        if (options.wait_for or 1) > drawn:
            raise SpecError(
                f"fedavg: wait_for is {options.wait_for}, and {drawn} of {conditions.workers} workers "
                "are drawn for each round: wait for fewer models, or raise fraction"
            )

    @staticmethod
    def worker(options: FedAvgOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return LocalTraining(conditions.rate, options.proximal or 0.0)

    @staticmethod
    def server(
        options: FedAvgOptions,
        layout: Layout,
        parameters: FloatVector,
        conditions: Conditions,
    ) -> ServerHalf:
        return FedAvgServer(
            parameters, conditions, options.fraction or 1.0, options.wait_for, options.within
        )

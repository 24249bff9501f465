"""Downpour SGD: workers train on copies of their own, push now and then, and fetch now and then.

Dean et al., "Large Scale Distributed Deep Networks" (2012), Algorithm 7.1; paper 003 (Ako) trains its
systems of comparison with it. A worker takes a step at its own copy for every gradient,
θ^i ← θ^i − η·g, and adds g to a sum. Every n_push-th gradient it pushes the sum, and begins a new one;
every n_fetch-th gradient it asks for θ, which replaces its copy. The server does θ ← θ − η·Σg, however
stale the sum is. With n_push = n_fetch = 1 this is ASGD without division by the staleness.

Here a worker waits for the parameters that it has asked for, but with ``send_queue: 1``, for which
n_push and n_fetch are equal. η of a worker's step is that of its base version, η of the server's that
of the push's arrival; there is no Adagrad.
"""

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.interface import AsynchronousOptions, Conditions, ServedAlgorithm
from testbed.algorithms.learning_rate import LearningRate
from testbed.algorithms.momentum_asgd import WholeStep
from testbed.algorithms.penalties import NoPenalty
from testbed.algorithms.rule import Rule
from testbed.algorithms.server_half import ServerHalf
from testbed.algorithms.worker_half import Leg, WorkerHalf
from testbed.updates import DenseUpdate, FloatVector, Layout


class DownpourOptions(AsynchronousOptions):
    """Downpour's parameters: how often a worker pushes, and how often it fetches."""

    name: Literal["downpour"] = "downpour"
    push_every: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="n_push: the gradients of a worker in the sum that it pushes.",
    )
    fetch_every: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="n_fetch: the gradients that a worker computes before it asks for parameters "
        "again. Meanwhile it trains on its own copy.",
    )


class LocalTrainer(WorkerHalf):
    """Trains on a copy of the parameters, and pushes the sum of its gradients."""

    not_saved = frozenset({"learning_rate"})

    def __init__(self, learning_rate: LearningRate) -> None:
        self.learning_rate = learning_rate
        # None is 0: kept in checkpoints only while there is something in it.
        self._sum: FloatVector | None = None

    def local(
        self, step: int, parameters: FloatVector, gradient: FloatVector, version: int
    ) -> None:
        self._sum = self._with(gradient)
        self.go_on(parameters, gradient, version)

    def go_on(self, parameters: FloatVector, gradient: FloatVector, version: int) -> None:
        parameters -= np.float32(self.learning_rate(version)) * gradient

    def compress(self, gradient: FloatVector) -> DenseUpdate:
        pushed = self._with(gradient)
        self._sum = None
        return DenseUpdate(pushed)

    def _with(self, gradient: FloatVector) -> FloatVector:
        """Return the sum with one more gradient, in memory of its own."""
        return gradient + (np.float32(0) if self._sum is None else self._sum)


class Downpour(ServedAlgorithm):
    """Downpour SGD around one server or several, each with a slice of the parameters."""

    options_type = DownpourOptions
    scheduled = True
    diagnostics: ClassVar[tuple[Diagnostic, ...]] = Rule.diagnostics

    @classmethod
    def gradients_per_update(cls, options: DownpourOptions, conditions: Conditions) -> int | None:
        return options.push_every

    @classmethod
    def trains_locally(cls, options: DownpourOptions) -> bool:
        return options.push_every > 1 or options.fetch_every > 1

    @staticmethod
    def legs(options: DownpourOptions, conditions: Conditions) -> Sequence[Leg]:
        push_every, fetch_every = options.push_every, options.fetch_every
        stop = math.lcm(push_every, fetch_every) + 1
        ends = sorted({*range(0, stop, push_every), *range(0, stop, fetch_every)})
        return tuple(
            Leg(end - before, pushes=end % push_every == 0, asks=end % fetch_every == 0)
            for before, end in itertools.pairwise(ends)
        )

    @staticmethod
    def worker(options: DownpourOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return LocalTrainer(conditions.rate)

    @staticmethod
    def server(
        options: DownpourOptions,
        layout: Layout,
        parameters: FloatVector,
        conditions: Conditions,
    ) -> ServerHalf:
        return WholeStep(parameters, layout, conditions, options, NoPenalty())

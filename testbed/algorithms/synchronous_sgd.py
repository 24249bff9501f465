"""Synchronous SGD with a static number of backup workers.

Chen et al. (2016), "Revisiting distributed synchronous SGD", and Xu et al. (paper 004), §2: of n
workers the server waits for the fastest k = n − b gradients of the current version, and steps along
their mean (equations 3 and 4):

    g_t = 1/k · Σ g_{i,t};   w_{t+1} = w_t − η·g_t.

Later gradients of the version are dropped. k = n is plain synchronous SGD. The option ``protocol``
says how workers come by the new version; a worker that knows that it is late reports that it has
finished, without the gradient.
"""

import math
from typing import Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.asgd import WholeGradient
from testbed.algorithms.interface import (
    Conditions,
    DenseUpdate,
    FloatVector,
    Layout,
    Options,
    Protocol,
    ServedAlgorithm,
    ServerHalf,
    Update,
    WorkerHalf,
)
from testbed.errors import SpecError


class SynchronousSgdOptions(Options):
    """The parameters of synchronous SGD: η is the experiment's learning rate."""

    name: Literal["sync-sgd"] = "sync-sgd"
    wait_for: int | None = Field(
        default=None,
        ge=1,
        description="k, the gradients that the server waits for at each update; the other workers "
        "are backups. Default (null): all of them.",
    )
    protocol: Protocol = Field(
        default="pull",
        description="How workers come by new parameters: pull (default; each asks for the newest "
        "when it has pushed), push-and-wait (the server sends every version to all; a worker finishes "
        "what it computes first) or push-and-interrupt (it drops what it computes).",
    )


class SynchronousServer(ServerHalf):
    """Takes the first k gradients of the current version; k is ``needed``.

    A rule that changes k from update to update does so in ``_stepped``; one that wants to know each
    gradient overrides ``_gather``.
    """

    def __init__(
        self, parameters: FloatVector, learning_rate: float, wait_for: int, protocol: Protocol
    ) -> None:
        """Begin at version 0.

        Args:
            parameters: w_0.
            learning_rate: η.
            wait_for: k, gradients per update, at least 1.
            protocol: how workers come by new versions.
        """
        super().__init__(parameters)
        self.protocol = protocol
        self.needed = wait_for
        self._eta = np.float32(learning_rate)
        self._mean = np.empty_like(parameters)
        self._count = 0
        self._sent: dict[int, int] = {}
        self._taken: set[int] = set()

    def pull(self, worker: int) -> int | None:
        # One gradient per worker and version: who has had this one waits for the next.
        if self._sent.get(worker) == self.version or worker in self._taken:
            return None
        self._sent[worker] = self.version
        return self.version

    def push(
        self,
        worker: int,
        update: Update,
        base_version: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        if self._check_base(base_version) > 0:
            return None
        if worker in self._taken:
            raise ValueError(f"a second gradient of worker {worker} for version {base_version}")
        self._taken.add(worker)
        self._gather(worker, update, loss, time)
        if self._count >= self.needed:
            self._step(time)
        return 0

    def _gather(self, worker: int, update: Update, loss: float, time: float) -> None:
        """Add a gradient of the current version to the others."""
        first = self._count == 0
        self._count += 1
        if isinstance(update, DenseUpdate):
            if first:
                np.copyto(self._mean, update.values)
            else:
                self._mean += update.values
            return
        if first:
            self._mean.fill(0)
        self._mean[update.indices] += update.values

    def _step(self, time: float) -> None:
        """w ← w − η · 1/k · Σ g."""
        k = self._count
        self._mean /= np.float32(k)
        self._stepping(self._mean, k, time)
        self._mean *= self._eta
        self.parameters -= self._mean
        self._count = 0
        self._taken.clear()
        self._advance(slice(None))
        self._stepped(time)

    def _stepping(self, mean: FloatVector, k: int, time: float) -> None:
        """Learn the mean of the k gradients of a version, before its step is taken."""

    def _stepped(self, time: float) -> None:
        """The step was taken, and ``version`` is the new one."""

    def forget(self, worker: int) -> None:
        self._sent.pop(worker, None)


class SynchronousSgd(ServedAlgorithm):
    options_type = SynchronousSgdOptions

    @staticmethod
    def protocol(options: SynchronousSgdOptions) -> Protocol:
        return options.protocol

    @staticmethod
    def check(options: SynchronousSgdOptions, conditions: Conditions) -> None:
        wait_for = options.wait_for or 1
        if wait_for > conditions.workers:
            raise SpecError(
                f"sync-sgd: wait_for is {wait_for}, and there are only {conditions.workers} workers: "
                "wait for fewer gradients, or use more workers"
            )

    @staticmethod
    def worker(
        options: SynchronousSgdOptions, layout: Layout, conditions: Conditions
    ) -> WorkerHalf:
        return WholeGradient()

    @staticmethod
    def server(
        options: SynchronousSgdOptions,
        layout: Layout,
        parameters: FloatVector,
        conditions: Conditions,
    ) -> ServerHalf:
        wait_for = options.wait_for or conditions.workers
        return SynchronousServer(parameters, conditions.learning_rate, wait_for, options.protocol)

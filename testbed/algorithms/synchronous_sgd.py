"""Synchronous SGD with a static number of backup workers.

Chen et al. (2016), "Revisiting distributed synchronous SGD", and Xu et al. (paper 004), §2: with n
workers, b of them backups, the server waits for the first k = n − b gradients of the current version
and steps along their mean (equations 3 and 4):

    g_t = 1/k · Σ g_{i,t};   w_{t+1} = w_t − η·g_t.

Later gradients of the version are dropped. k = n is plain synchronous SGD. The option ``protocol``
says how workers get the new version; a worker that knows that it is late reports that it has
finished, without the gradient.

The papers do not say how k changes when workers fail. Here k never exceeds the gradients of the
version that can still be taken: those taken so far, and one of each other worker that is present. So
with k = n the server goes on with the remaining workers, and with b backups k shrinks only after more
than b workers have failed.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.compression import SelectionOptions, compressing_worker
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.interface import Conditions, ServedAlgorithm
from testbed.algorithms.learning_rate import LearningRate, Scaled, as_rate
from testbed.algorithms.server_half import Protocol, ServerHalf, UnexpectedMessageError
from testbed.algorithms.worker_half import WorkerHalf
from testbed.errors import SpecError
from testbed.updates import DenseUpdate, FloatVector, Layout, Update


class BackupOptions(SelectionOptions):
    """The parameters of a static number of backup workers: η is the experiment's learning rate."""

    wait_for: int | None = Field(
        default=None,
        ge=1,
        description="k, the gradients that the server waits for at each update; the other workers "
        "are backups. Default (null): all of them.",
    )
    rate_rule: Literal["fixed", "proportional"] = Field(
        default="fixed",
        description="η for k of n gradients: fixed (default; the learning rate) or proportional (k/n "
        "times the learning rate, since the mean of fewer gradients is noisier; Chen et al.).",
    )

    def rate(self, conditions: Conditions) -> LearningRate | float:
        """Return η at each version for k of n gradients."""
        if self.rate_rule == "fixed":
            return conditions.rate
        return Scaled(conditions.rate, (self.wait_for or conditions.workers) / conditions.workers)


class SynchronousSgdOptions(BackupOptions):
    """The parameters of synchronous SGD."""

    name: Literal["sync-sgd"] = "sync-sgd"
    protocol: Protocol = Field(
        default="pull",
        description="How workers come by new parameters: pull (default; each asks for the newest "
        "when it has pushed), push-and-wait (the server sends every version to all; a worker finishes "
        "what it computes first) or push-and-interrupt (it drops what it computes).",
    )


class SynchronousServer(ServerHalf):
    """A server's half that takes the first k gradients of the current version.

    A rule that changes k from update to update sets ``wait_for`` in ``_stepped``; a rule that uses each
    gradient overrides ``_gather``, and one that uses late ones ``_came_late``. If ``joined`` is never
    called, all workers count as present.

    Attributes:
        wait_for: k, the gradients that the next update waits for, at least 1. While fewer can still be
            taken, because workers are gone, the update waits for those; so one worker is enough.
    """

    not_saved = frozenset({"learning_rate"})

    def __init__(
        self,
        parameters: FloatVector,
        learning_rate: float | LearningRate,
        wait_for: int,
        protocol: Protocol,
    ) -> None:
        """Start at version 0.

        Args:
            parameters: w_0.
            learning_rate: η.
            wait_for: k, gradients per update, at least 1.
            protocol: how workers get new versions.
        """
        super().__init__(parameters)
        self.protocol = protocol
        self.wait_for = wait_for
        self._there: set[int] | None = None
        self.learning_rate = as_rate(learning_rate)
        self._mean = np.empty_like(parameters)
        self._count = 0
        self._sent: dict[int, int] = {}
        self._taken: set[int] = set()
        self._late = 0
        self._diagnosis: dict[str, float] = {}

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        # One gradient per worker and version: a worker that was sent this version waits for the next;
        # so does a worker that left after its gradient was taken and came back.
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
        if not self._takes(worker, base_version):
            self._came_late(worker, base_version, time)
            return None
        self._gather(worker, update, loss, time)
        if self._complete:
            self._step(time)
        return 0

    def _takes(self, worker: int, base_version: int) -> bool:
        """Return True if a gradient that a worker pushes is one of the current version's.

        Raises:
            UnexpectedMessageError: it must not push that.
        """
        if self._check_base(base_version) > 0:
            return False
        if worker in self._taken:
            raise UnexpectedMessageError(
                f"a second gradient of worker {worker} for version {base_version}"
            )
        self._taken.add(worker)
        return True

    def finished(self, worker: int, base_version: int, *, time: float = math.nan) -> None:
        self._came_late(worker, base_version, time)

    def _came_late(self, worker: int, base_version: int, time: float) -> None:
        """Count a gradient that was too late for its update, or the report of one."""
        self._late += 1

    def diagnose(self) -> Mapping[str, float]:
        return self._diagnosis

    @property
    def _complete(self) -> bool:
        """True if k gradients of the current version were taken, or all that can still arrive."""
        possible = self._possible
        return self._count >= (
            self.wait_for if possible is None else min(self.wait_for, len(possible))
        )

    @property
    def _possible(self) -> set[int] | None:
        """The workers whose gradients were taken or may still be; None: all workers."""
        return None if self._there is None else self._there | self._taken

    @property
    def _divisor(self) -> int:
        """The number by which the sum of what was taken is divided."""
        return self._count

    def _gather(self, worker: int, update: Update, loss: float, time: float) -> None:
        """Add a gradient of the current version to the sum."""
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
        """Make the update: w ← w − η · 1/k · Σ g."""
        k = self._divisor
        self._mean /= np.float32(k)
        self._stepping(self._mean, k, time)
        self._mean *= np.float32(self.learning_rate(self.version))
        self.parameters -= self._mean
        self._diagnosis = {"k": k, "late": self._late}
        self._count = self._late = 0
        self._taken.clear()
        self._advance(slice(None))
        self._stepped(time)

    def _stepping(self, mean: FloatVector, k: int, time: float) -> None:
        """Use the mean of a version's k gradients, before the step is taken; for subclasses."""

    def _stepped(self, time: float) -> None:
        """Do what follows a step, after which ``version`` is the new one; for subclasses."""

    def joined(self, worker: int) -> None:
        self._there = {worker} | (self._there or set())

    def forget(self, worker: int) -> None:
        self._sent.pop(worker, None)
        if self._there is None:
            return
        self._there.discard(worker)
        if self._count and self._complete:
            self._step(math.nan)  # no push arrived that could give a time


class SynchronousAlgorithm(ServedAlgorithm):
    """An algorithm around a ``SynchronousServer``, to which workers push gradients or parts of them."""

    scheduled = True
    diagnostics: ClassVar[tuple[Diagnostic, ...]] = (
        Diagnostic("k", "Gradients in the update's mean."),
        Diagnostic(
            "late", "Gradients that were too late for their update, since the update before."
        ),
    )

    @classmethod
    def synchronous(cls, options: SelectionOptions) -> bool:
        return True

    @classmethod
    def averages(cls, options: SelectionOptions) -> bool:
        return options.pushes_whole_gradients

    @staticmethod
    def worker(options: SelectionOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return compressing_worker(options, layout, "tensor")


class StaticBackups(SynchronousAlgorithm):
    """An algorithm that takes a static number of gradients for an update: k of n."""

    @classmethod
    def gradients_per_update(cls, options: BackupOptions, conditions: Conditions) -> int:
        return options.wait_for or conditions.workers

    @staticmethod
    def check(options: BackupOptions, conditions: Conditions) -> None:
        wait_for = options.wait_for or 1
        if wait_for > conditions.workers:
            raise SpecError(
                f"{options.name}: wait_for is {wait_for}, and there are only {conditions.workers} "
                "workers: wait for fewer gradients, or use more workers"
            )


class SynchronousSgd(StaticBackups):
    """Synchronous SGD: k of n gradients per update."""

    options_type = SynchronousSgdOptions

    @staticmethod
    def protocol(options: SynchronousSgdOptions) -> Protocol:
        return options.protocol

    @staticmethod
    def server(
        options: SynchronousSgdOptions,
        layout: Layout,
        parameters: FloatVector,
        conditions: Conditions,
    ) -> ServerHalf:
        wait_for, rate = options.wait_for or conditions.workers, options.rate(conditions)
        return SynchronousServer(parameters, rate, wait_for, options.protocol)

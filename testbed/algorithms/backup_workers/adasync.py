"""AdaSync: the number of gradients in each update grows as the loss falls.

Dutta, Wang and Joshi, "Slow and stale gradients can win the race" (2021), which Xu et al. (paper 004)
compare DBW with in §4.4. An update is made of K gradients. The four variants say which ones:

- ``k-sync``: the first K of the current version, each of another worker; the others are dropped. This
  is the one of paper 004;
- ``k-batch-sync``: the first K of the current version, whoever computed them: a worker that has pushed
  goes on at the same version, for which it asks again;
- ``k-async``: the first K of different workers, also those of older versions; a worker that has pushed
  waits for the next version;
- ``k-batch-async``: the first K, of whatever version and worker; nobody waits.

Where the round trip times are exponential with a shift, K-sync minimises a bound on the mean square of
the gradient over the next window of time by the positive root of

    K² + b·K − b·P = 0,   b = K₀²·F(w₀) / ((P − K₀)·F(w_t)),

and the other three, whose updates take K / P of a mean time, by K = K₀·√(F(w₀) / F(w_t)); rounded,
and between 1 and P, the number of workers. The window is one update, as in paper 004. F is the mean
loss of the gradients of an update.
"""

import math
from typing import Literal, TypeAlias

from pydantic import Field

from testbed.algorithms.compression import SelectionOptions
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.interface import Conditions
from testbed.algorithms.learning_rate import LearningRate
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.synchronous_sgd import SynchronousAlgorithm, SynchronousServer
from testbed.errors import SpecError
from testbed.updates import FloatVector, Layout, Update

Variant: TypeAlias = Literal["k-sync", "k-batch-sync", "k-async", "k-batch-async"]


def gradients_to_wait_for(
    variant: Variant, workers: int, first: int, loss_at_first: float, loss: float
) -> int:
    """Return K for the next update.

    Args:
        workers: P.
        first: K₀.
        loss_at_first, loss: F(w₀) and F(w_t); not negative.
    """
    if loss <= 0 or not math.isfinite(loss):
        return workers if loss <= 0 else first
    if variant != "k-sync":
        best = first * math.sqrt(loss_at_first / loss)
    elif first >= workers:
        best = float(workers)
    else:
        b = first**2 * loss_at_first / ((workers - first) * loss)
        best = (math.sqrt(b * b + 4 * b * workers) - b) / 2
    return max(1, min(workers, round(best)))


class AdaSyncOptions(SelectionOptions):
    """The parameters of AdaSync: η is the experiment's learning rate."""

    name: Literal["adasync"] = "adasync"
    variant: Variant = Field(
        default="k-sync",
        description="The gradients that an update is made of: k-sync (default; the first K of the "
        "current version), k-batch-sync (a worker may give several), k-async (also older ones, of K "
        "workers) or k-batch-async (any K).",
    )
    first: int = Field(
        default=1, ge=1, repr=False, description="K₀, the gradients in the first update."
    )
    protocol: Protocol | None = Field(
        default=None,
        description="How workers come by new parameters: push-and-interrupt, push-and-wait or pull. "
        "Default (null): push-and-interrupt for k-sync, and pull for the others, whose workers send "
        "stale gradients or go on at the same version: no other protocol has that.",
    )


class AdaSyncServer(SynchronousServer):
    """A server's half that chooses K after every update."""

    def __init__(
        self,
        parameters: FloatVector,
        learning_rate: float | LearningRate,
        workers: int,
        options: AdaSyncOptions,
    ) -> None:
        """Start at version 0, with K₀.

        Args:
            parameters: w_0.
            learning_rate: η.
            workers: P.
        """
        super().__init__(parameters, learning_rate, options.first, protocol_of(options))
        self._variant = options.variant
        self._workers = workers
        self._first = options.first
        self._loss = 0.0
        self._loss_at_first: float | None = None

    @property
    def _takes_stale(self) -> bool:
        return self._variant in {"k-async", "k-batch-async"}

    @property
    def _takes_several(self) -> bool:
        return self._variant in {"k-batch-sync", "k-batch-async"}

    @property
    def _complete(self) -> bool:
        # A worker that is there can always give one more.
        return self._count >= self.wait_for if self._takes_several else super()._complete

    def push(
        self,
        worker: int,
        update: Update,
        base_version: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        if self._takes_several:
            self._sent.pop(worker, None)  # it may have the version again
        delay = self._check_base(base_version)
        at = self.version if self._takes_stale else base_version
        taken = super().push(worker, update, at, loss=loss, time=time)
        return None if taken is None else delay

    def _gather(self, worker: int, update: Update, loss: float, time: float) -> None:
        super()._gather(worker, update, loss, time)
        if self._takes_several:
            self._taken.discard(worker)
        self._loss += loss

    def _stepping(self, mean: FloatVector, k: int, time: float) -> None:
        self._loss /= k
        if self._loss_at_first is None:
            self._loss_at_first = self._loss

    def _stepped(self, time: float) -> None:
        assert self._loss_at_first is not None
        self._diagnosis = {**self._diagnosis, "loss": self._loss}
        self.wait_for = gradients_to_wait_for(
            self._variant, self._workers, self._first, self._loss_at_first, self._loss
        )
        self._loss = 0.0


def protocol_of(options: AdaSyncOptions) -> Protocol:
    """Return how workers get parameters."""
    if options.protocol is not None:
        return options.protocol
    return "push-and-interrupt" if options.variant == "k-sync" else "pull"


class AdaSync(SynchronousAlgorithm):
    """AdaSync, in four variants."""

    options_type = AdaSyncOptions
    sliced = False
    diagnostics = (
        *SynchronousAlgorithm.diagnostics,
        Diagnostic("loss", "F: the mean loss of the update's mini-batches.", "training_loss"),
    )

    @staticmethod
    def protocol(options: AdaSyncOptions) -> Protocol:
        return protocol_of(options)

    @classmethod
    def gradients_per_update(cls, options: AdaSyncOptions, conditions: Conditions) -> int | None:
        return None

    @staticmethod
    def check(options: AdaSyncOptions, conditions: Conditions) -> None:
        if options.first > conditions.workers:
            raise SpecError(
                f"adasync: first is {options.first}, and there are only {conditions.workers} workers: "
                "begin with fewer gradients, or use more workers"
            )
        if options.variant != "k-sync" and protocol_of(options) != "pull":
            what = (
                "go on at the same version"
                if "batch" in options.variant
                else "send stale gradients"
            )
            raise SpecError(
                f"adasync: in {options.variant} workers {what}, and by {options.protocol} they do not: "
                "use protocol pull, or the variant k-sync"
            )

    @staticmethod
    def server(
        options: AdaSyncOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        return AdaSyncServer(parameters, conditions.rate, conditions.workers, options)

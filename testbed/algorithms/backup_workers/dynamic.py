"""DBW and B-DBW: the number of backup workers chosen before every iteration.

Xu et al. (paper 004), §3.3. The server waits for the k gradients that promise the largest decrease of
the loss per second, equations (18) and (19):

    k_t = max(argmax_k Ĝ_k / T̂_k, (k_{t-1} + 1)·1{F̂_{t-1} > β·F̂_{t-2} and k_{t-1} < n}),

and for all n where every gain is negative. B-DBW ("blind") is oblivious to the loss: its gain is k.
Until there is an estimate of each quantity, k = n. As at any synchronous server, k never exceeds the
gradients that can still come.

η is the learning rate for k = n, whatever k is. A server with a part of the parameters only would see
a part of the norms, so there is one server.
"""

import math
from typing import Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.backup_workers.gain import GainEstimator, Gradients
from testbed.algorithms.backup_workers.iteration_times import Estimator, IterationTimes, Untried
from testbed.algorithms.compression import SelectionOptions
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.interface import Conditions
from testbed.algorithms.learning_rate import LearningRate
from testbed.algorithms.server_half import Protocol, ServerHalf
from testbed.algorithms.synchronous_sgd import SynchronousAlgorithm, SynchronousServer
from testbed.updates import FloatVector, Layout, Update

_EQUAL = 1e-6
"""The relative difference of ratios that counts as none: the fit of equal times differs by 1e-7."""


class DynamicOptions(SelectionOptions):
    """The parameters of DBW: η is the experiment's learning rate."""

    name: Literal["dbw"] = "dbw"
    protocol: Protocol = Field(
        default="push-and-wait",
        description="How workers come by new parameters: push-and-wait (default, the paper's; the "
        "server sends every version to all, and a worker finishes what it computes first), "
        "push-and-interrupt (it drops what it computes) or pull (it asks when it has pushed).",
    )
    gain: Literal["estimated", "k"] = Field(
        default="estimated",
        description="The gain of waiting for k gradients: estimated from norms and variances "
        "(default), or k itself, which is B-DBW.",
    )
    average_over: int = Field(
        default=5,
        ge=1,
        repr=False,
        description="D, the iterations over which estimates are averaged.",
    )
    growth: float = Field(
        default=1.01,
        ge=1,
        repr=False,
        description="β: where the loss has grown to more than β times the one before, k grows.",
    )
    clip_smoothness: bool = Field(
        default=True,
        description="Whether a negative estimate of the smoothness L counts as 0, as no such constant "
        "is negative; their mean is greater then. The paper does not say.",
    )
    untried: Untried = Field(
        default="lowest",
        description="The time that is expected of a k that was not tried, between the bounds that the "
        "times of others give it: lowest (default), middle or highest. The paper does not say.",
    )
    times: Estimator = Field(
        default="fitted",
        description="The estimate of the time that waiting for k gradients takes: fitted (default; by "
        "(17), of the samples of all k together) or naive (the mean of the samples of k by itself, "
        "with which the paper compares it).",
    )
    time_samples: int | None = Field(
        default=None,
        ge=1,
        repr=False,
        description="Of the times of the i-th gradient after h were waited for, the last so many "
        "count. Default (null): all, as in the paper's text; 5 follows workers that become slower.",
    )


class DynamicServer(SynchronousServer):
    """A server's half that chooses k before every iteration."""

    not_saved = frozenset({"_options"})

    def __init__(
        self,
        parameters: FloatVector,
        learning_rate: float | LearningRate,
        workers: int,
        options: DynamicOptions,
    ) -> None:
        """Start at version 0, waiting for all workers.

        Args:
            parameters: w_0.
            learning_rate: η.
            workers: n.
        """
        super().__init__(parameters, learning_rate, workers, options.protocol)
        self._options = options
        self._all = np.arange(1, workers + 1)
        self._gradients = Gradients(len(parameters))
        self._estimator = GainEstimator(options.average_over, options.clip_smoothness)
        self._times = IterationTimes(workers, options.untried, options.time_samples, options.times)
        # By version: when it was made, how many gradients had been waited for, and how many have come;
        # only versions of which another may come.
        self._arrivals: dict[int, tuple[float, int, int]] = {0: (0.0, workers, 0)}
        # By worker: the last version of which its gradient or report came, or the one before it joined.
        self._last = dict.fromkeys(range(workers), -1)
        self._losses: list[float] = []
        expected = ("gain", "norm", "variance", "smoothness", "seconds")
        self._expected = dict.fromkeys(expected, math.nan)

    def _gather(self, worker: int, update: Update, loss: float, time: float) -> None:
        super()._gather(worker, update, loss, time)
        self._gradients.add(update, loss)
        self._came(worker, self.version, time)

    def _came_late(self, worker: int, base_version: int, time: float) -> None:
        super()._came_late(worker, base_version, time)
        self._came(worker, base_version, time)

    def _came(self, worker: int, version: int, time: float) -> None:
        """Take the time at which one more gradient of a version came for a sample."""
        self._last[worker] = version
        if version not in self._arrivals:
            return
        began, waited_for, count = self._arrivals[version]
        count += 1
        if count < len(self._all):
            self._arrivals[version] = began, waited_for, count
        else:
            del self._arrivals[version]
        if not math.isnan(time - began):
            self._times.add(waited_for, count, time - began)

    def _stepping(self, mean: FloatVector, k: int, time: float) -> None:
        self._losses = [*self._losses[-1:], self._gradients.loss / k]
        self._estimator.observe(self._gradients, self.learning_rate(self.version))
        self._gradients.clear()

    def _stepped(self, time: float) -> None:
        k = int(self._diagnosis["k"])
        self._diagnosis = {**self._diagnosis, **self._expected, "loss": self._losses[-1]}
        self._arrivals[self.version] = time, k, 0
        self._close()
        self.wait_for = self._best(k)

    def joined(self, worker: int) -> None:
        super().joined(worker)
        self._last[worker] = self.version - 1

    def forget(self, worker: int) -> None:
        self._last.pop(worker, None)
        super().forget(worker)
        self._close()

    def _close(self) -> None:
        """Forget the versions of which nothing can come: every worker has sent something newer.

        A worker's gradients come in the order of their versions, and need not be of every version.
        """
        there = self._last if self._there is None else self._there & self._last.keys()
        newest = min((self._last[worker] for worker in there), default=self.version)
        for old in [one for one in self._arrivals if one <= newest]:
            del self._arrivals[old]

    def _best(self, before: int) -> int:
        """Return k for the iteration that begins now, by (18) and (19)."""
        n = len(self._all)
        rate, gain = self.learning_rate(self.version), self._estimator.gain()
        seconds = self._times.estimate()
        if gain is None or seconds is None:
            return n
        gains = (
            self._all.astype(np.float64) if self._options.gain == "k" else gain.of(self._all, rate)
        )
        if (gains < 0).all():
            best = n
        else:
            # Of equal ratios the largest k: where all gradients come at one moment, waiting is free.
            ratios = gains / np.maximum(seconds, np.finfo(np.float64).tiny)
            best = int(self._all[ratios >= ratios.max() * (1 - _EQUAL)].max())
        grown = len(self._losses) > 1 and self._losses[1] > self._options.growth * self._losses[0]
        if grown and before < n:
            best = max(best, before + 1)
        self._expected = {
            "gain": float(gains[best - 1]),
            "norm": gain.norm,
            "variance": gain.spread,
            "smoothness": gain.smoothness,
            "seconds": float(seconds[best - 1]),
        }
        return best


class DynamicBackupWorkers(SynchronousAlgorithm):
    """DBW, and B-DBW by its option ``gain``."""

    options_type = DynamicOptions
    sliced = False
    imports = ("clarabel", "scipy.sparse")
    diagnostics = (
        *SynchronousAlgorithm.diagnostics,
        Diagnostic("gain", "Ĝ of the iteration's k, as it was expected: a decrease of the loss."),
        Diagnostic("norm", "The estimate of ‖∇F‖² before the iteration.", "gradient_norm"),
        Diagnostic("variance", "The estimate of V(g) before the iteration.", "gradient_variance"),
        Diagnostic("smoothness", "The estimate of L before the iteration."),
        Diagnostic("seconds", "T̂ of the iteration's k: the seconds that it was expected to take."),
        Diagnostic("loss", "F̂: the mean loss of the iteration's mini-batches.", "training_loss"),
    )

    @staticmethod
    def protocol(options: DynamicOptions) -> Protocol:
        return options.protocol

    @classmethod
    def gradients_per_update(cls, options: DynamicOptions, conditions: Conditions) -> int | None:
        return None

    @staticmethod
    def server(
        options: DynamicOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        return DynamicServer(parameters, conditions.rate, conditions.workers, options)

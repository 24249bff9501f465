"""Hierarchical SGD: each cluster's aggregator sums its devices' updates, and pushes one to the server.

Liu et al. (2020), "Client-edge-cloud hierarchical federated learning" (HierFAVG), put an edge
aggregator between devices and cloud. There, models are averaged after local steps; here gradients are
summed, as in this testbed's other algorithms with a server. With the updates g_i of the devices that
cluster a combines, aggregator a pushes (s_a, k_a), s_a = Σ g_i and k_a their number, and the server's
update is one of

    synchronous:   w ← w − η · Σ_a s_a / Σ_a k_a, of all aggregators, at the same version;
    asynchronous:  w ← w − η / max(1, σ) · s_a / k_a, of each when it arrives, σ its delay.

One cluster that combines all its devices is synchronous SGD, and clusters of one device under an
asynchronous server are ASGD, to the bit. Devices may push the largest entries of their updates only,
and aggregators those of their sums (``testbed.algorithms.compression``).
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.aggregator_half import AggregatorHalf
from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.compression import CompressionOptions, Ratio, Scope, compressing_worker
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.interface import AggregatedAlgorithm, Conditions
from testbed.algorithms.learning_rate import LearningRate
from testbed.algorithms.server_half import ServerHalf, UnexpectedMessageError
from testbed.algorithms.synchronous_sgd import SynchronousServer
from testbed.algorithms.worker_half import WorkerHalf
from testbed.errors import SpecError
from testbed.units import Duration
from testbed.updates import DenseUpdate, FloatVector, Layout, SparseUpdate, Update


class HierarchicalOptions(CompressionOptions):
    """The parameters of hierarchical SGD; by default all devices, whole gradients, synchronous."""

    name: Literal["hierarchical"] = "hierarchical"
    wait_for: int | None = Field(
        default=None,
        ge=1,
        description="k, the updates that an aggregator combines into one; those of all devices of its "
        "cluster if these are fewer. Default (null): all.",
    )
    within: Duration | None = Field(
        default=None,
        gt=0,
        description="The time after new parameters arrived at an aggregator at which it pushes what it "
        "has combined, or then the first update. Default (null): no time limit.",
    )
    server: Literal["synchronous", "asynchronous"] = Field(
        default="synchronous",
        description="synchronous (default): each update of the server is the mean over all clusters; "
        "asynchronous: each aggregator's push is an update, divided by its staleness.",
    )
    ratio: Ratio | None = Field(  # type: ignore[assignment] # a label names it only where it is given
        default=None,
        description="Compression ratio c of the devices: fraction of the gradient's entries that they "
        "push, the largest in magnitude. Default (null): whole gradients.",
    )
    aggregator_ratio: Ratio | None = Field(
        default=None,
        description="The same for what an aggregator pushes of its sum; 1: all entries that its "
        "devices have pushed. Default (null): ratio.",
    )
    scope: Scope = Field(
        default="tensor",
        description="Where the largest are sought: in each weight matrix and bias vector or over the "
        "whole model.",
    )


class SynchronousOverAggregators(SynchronousServer):
    """A server's half that divides the sums of all aggregators by the number of updates in them."""

    def __init__(
        self, parameters: FloatVector, learning_rate: float | LearningRate, aggregators: int
    ) -> None:
        super().__init__(parameters, learning_rate, aggregators, "pull")
        self._combined = 0

    def push_sum(
        self,
        worker: int,
        update: Update,
        base_version: int,
        count: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        before = self._combined
        if base_version == self.version and worker not in self._taken:
            self._combined += count
        try:
            return super().push(worker, update, base_version, loss=loss, time=time)
        except UnexpectedMessageError:
            self._combined = before
            raise

    def push(
        self,
        worker: int,
        update: Update,
        base_version: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        return self.push_sum(worker, update, base_version, 1, loss=loss, time=time)

    def pull(self, worker: int, *, time: float = math.nan) -> int | None:
        self.joined(worker)  # it may have reported that it had no devices
        return super().pull(worker, time=time)

    def finished(self, worker: int, base_version: int, *, time: float = math.nan) -> None:
        """Go on without an aggregator that has no devices, until it asks again."""
        self.forget(worker)

    @property
    def _divisor(self) -> int:
        return self._combined

    def _stepped(self, time: float) -> None:
        self._diagnosis = {"combined": self._combined}
        self._combined = 0


class AsynchronousOverAggregators(StalenessDivided):
    """A server's half that applies the mean of each aggregator's updates when it arrives."""

    def __init__(self, parameters: FloatVector, learning_rate: float | LearningRate) -> None:
        super().__init__(parameters, learning_rate)
        self._combined = 0

    def push_sum(
        self,
        worker: int,
        update: Update,
        base_version: int,
        count: int,
        *,
        loss: float = math.nan,
        time: float = math.nan,
    ) -> int | None:
        mean = update.values / np.float32(count)
        of_one: Update = DenseUpdate(mean)
        if isinstance(update, SparseUpdate):
            of_one = SparseUpdate(update.indices, mean)
        delay = self.push(worker, of_one, base_version, loss=loss, time=time)
        self._combined = count
        return delay

    def diagnose(self) -> Mapping[str, float]:
        return {"combined": self._combined}


class Hierarchical(AggregatedAlgorithm):
    """Hierarchical SGD: sums at the edge, one update per cluster to the server."""

    options_type = HierarchicalOptions
    scheduled = True
    diagnostics: ClassVar[tuple[Diagnostic, ...]] = (
        Diagnostic("combined", "Updates of devices that were combined in the server's update."),
    )

    @classmethod
    def averages(cls, options: HierarchicalOptions) -> bool:
        return options.pushes_whole_gradients and options.aggregator_ratio is None

    @classmethod
    def gradients_per_update(cls, options: HierarchicalOptions, conditions: Conditions) -> None:
        """Return None: it depends on which devices are in time."""

    @classmethod
    def synchronous(cls, options: HierarchicalOptions) -> bool:
        return True

    @staticmethod
    def check(options: HierarchicalOptions, conditions: Conditions) -> None:
        if options.wait_for is not None and options.wait_for > conditions.workers:
            raise SpecError(
                f"hierarchical: wait_for is {options.wait_for}, and there are only "
                f"{conditions.workers} workers: wait for fewer updates, or use more workers"
            )

    @staticmethod
    def worker(options: HierarchicalOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return compressing_worker(options, layout, options.scope)

    @staticmethod
    def aggregator(
        options: HierarchicalOptions,
        layout: Layout,
        parameters: FloatVector,
        devices: int,
        conditions: Conditions,
    ) -> AggregatorHalf:
        ratio = options.ratio if options.aggregator_ratio is None else options.aggregator_ratio
        above = None
        if ratio is not None and ratio < 1:
            own = options.model_copy(update={"ratio": ratio})
            above = compressing_worker(own, layout, options.scope)
        return AggregatorHalf(
            parameters, above, wait_for=options.wait_for or devices, within=options.within
        )

    @staticmethod
    def server(
        options: HierarchicalOptions,
        layout: Layout,
        parameters: FloatVector,
        conditions: Conditions,
    ) -> ServerHalf:
        if options.server == "asynchronous":
            return AsynchronousOverAggregators(parameters, conditions.rate)
        # It waits for all aggregators that are present, which are at most as many as the workers.
        return SynchronousOverAggregators(parameters, conditions.rate, conditions.workers)

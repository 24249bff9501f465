"""Comp-ASGD: ASGD that pushes only the largest gradients.

AdaComp (paper 001, §III-B and §V-B), the competitor: the selection of Shokri and Shmatikov (the
fraction c of largest magnitude, over the whole model) and ASGD's global staleness. What is not sent
is forgotten.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.interface import (
    Algorithm,
    FloatVector,
    Layout,
    Options,
    Scope,
    ServerHalf,
    SparseUpdate,
    WorkerHalf,
    scopes,
)
from testbed.algorithms.selection import Largest, kept


class CompAsgdOptions(Options):
    """Comp-ASGD's parameters."""

    name: Literal["comp-asgd"] = "comp-asgd"
    ratio: float = Field(
        default=0.01,
        gt=0,
        le=1,
        description="Compression ratio c: fraction of the gradient's entries that a worker pushes, "
        "the largest in magnitude. 1 pushes all of them (ASGD).",
    )
    scope: Scope = Field(
        default="model",
        description="Where the largest are sought: over the whole model (the paper's competitor, "
        "after Shokri and Shmatikov) or in each tensor by itself (AdaComp's selection).",
    )


class LargestEntries(WorkerHalf):
    """SELECT_GRAD (Algorithm 1): keep max(1, ⌊c·size⌋) entries of each scope."""

    def __init__(self, layout: Layout, ratio: float, scope: Scope) -> None:
        self._parts = [
            (s, Largest(s.stop - s.start, kept(ratio, s.stop - s.start)))
            for s in scopes(layout, scope)
        ]

    def compress(self, gradient: FloatVector) -> SparseUpdate:
        indices = np.concatenate(
            [largest(gradient[s]) + np.uint32(s.start) for s, largest in self._parts]
        )
        return SparseUpdate(indices, gradient[indices])


class CompAsgd(Algorithm):
    options_type = CompAsgdOptions

    @staticmethod
    def worker(options: CompAsgdOptions, layout: Layout) -> WorkerHalf:
        return LargestEntries(layout, options.ratio, options.scope)

    @staticmethod
    def server(
        options: CompAsgdOptions, layout: Layout, parameters: FloatVector, learning_rate: float
    ) -> ServerHalf:
        return StalenessDivided(parameters, learning_rate)

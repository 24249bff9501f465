"""Comp-ASGD: ASGD that pushes only some entries of the gradient.

The competitor in AdaComp (paper 001, §III-B and §V-B): the selection of Shokri and Shmatikov (the
fraction c of largest magnitude, or random entries, over the whole model) with ASGD's global staleness.
Entries that are not sent are forgotten, unless the options ask for error feedback.
"""

from typing import Literal

from pydantic import Field

from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.compression import (
    CompressionOptions,
    RandomEntries,
    Scope,
    compressing_worker,
)
from testbed.algorithms.interface import AsynchronousOptions, Conditions, ServedAlgorithm
from testbed.algorithms.server_half import ServerHalf
from testbed.algorithms.worker_half import WorkerHalf
from testbed.updates import FloatVector, Layout


class CompAsgdOptions(CompressionOptions, AsynchronousOptions):
    """Comp-ASGD's parameters; with ratio 1 it is ASGD."""

    name: Literal["comp-asgd"] = "comp-asgd"
    scope: Scope = Field(
        default="model",
        description="Where the largest are sought: over the whole model (the paper's competitor, "
        "after Shokri and Shmatikov) or in each tensor by itself (AdaComp's selection).",
    )
    selection: Literal["largest", "random"] = Field(
        default="largest",
        description="Which entries are pushed: those of largest magnitude (default), or as many that "
        "are drawn anew for each gradient (Shokri and Shmatikov's other rule).",
    )


class CompAsgd(ServedAlgorithm):
    """Comp-ASGD: some entries from the workers, one staleness per update."""

    options_type = CompAsgdOptions
    scheduled = True

    @staticmethod
    def worker(options: CompAsgdOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        selecting = None
        if options.selection == "random":
            selecting = RandomEntries(layout, options.ratio, options.scope, conditions)
        return compressing_worker(options, layout, options.scope, selecting)

    @staticmethod
    def server(
        options: CompAsgdOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        return StalenessDivided(parameters, conditions.rate)

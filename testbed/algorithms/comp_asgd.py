"""Comp-ASGD: ASGD that pushes only the largest gradients.

AdaComp (paper 001, §III-B and §V-B), the competitor: the selection of Shokri and Shmatikov (the
fraction c of largest magnitude, over the whole model) and ASGD's global staleness. What is not sent
is forgotten, unless error feedback is asked for.
"""

from typing import Literal

from pydantic import Field

from testbed.algorithms.asgd import StalenessDivided
from testbed.algorithms.compression import CompressionOptions, compressing_worker
from testbed.algorithms.interface import Conditions, Scope, ServedAlgorithm, ServerHalf, WorkerHalf
from testbed.updates import FloatVector, Layout


class CompAsgdOptions(CompressionOptions):
    """Comp-ASGD's parameters; with ratio 1 it is ASGD."""

    name: Literal["comp-asgd"] = "comp-asgd"
    scope: Scope = Field(
        default="model",
        description="Where the largest are sought: over the whole model (the paper's competitor, "
        "after Shokri and Shmatikov) or in each tensor by itself (AdaComp's selection).",
    )


class CompAsgd(ServedAlgorithm):
    options_type = CompAsgdOptions

    @staticmethod
    def worker(options: CompAsgdOptions, layout: Layout, conditions: Conditions) -> WorkerHalf:
        return compressing_worker(options, layout, options.scope)

    @staticmethod
    def server(
        options: CompAsgdOptions, layout: Layout, parameters: FloatVector, conditions: Conditions
    ) -> ServerHalf:
        return StalenessDivided(parameters, conditions.learning_rate)

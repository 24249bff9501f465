"""The experiment file's sections on simulations and on checkpoints."""

from typing import Literal

from pydantic import Field

from testbed.experiment.sections.section import Section


class SimulationSpec(Section):
    """The computation of gradients in a simulation; without effect in an emulation."""

    batched: bool = Field(
        default=False,
        description="Compute the gradients of all outstanding workers together when one of them is "
        "needed; equal to the serial ones up to rounding. Default false: one after the other, to the "
        "bit as in an emulation.",
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="What computes gradients; cuda (always batched) needs a GPU."
    )


class CheckpointSpec(Section):
    """The checkpoints from which an interrupted run goes on."""

    every: int | None = Field(
        default=None,
        ge=1,
        description="Updates from one checkpoint to the next; default (null): none, and a run that is "
        "continued starts from the beginning.",
        examples=[1000],
    )

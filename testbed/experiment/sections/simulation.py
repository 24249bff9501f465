"""The experiment file's sections on simulations and on checkpoints."""

from collections.abc import Collection
from typing import Literal

from pydantic import Field

from testbed.experiment.sections.section import Section, SparseSection


class ExactSpec(Section):
    """The exact loss and gradient of training images at evaluations, to compare estimates with."""

    images: int | None = Field(
        default=None,
        ge=1,
        description="Use only this many training images, the first ones; default (null): all.",
    )
    gradient: bool = Field(
        default=True,
        description="Compute also the norm of the loss's gradient, and the variance of a mini-batch's: "
        "one gradient for each batch_size images. Default true; false: the loss only, which takes a "
        "third of the time.",
    )


class SimulationSpec(SparseSection):
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
    processors: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="The number of processors on which gradients are computed, to the bit as on one; "
        "1 starts no further process. Default (null): all that the run may use, where it takes long "
        "enough.",
        examples=[2],
    )
    exact: ExactSpec | None = Field(
        default=None,
        description="Compute the loss of the training images, ‖∇F‖² and V(g), at each evaluation; it "
        "changes no result. Default (null): do not.",
        examples=[{"images": 5000}],
    )

    def _written(self) -> Collection[str]:
        return "batched", "device"


class CheckpointSpec(Section):
    """The checkpoints from which an interrupted run goes on."""

    every: int | None = Field(
        default=None,
        ge=1,
        description="Updates from one checkpoint to the next; default (null): none, and a run that is "
        "continued starts from the beginning. In a run of peers, also a peer's own steps from one "
        "checkpoint of its parameters to the next, from which it goes on after a kill; an emulation "
        "of peers that is continued starts from the beginning.",
        examples=[1000],
    )

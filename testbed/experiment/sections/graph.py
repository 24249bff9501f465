"""The experiment file's graph of routers, to which devices are attached."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from testbed.experiment.sections.directions import SMALLEST_QUEUE
from testbed.experiment.sections.section import SparseSection
from testbed.experiment.sections.timing import file_beside
from testbed.units import Duration, Limit, Percentage, Size


class GraphSpec(SparseSection):
    """Routers and the links between them, from a file or from the package topohub."""

    file: Annotated[str, AfterValidator(file_beside)] | None = Field(
        default=None,
        description="A graph in GraphML (.graphml) or in networkx's node-link JSON; relative to the "
        "experiment file's folder.",
        examples=["campus.graphml"],
    )
    topohub: str | None = Field(
        default=None,
        description="Name of a topology of the Python package topohub, instead of a file.",
        examples=["sndlib/germany50"],
    )
    attach: Literal["random", "in-turn"] = Field(
        default="random",
        description="Where devices are attached: random: at routers drawn by the seed (default); "
        "in-turn: at one router after the other, in the graph's order.",
    )
    server: str | None = Field(
        default=None,
        description="Name of the router at which the server is; default (null): the one with the "
        "shortest ways to all others.",
        examples=["Frankfurt"],
    )
    rate: Limit | None = Field(
        default=None,
        description="Rate of links that say none, in bit/s; default (null, or unlimited): not limited.",
        examples=["1gbit"],
    )
    delay: Duration | None = Field(
        default=None,
        description="Delay of links that say none, in seconds each way; default (null): that of light "
        "in a fibre of the link's length, where the graph says that (dist, in km), and 0 elsewhere.",
        examples=["2ms"],
    )
    jitter: Duration | None = Field(
        default=None,
        description="Jitter of links that say none, in seconds each way, as network.jitter; no link's "
        "delay may be shorter. Default: none.",
        examples=["1ms"],
    )
    loss: Percentage | None = Field(
        default=None,
        description="Share of packets lost on links that say none, each way; wall clock. Default: "
        "none.",
    )
    queue: Size | None = Field(
        default=None,
        ge=SMALLEST_QUEUE,
        description="Bytes that may wait for a link's rate, of each pair of devices that share it, on "
        "links that have a rate; wall clock. Default: 1,000 packets.",
        examples=["64kB"],
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> "GraphSpec":
        if (self.file is None) == (self.topohub is None):
            raise ValueError("give it one source: a file, or the name of a topology of topohub")
        return self

    def _written(self) -> Collection[str]:
        return ("attach",)

    @property
    def source(self) -> str:
        """The file or topology, for people."""
        return self.topohub or str(self.file)

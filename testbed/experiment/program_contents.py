"""The experiment file of programs of users: every field with its unit, default and meaning."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator

from testbed.experiment.alternatives import ShortForm
from testbed.experiment.contents import Contents
from testbed.experiment.device_links import AskedLink, link_of
from testbed.experiment.labels import RESERVED, check_experiment, check_name
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.sections.devices import DevicesSpec
from testbed.experiment.sections.faults import FaultSpec
from testbed.experiment.sections.network import NetworkSpec, TrafficSpec
from testbed.experiment.sections.programs import (
    Existing,
    LimitsSpec,
    MeasuredSpec,
    NodeSpec,
    ProgramSpec,
)
from testbed.experiment.sections.section import Section, as_tuple
from testbed.experiment.sections.sweep import SweepSpec
from testbed.experiment.sections.traffic_between import FLOWS, FlowsSpec

Node = Annotated[NodeSpec, ShortForm((), open_ended=True)]
"""A machine's name, or a mapping with its link."""


class ProgramContents(Section):
    """The contents of an experiment file of programs, each section checked by itself."""

    name: str = Field(
        description="Name of the experiment and of its folder: letters, digits, '-', '_' and '.'.",
        examples=["flower-at-home"],
    )
    label: str | None = Field(
        default=None,
        description="Name of the run in folders, tables and figures; default (null): that of the "
        "experiment.",
        examples=["fedavg"],
    )
    seed: int = Field(
        default=1,
        ge=0,
        le=2**63 - 1,
        description="Seed of the faults and of the links' traces; programs find it in $TESTBED_SEED "
        "and as {seed}; default 1.",
    )
    engine: Literal["emulation", "simulation"] = Field(
        default="emulation", description="Only emulation: programs are not simulated."
    )
    clock: Literal["wall", "virtual"] = Field(
        default="wall", description="Only wall: programs run in real time."
    )
    programs: dict[str, ProgramSpec] = Field(
        min_length=1,
        description="The programs by their names: where each runs, what, and after which others.",
        examples=[{"hello": {"on": "workers", "run": "echo hello"}}],
    )
    measure: MeasuredSpec | None = Field(
        default=None,
        description="Where measurements are read, from which comes the curve of accuracy against "
        "ingress; default (null): there is none.",
        examples=[{"from": "job", "pattern": "accuracy=(?P<accuracy>[0-9.]+)"}],
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables of all programs; default: none. {name}, {index} and the "
        "others are replaced as in `run`.",
        examples=[{"OMP_NUM_THREADS": "1"}],
    )
    files: Annotated[tuple[Existing, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Files and folders of which each device gets a copy in its home; relative to the "
        "experiment file's folder; default: none.",
        examples=[["app"]],
    )
    reads: Annotated[tuple[Existing, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="Files and folders that programs read where they are on this host, such as a "
        "dataset; default: none.",
        examples=[["/srv/mnist"]],
    )
    devices: DevicesSpec = Field(
        description="The emulated machines: the workers.", examples=[{"workers": 20}]
    )
    nodes: Annotated[tuple[Node, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="More machines, each with a link of its own: names, or mappings with the keys of a "
        "link; default: none.",
        examples=[["client", {"name": "broker", "uplink": "100mbit"}]],
    )
    network: NetworkSpec = Field(
        default_factory=NetworkSpec,
        description="Every worker's link; default: not shaped.",
    )
    faults: Annotated[tuple[FaultSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="The faults: which devices they strike, when, how, and for how long; the seed "
        "decides. Default: none.",
        examples=[[{"when": {"time": "30s"}, "how": "kill", "lasting": "10s"}]],
    )
    traffic: TrafficSpec = Field(
        default_factory=TrafficSpec,
        description="How the traffic at the server's link is watched; default: captured.",
    )
    traffic_between: FlowsSpec = FLOWS
    limits: LimitsSpec = Field(
        default_factory=LimitsSpec, description="How long the run may take; default: one hour."
    )
    sweep: SweepSpec | None = Field(
        default=None,
        exclude=True,  # the spec of a run has none
        description="The values of keys, as --set has them, of which `testbed sweep` runs every "
        "combination; default: the file is one experiment.",
        examples=[{"seed": [1, 2, 3]}],
    )

    _check_name = field_validator("name")(check_experiment)

    @field_validator("label")
    @classmethod
    def _check_label(cls, label: str | None) -> str | None:
        if label is not None and check_name(label) in RESERVED:
            raise ValueError(f"'{label}' is taken by the run directory: use another")
        return label

    @property
    def peers(self) -> list[str]:
        """None: there is a machine called the server."""
        return []

    @property
    def run_label(self) -> str:
        """The name of the run."""
        return self.label or self.name

    def link_of(self, one: DeviceClassSpec | None) -> AskedLink:
        """Return the link of a class's devices, with its traces; of all devices if it is None."""
        return link_of(*([] if one is None else [one]), self.network)


AnyContents: TypeAlias = Contents | ProgramContents
"""An experiment whose machines run algorithms or programs: devices, links and faults are alike."""

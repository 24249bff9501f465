"""The sections of an experiment file as one type: every field with its unit, default and meaning."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from testbed.algorithms import ALGORITHMS, algorithm_named, has, plugin_options
from testbed.algorithms.interface import Conditions, Options
from testbed.algorithms.learning_rate import ConstantRate
from testbed.encoding_choice import EncodingChoice, Pulls
from testbed.experiment.alternatives import ChosenByValue, OrOwn, ShortForm
from testbed.experiment.device_links import AskedLink, link_of
from testbed.experiment.labels import check_experiment
from testbed.experiment.profiles import HARDWARE
from testbed.experiment.sections.datasets import (
    DATASETS,
    DatasetSpec,
    HuggingFaceSpec,
    TextSpec,
    function_section,
)
from testbed.experiment.sections.device_classes import DeviceClassSpec, mean_over_devices
from testbed.experiment.sections.devices import SUSPECT_AFTER, DevicesSpec
from testbed.experiment.sections.faults import FaultSpec
from testbed.experiment.sections.learning import (
    MODELS,
    TRANSFORMER,
    EvaluationSpec,
    ModelSpec,
    TrainingSpec,
    TransformerSpec,
    plugin_model,
)
from testbed.experiment.sections.losses import LOSSES, LossSpec, own_loss
from testbed.experiment.sections.network import NetworkSpec, TrafficSpec
from testbed.experiment.sections.partition import EqualPartition, PartitionSpec
from testbed.experiment.sections.plugins import PluginSpec, of_several_names
from testbed.experiment.sections.section import Section, as_tuple
from testbed.experiment.sections.simulation import CheckpointSpec, SimulationSpec
from testbed.experiment.sections.sweep import SweepSpec
from testbed.experiment.sections.timing import (
    ComputeSpec,
    CostsSpec,
    DrawnSpec,
    DurationSpec,
    PlainSpec,
    WaitingSpec,
)
from testbed.experiment.sections.traffic_between import FLOWS, FlowsSpec

AlgorithmSpec: TypeAlias = Annotated[
    Options,
    ChosenByValue("name"),
    OrOwn("name", plugin_options),
    ShortForm(tuple(ALGORITHMS), own=True),
]
"""The options of any algorithm in the registry, or of a plug-in."""

PluginEntry: TypeAlias = Annotated[PluginSpec, ShortForm((), open_ended=True, key="file")]
"""A plug-in's file: its path, or a mapping."""


class Contents(Section):
    """The contents of an experiment file, each section checked by itself."""

    name: str = Field(
        description="Name of the experiment and of its folder: letters, digits, '-', '_' and '.'.",
        examples=["quickstart"],
    )
    seed: int = Field(
        default=1,
        ge=0,
        le=2**63 - 1,
        description="Seed of every random number of the experiment; default 1.",
    )
    plugins: Annotated[
        tuple[PluginEntry, ...], BeforeValidator(as_tuple), AfterValidator(of_several_names)
    ] = Field(
        default=(),
        description="Python files with algorithms of one's own, named `module:Class` under "
        "`algorithms`; default: none. What is installed needs no entry here.",
        examples=[["rules.py"]],
    )
    dataset: Annotated[
        DatasetSpec,
        OrOwn("name", function_section, also=(TextSpec, HuggingFaceSpec)),
        ShortForm(DATASETS, open_ended=True),
    ] = Field(description="The dataset: a name or a directory, or a mapping.", examples=["digits"])
    model: Annotated[
        ModelSpec,
        OrOwn("name", plugin_model, also=(TransformerSpec,)),
        ShortForm((*MODELS, TRANSFORMER), own=True),
    ] = Field(description="The model: a name or a mapping.", examples=["cnn"])
    loss: Annotated[LossSpec | None, OrOwn("name", own_loss), ShortForm(LOSSES, own=True)] = Field(
        default=None,
        description="What gradients are taken of: a name or a mapping; default (null): next-token of "
        "tokens, else classification.",
        examples=["classification"],
    )
    training: TrainingSpec = Field(
        description="The training settings of all algorithms.", examples=[{"updates": 1000}]
    )
    engine: Literal["emulation", "simulation"] = Field(
        default="emulation",
        description="emulation: every device is a node with a network of its own (default); "
        "simulation: the same decisions, messages and parameters in one process, wire bytes modelled.",
    )
    clock: Literal["wall", "virtual"] = Field(
        default="wall",
        description="wall: devices wait and links are shaped, in real time (default); virtual: times "
        "are computed and never waited for, and a run is the same to the bit whatever the host's load. "
        "A simulation has only the virtual clock.",
    )
    algorithms: Annotated[tuple[AlgorithmSpec, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1,
        description="The algorithms, one run each: names, or mappings with their options.",
        examples=[["asgd"]],
    )
    encoding: EncodingChoice = Field(
        default_factory=EncodingChoice,
        description="How updates are encoded: plain (32-bit indices), compact (the shortest exact "
        "indices; default), compact-16 and compact-8 (with float16 or 8-bit values), or a mapping. "
        "An algorithm's entry may have its own.",
        examples=["compact"],
    )
    pulls: Pulls = Field(
        default="full",
        description="What a worker pulls: full, all parameters (default), or changed, the exact "
        "values of those that changed since its last pull. An algorithm's entry may have its own.",
    )
    devices: DevicesSpec = Field(description="The emulated machines.", examples=[{"workers": 20}])
    partition: PartitionSpec = Field(
        default_factory=EqualPartition,
        description="How the training images are distributed among the workers: a kind, equal by "
        "default, or a mapping.",
        examples=[{"kind": "dirichlet", "alpha": 0.5}],
    )
    network: NetworkSpec = Field(
        default_factory=NetworkSpec,
        description="Every worker's link; default: not shaped.",
    )
    compute: ComputeSpec = Field(
        default_factory=lambda: PlainSpec(distribution="constant"),
        description="The time that a device takes to compute a gradient; default: none. A round trip "
        "drawn as a whole (as in DBW) is this, on links that are not shaped.",
        examples=[{"distribution": "cvb", "mean": "100ms"}],
    )
    waiting: WaitingSpec = Field(
        default_factory=lambda: PlainSpec(distribution="exponential"),
        description="The time that a worker waits between computing and pushing; default: none.",
        examples=[{"distribution": "exponential", "mean": "100ms"}],
    )
    costs: CostsSpec | None = Field(
        default=None,
        description="The processor time that messages cost servers under the virtual clock; "
        "`python -m bench.costs` measures it. Default (null): none.",
        examples=[{"message": "50us", "byte": "0.3ns", "apply": "1ns"}],
    )
    evaluation: EvaluationSpec = Field(
        default_factory=EvaluationSpec,
        description="How the model is tested while it learns; default: every 100 updates.",
    )
    checkpoints: CheckpointSpec = Field(
        default_factory=CheckpointSpec,
        description="The checkpoints from which an interrupted run goes on; default: none.",
    )
    faults: Annotated[tuple[FaultSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="The faults: which devices they strike, when, how, and for how long; the seed "
        "decides. Default: none.",
        examples=[[{"when": {"probability": 0.0004}, "how": "freeze"}]],
    )
    traffic: TrafficSpec = Field(
        default_factory=TrafficSpec,
        description="How the traffic at the server's link is watched; default: captured.",
    )
    traffic_between: FlowsSpec = FLOWS

    simulation: SimulationSpec = Field(
        default_factory=SimulationSpec,
        description="How a simulation computes; default: serially, on the processor.",
    )

    sweep: SweepSpec | None = Field(
        default=None,
        exclude=True,  # the spec of a run has none
        description="The values of keys, as --set has them, of which `testbed sweep` runs every "
        "combination; default: the file is one experiment.",
        examples=[{"seed": [1, 2, 3], "algorithms.adacomp.ratio": [0.1, 0.01]}],
    )

    _check_name = field_validator("name")(check_experiment)

    @property
    def peers(self) -> list[str]:
        """The names of the algorithms that have no server."""
        return [options.name for options in self.algorithms if not has(options.name, "server")]

    def suspect_after(self, options: Options) -> float | None:
        """Return the seconds of silence after which a worker is suspected; None: never."""
        devices = self.devices
        if "suspect_after" in devices.model_fields_set:
            return devices.suspect_after
        if not has(options.name, "server"):
            return SUSPECT_AFTER
        if has(options.name, "aggregator"):
            return None
        return SUSPECT_AFTER if algorithm_named(options.name).synchronous(options) else None

    def conditions(self, options: Options) -> Conditions:
        """Return the conditions of a run for the check of its options, before it has settings.

        They equal those that ``Settings.conditions`` makes of its settings, but for a schedule,
        and before images are shared out.
        """
        learning_rate = options.learning_rate or self.training.learning_rate
        return Conditions(
            learning_rate,
            self.devices.workers,
            self.training.batch_size,
            self.training.updates,
            self.link_of(None).up.rate,
            self.gradient_time,
            # A schedule in epochs needs the number of images, which the file does not have.
            ConstantRate(learning_rate) if self.training.schedule is None else None,
            self.clock == "wall",
            self.seed,
        )

    def times_of(self, one: DeviceClassSpec | None) -> tuple[DurationSpec, DurationSpec]:
        """Return the sections ``compute`` and ``waiting`` of a class; of all devices if it is None.

        Hardware multiplies the mean of the general time to compute.
        """
        hardware = (
            self.devices.hardware if one is None else one.of("hardware", self.devices.hardware)
        )
        compute = self.compute
        if hardware is not None and isinstance(compute, DrawnSpec):
            # To the nanosecond: rounding errors would make long texts.
            mean = round(compute.mean * HARDWARE[hardware].factor, 9)
            compute = compute.model_copy(update={"mean": mean})
        if one is None:
            return compute, self.waiting
        return one.of("compute", compute), one.of("waiting", self.waiting)

    def link_of(self, one: DeviceClassSpec | None) -> AskedLink:
        """Return the link of a class's devices, with its traces; of all devices if it is None."""
        return link_of(*([] if one is None else [one]), self.network)

    @property
    def gradient_time(self) -> float | None:
        """The mean time of computing and waiting; None under the wall clock or with a trace."""
        classes = self.devices.classes
        by_class: list[tuple[DrawnSpec, ...]] = []
        for one in classes or (None,):
            drawn = tuple(part for part in self.times_of(one) if isinstance(part, DrawnSpec))
            by_class.append(drawn)
        if self.clock == "wall" or any(len(drawn) < 2 for drawn in by_class):
            return None
        if not classes:
            return sum(
                part.mean * (sum(one.share * one.factor for one in part.classes) or 1.0)
                for part in by_class[0]
            )
        sizes = self.devices.class_sizes
        return sum(mean_over_devices(parts, sizes) for parts in zip(*by_class, strict=True))

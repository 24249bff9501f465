"""The experiment file as types: every field with its unit, its default and its meaning.

The models are frozen and accept nothing they do not know. They check what can be checked without
data and without this host; durations, rates and shares are written as people write them
(``testbed.experiment.units``). A spec is *resolved* when it stands alone: datasets in a directory
have an absolute path, and everything left out has its default.
"""

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from testbed.algorithms import ALGORITHMS, is_served, served
from testbed.algorithms.interface import Conditions, Options
from testbed.errors import SpecError
from testbed.experiment.class_section import DeviceClassSpec, mean_over_devices
from testbed.experiment.device_section import SUSPECT_AFTER, DevicesSpec
from testbed.experiment.fault_section import ClassFaultSpec, FaultSpec
from testbed.experiment.labels import RESERVED, check_name, labels
from testbed.experiment.partition_section import KINDS, PartitionSpec
from testbed.experiment.section import Section, as_tuple
from testbed.experiment.short_form import Registered, ShortForm
from testbed.experiment.timing import ComputeSpec, DurationSpec, WaitingSpec
from testbed.experiment.units import Duration, Percentage, Rate, Size
from testbed.roles.settings import worker_name
from testbed.wire.choice import EncodingChoice, Pulls

DATASETS = ("digits", "mnist", "fashion-mnist")
MODELS = ("cnn", "mlp", "mlp-large")
FOLDER = "folder"
"""Key of the validation context: the folder against which relative directories are resolved."""


class DatasetSpec(Section):
    """What is learnt."""

    name: str = Field(
        description="digits (bundled, 1,797 images upscaled to 28×28), mnist, fashion-mnist, or a "
        "directory of idx files; a relative one is sought beside the experiment file.",
        examples=list(DATASETS),
    )
    scaling: Literal["standardised", "unit"] = Field(
        default="standardised",
        description="standardised: (x − mean) / max(std, 1/28) per image, as AdaComp's authors do; "
        "unit: x / 255, from 0 to 1.",
    )
    train_images: int | None = Field(
        default=None,
        ge=1,
        description="Train on this many images only, the first of a shuffle by the seed; "
        "default (null): all.",
    )

    @property
    def directory(self) -> Path | None:
        """The directory of idx files; None for a dataset known by its name."""
        return None if self.name in DATASETS else Path(self.name)

    @field_validator("name")
    @classmethod
    def _known_or_directory(cls, name: str, info: ValidationInfo) -> str:
        folder: Path | None = (info.context or {}).get(FOLDER)
        if name in DATASETS or (folder is None and Path(name).is_absolute()):
            return name
        if folder is not None:
            directory = (folder / Path(name).expanduser()).resolve()
            if name and directory.is_dir():
                return str(directory)
        near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
        raise ValueError(
            f"'{name}' is neither a dataset ({', '.join(DATASETS)}) nor an existing directory"
            + (f"; did you mean '{near[0]}'?" if near else "")
        )


class ModelSpec(Section):
    """What learns."""

    name: Literal["cnn", "mlp", "mlp-large"] = Field(
        description="cnn: AdaComp's convolutional network, 211,690 parameters on 28×28; mlp: "
        "784-128-64-10, 109,386 parameters; mlp-large: 784-512-512-10.",
    )
    initialisation: Literal["paper", "torch"] = Field(
        default="paper",
        description="paper: weights normal with σ = 0.1, truncated at 2σ, biases 0.1, as AdaComp's "
        "authors do; torch: the defaults of PyTorch's layers.",
    )


class TrainingSpec(Section):
    """How it is learnt, whatever the algorithm."""

    batch_size: int = Field(
        default=10, ge=1, description="Images per gradient, b; default 10, as AdaComp's authors."
    )
    learning_rate: float = Field(
        default=0.1,
        gt=0,
        description="Learning rate α before staleness; default 0.1, as AdaComp's authors.",
    )
    updates: int = Field(
        ge=1,
        description="A run ends after this many updates applied by the server, all workers' "
        "together.",
        examples=[1000],
    )


class NetworkSpec(Section):
    """Every worker's link."""

    uplink: Rate | None = Field(
        default=None,
        description="Rate from a worker to the server, in bit/s; default (null): not shaped.",
    )
    downlink: Rate | None = Field(
        default=None,
        description="Rate from the server to a worker, in bit/s; default (null): not shaped.",
    )
    delay: Duration = Field(
        default=0.0,
        description="Delay added on the uplink, in seconds; default 0. Needs the kernel's netem.",
    )
    loss: Percentage = Field(
        default=0.0,
        description="Share of a worker's uplink packets that is lost at random; default 0. "
        "Needs the kernel's netem.",
    )


class EvaluationSpec(Section):
    """How the model is tested while it learns."""

    every: int = Field(
        default=100,
        ge=1,
        description="Updates from one test to the next; default 100. The end is tested too.",
    )
    images: int | None = Field(
        default=None,
        ge=1,
        description="Test on the first so many test images; default (null): all.",
    )
    peer: int = Field(
        default=0,
        ge=0,
        description="Of an algorithm without a server: the peer whose model is tested, and whose "
        "link is captured; default 0.",
    )


class SimulationSpec(Section):
    """How a simulation computes; of no meaning in an emulation."""

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
    """What a run goes on from when it is continued."""

    every: int | None = Field(
        default=None,
        ge=1,
        description="Updates from one checkpoint to the next; default (null): none, and a run that is "
        "continued begins anew.",
        examples=[1000],
    )


class TrafficSpec(Section):
    """How the traffic at the server's link is watched, beside the class counter."""

    capture: bool = Field(
        default=True,
        description="Capture the headers of every packet at the server's link (default), into "
        "traffic/ingress.pcapng of the run directory; false: count only.",
    )
    file_size: Size = Field(
        default=256 * 2**20,
        ge=2**16,
        description="Bytes after which the capture begins another file; default 256MiB.",
    )
    total_size: Size = Field(
        default=4 * 2**30,
        ge=2**16,
        description="Bytes that the capture's files may have together; default 4GiB. What passes "
        "after that is not kept, and the run is then not reconciled.",
    )
    period: Duration = Field(
        default=1.0,
        ge=0.1,
        description="Time between two samples of every link's counters; default 1s.",
    )


class Spec(Section):
    """One experiment: the same devices and data, one run for each algorithm."""

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
    dataset: Annotated[DatasetSpec, ShortForm(DATASETS, open_ended=True)] = Field(
        description="What is learnt: a name or a directory, or a mapping.", examples=["digits"]
    )
    model: Annotated[ModelSpec, ShortForm(MODELS)] = Field(
        description="What learns: a name or a mapping.", examples=["cnn"]
    )
    training: TrainingSpec = Field(
        description="How it is learnt, whatever the algorithm.", examples=[{"updates": 1000}]
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
    algorithms: Annotated[
        tuple[Annotated[Options, Registered()], ...], BeforeValidator(as_tuple)
    ] = Field(
        min_length=1,
        description="What is compared, one run each: names, or mappings with their options.",
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
        description="What a worker gets: full, all parameters (default), or changed, the exact "
        "values of those that changed since it pulled last. An algorithm's entry may have its own.",
    )
    devices: DevicesSpec = Field(description="The emulated machines.", examples=[{"workers": 20}])
    partition: Annotated[PartitionSpec, ShortForm(KINDS, key="kind")] = Field(
        default_factory=PartitionSpec,
        description="How the training images are shared out among the workers: equal (default), "
        "shards, sizes, or a mapping.",
        examples=[{"kind": "dirichlet", "alpha": 0.5}],
    )
    network: NetworkSpec = Field(
        default_factory=NetworkSpec,
        description="Every worker's link; default: not shaped.",
    )
    compute: ComputeSpec = Field(
        default_factory=ComputeSpec,
        description="How long a device computes a gradient; default: no time. A round trip drawn as a "
        "whole (as in DBW) is this, on links that are not shaped.",
        examples=[{"distribution": "cvb", "mean": "100ms"}],
    )
    waiting: WaitingSpec = Field(
        default_factory=WaitingSpec,
        description="Waiting between computing and pushing; default: none.",
        examples=[{"distribution": "exponential", "mean": "100ms"}],
    )
    evaluation: EvaluationSpec = Field(
        default_factory=EvaluationSpec,
        description="How the model is tested while it learns; default: every 100 updates.",
    )
    checkpoints: CheckpointSpec = Field(
        default_factory=CheckpointSpec,
        description="What a run that was interrupted goes on from; default: nothing.",
    )
    faults: Annotated[tuple[FaultSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        description="What goes wrong: whom it strikes, when, how, and for how long; the seed decides. "
        "Default: nothing.",
        examples=[[{"when": {"probability": 0.0004}, "how": "freeze"}]],
    )
    traffic: TrafficSpec = Field(
        default_factory=TrafficSpec,
        description="How the traffic at the server's link is watched; default: captured.",
    )

    simulation: SimulationSpec = Field(
        default_factory=SimulationSpec,
        description="How a simulation computes; default: serially, on the processor.",
    )

    _check_name = field_validator("name")(check_name)

    @model_validator(mode="before")
    @classmethod
    def _clock_of_engine(cls, data: Any) -> Any:
        # What a simulation's clock is need not be said.
        if isinstance(data, dict) and data.get("engine") == "simulation" and "clock" not in data:
            return data | {"clock": "virtual"}
        return data

    @model_validator(mode="after")
    def _possible(self) -> "Spec":
        devices = self.devices.conflicts()
        conflicts = [
            *self._label_conflicts(),
            *self._data_conflicts(),
            *self._clock_conflicts(),
            # Algorithms are told of the devices, if these are possible.
            *(() if devices else self._algorithm_conflicts()),
            *self._evaluation_conflicts(),
            *self._simulation_conflicts(),
            *self._checkpoint_conflicts(),
            *self._suspicion_conflicts(),
            *self._fault_conflicts(),
            *devices,
            *self.partition.conflicts(self.devices.classes),
        ]
        if conflicts:
            raise PydanticCustomError(
                "conflict",
                "{text}",
                {"text": "; ".join(text for _, text in conflicts), "conflicts": conflicts},
            )
        return self

    def _label_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        conflicts: list[tuple[tuple[Any, ...], str]] = []
        first: dict[str, int] = {}
        for i, options in enumerate(self.algorithms):
            path, label = ("algorithms", i, "label"), options.label
            if label is None:
                continue
            try:
                check_name(label)
            except ValueError as error:
                conflicts.append((path, str(error)))
                continue
            if label in RESERVED:
                conflicts.append((path, f"'{label}' is taken by the run directory: use another"))
            elif label in first:
                conflicts.append(
                    (path, f"'{label}' is already the label of algorithms.{first[label]}")
                )
            else:
                first[label] = i
        return conflicts

    def _data_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        images, workers = self.dataset.train_images, self.devices.workers
        if images is not None and images < workers:
            text = f"{images} images cannot be shared out among {workers} workers: each needs one"
            return [(("dataset", "train_images"), text)]
        return []

    def _clock_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        network = self.network
        if self.clock == "wall":
            if self.engine == "emulation":
                return []
            text = "a simulation has only the virtual clock: take this out, or make it virtual"
            return [(("clock",), text)]
        conflicts: list[tuple[tuple[Any, ...], str]] = []
        links = ("uplink", "downlink", "delay")
        for i, one in enumerate(self.devices.classes or (None,)):
            parts, rates = self._times(one), [getattr(network, key) for key in links]
            if one is not None:
                rates = [one.of(key, rate) for key, rate in zip(links, rates, strict=True)]
            if any(part.distribution == "trace" or part.mean for part in parts) or any(rates):
                continue
            text = (
                f"nothing takes any time{' there' if one else ''}, and the virtual clock would stand "
                "still: give computing a duration, for example `compute: {distribution: exponential, "
                "mean: 100ms}`"
            )
            conflicts.append((("devices", "classes", i) if one else ("clock",), text))
        losses: list[tuple[tuple[Any, ...], float | None]] = [(("network", "loss"), network.loss)]
        losses += [
            (("devices", "classes", i, "loss"), one.loss)
            for i, one in enumerate(self.devices.classes)
        ]
        text = "nothing is lost under the virtual clock: take it out, or use `clock: wall`"
        return conflicts + [(path, text) for path, loss in losses if loss]

    def _times(self, one: DeviceClassSpec | None) -> tuple[DurationSpec, DurationSpec]:
        """How long devices of a class, or where there are no classes all, compute and wait."""
        if one is None:
            return self.compute, self.waiting
        return one.of("compute", self.compute), one.of("waiting", self.waiting)

    def _algorithm_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        shared = self.conditions()
        conflicts: list[tuple[tuple[Any, ...], str]] = []
        for i, options in enumerate(self.algorithms):
            if options.pulls is not None and not is_served(options.name):
                text = "there is no server to pull from: take it out"
                conflicts.append((("algorithms", i, "pulls"), text))
            rate = options.learning_rate or shared.learning_rate
            try:
                ALGORITHMS[options.name].check(options, replace(shared, learning_rate=rate))
            except SpecError as error:
                conflicts.append((("algorithms", i), str(error)))
        return conflicts

    def _simulation_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        if not (self.simulation.batched or self.simulation.device != "cpu"):
            return []
        peers = [options.name for options in self.algorithms if not is_served(options.name)]
        if not peers:
            return []
        key = "batched" if self.simulation.batched else "device"
        text = f"the gradients of peers ({peers[0]}) are computed one after the other: take it out"
        return [(("simulation", key), text)]

    def _checkpoint_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        peers = [options.name for options in self.algorithms if not is_served(options.name)]
        if self.checkpoints.every is None:
            killed = [i for i, fault in enumerate(self.faults) if fault.of_server]
            text = "a server comes back from a checkpoint: add `checkpoints: {every: 1000}`"
            return [(("faults", i, "who"), text) for i in killed[:1]]
        if peers:
            text = (
                f"checkpoints are of runs with a server, and '{peers[0]}' has none: take this out"
            )
            return [(("checkpoints", "every"), text)]
        kept = [one.name for one in self.algorithms if getattr(one, "error_feedback", False)]
        if kept and self.engine == "emulation" and self.clock == "virtual":
            text = (
                f"what error feedback ({kept[0]}) has its workers remember is in no checkpoint of an "
                "emulation, which could not go on as if nothing had happened: take one of them out, or "
                "use `engine: simulation` or `clock: wall`"
            )
            return [(("checkpoints", "every"), text)]
        return []

    def _suspicion_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        peers = [options.name for options in self.algorithms if not is_served(options.name)]
        if not peers or self.devices.suspect_after is None:
            return []
        text = f"peers ({peers[0]}) have no server that would suspect them: take it out"
        return [(("devices", "suspect_after"), text)]

    def suspect_after(self, options: Options) -> float | None:
        """Seconds of silence after which a worker of this algorithm's is suspected; None: never."""
        devices = self.devices
        if "suspect_after" in devices.model_fields_set or not is_served(options.name):
            return devices.suspect_after
        return SUSPECT_AFTER if served(options.name).synchronous(options) else None

    def _evaluation_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        if self.evaluation.peer < self.devices.workers:
            return []
        text = f"there are {self.devices.workers} peers, numbered from 0: use a smaller number"
        return [(("evaluation", "peer"), text)]

    def _fault_conflicts(self) -> list[tuple[tuple[Any, ...], str]]:
        peers = [options.name for options in self.algorithms if not is_served(options.name)]
        classes = self.devices.classes
        if peers and (self.faults or any(one.faults for one in classes)):
            place = ("faults",) if self.faults else ("devices", "classes")
            text = f"faults are of runs with a server, and '{peers[0]}' has none: take one out"
            return [(place, text)]
        found = [
            (("faults", i, *path), text)
            for i, fault in enumerate(self.faults)
            for path, text in (*self._nobody(fault), *self._impossible(fault))
        ]
        return found + [
            (("devices", "classes", i, "faults", j, *path), text)
            for i, one in enumerate(classes)
            for j, own in enumerate(one.faults)
            for path, text in self._impossible(own)
        ]

    def _nobody(self, fault: FaultSpec) -> list[tuple[tuple[Any, ...], str]]:
        """What is wrong with whom a fault strikes."""
        who, workers = fault.who, self.devices.workers
        if who.number is not None and who.number > workers:
            return [(("who", "number"), f"there are only {workers} workers: use a smaller number")]
        classes = [one.name for one in self.devices.classes]
        if who.class_ is not None and who.class_ not in classes:
            told = (
                f"the classes are {', '.join(classes)}" if classes else "devices.classes has none"
            )
            return [(("who", "class"), f"there is no class '{who.class_}': {told}")]
        known = {worker_name(i) for i in range(workers)}
        return [
            (
                ("who", "devices", i),
                f"there is no '{name}': the workers are {worker_name(0)} to {worker_name(workers - 1)}",
            )
            for i, name in enumerate(who.devices or ())
            if name not in known
        ]

    def _impossible(self, fault: ClassFaultSpec) -> list[tuple[tuple[Any, ...], str]]:
        """What a fault asks for that this run's engine, clock or devices cannot do."""
        how = fault.how
        if self.clock == "virtual" and how.kind == "corrupt":
            text = "nothing is damaged under the virtual clock: take it out, or use `clock: wall`"
            return [(("how",), text)]
        if how.cpus is None:
            return []
        if self.clock == "virtual":
            text = "durations are drawn under the virtual clock: use factor, or `clock: wall`"
            return [(("how", "cpus"), text)]
        if self.devices.runtime != "docker":
            text = "only containers have it: use factor, or `runtime: docker`"
            return [(("how", "cpus"), text)]
        return []

    def conditions(self) -> Conditions:
        """What an algorithm is told of the run."""
        return Conditions(
            self.training.learning_rate,
            self.devices.workers,
            self.training.batch_size,
            self.training.updates,
            self.network.uplink,
            self._gradient_time(),
        )

    def _gradient_time(self) -> float | None:
        """Mean of computing and waiting over the devices; None where only the host or a trace knows."""
        classes = self.devices.classes
        by_class = [self._times(one) for one in classes or (None,)]
        traced = any(part.distribution == "trace" for parts in by_class for part in parts)
        if self.clock == "wall" or traced:
            return None
        if not classes:
            return sum(
                part.mean * (sum(one.share * one.factor for one in part.classes) or 1.0)
                for part in by_class[0]
            )
        sizes = self.devices.class_sizes
        return sum(mean_over_devices(parts, sizes) for parts in zip(*by_class, strict=True))

    def runs(self) -> dict[str, "Spec"]:
        """One spec per algorithm, with only that algorithm, by label and in the file's order."""
        return {
            label: self.model_copy(
                update={"algorithms": (options.model_copy(update={"label": label}),)}
            )
            for label, options in zip(labels(self.algorithms), self.algorithms, strict=True)
        }

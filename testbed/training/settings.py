"""The settings that the roles of one run get: values that cross a process boundary as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import ValidationError

from testbed.algorithms.interface import Conditions, Options, PeerOptions
from testbed.algorithms.learning_rate import ConstantRate, RateSchedule
from testbed.device_names import SERVER_NUMBER
from testbed.device_power import DevicePower
from testbed.encoding_choice import EncodingChoice, Pulls
from testbed.errors import SpecError
from testbed.experiment.contents import Contents
from testbed.experiment.sections.learning import TrainingSpec
from testbed.experiment.sections.timing import DurationSpec
from testbed.faults.rules import FaultRule
from testbed.faults.schedule import Schedule
from testbed.json_dataclasses import of_plain
from testbed.learning.data.choice import DatasetChoice
from testbed.messages.fault_changes import SILENT
from testbed.rate_trace import RateTrace
from testbed.results.reading.quality import Quality
from testbed.training.run_devices import RunDevices


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """The faults of a run.

    Attributes:
        rules: those of faults, and of devices that arrive and leave.
        checkpoint_every: updates from one checkpoint to the next, or a peer's own steps; None: none is
            written.
    """

    rules: Sequence[FaultRule]
    checkpoint_every: int | None = None

    @property
    def server_absence(self) -> float | None:
        """The longest time in seconds for which a killed server is away; None if none is killed."""
        absences = [
            rule.fault.duration or 0.0
            for rule in self.rules
            if any(device <= SERVER_NUMBER for device in rule.devices)
        ]
        return max(absences, default=None)

    def may_silence(self, device: int) -> bool:
        """Return True if a fault may have a device send nothing for a while, or for good."""
        faults = (one for rule in self.rules for one in rule.faults_of(device))
        return any(one.kind in SILENT for one in faults)

    def absence_of(self, device: int) -> float | None:
        """Return the longest time in seconds for which a device is killed; None if it never returns."""
        kills = (one for rule in self.rules for one in rule.faults_of(device) if one.kind == "kill")
        return max((one.duration for one in kills if one.duration is not None), default=None)

    def steps_to_checkpoint(self, peer: int) -> int | None:
        """Return a peer's own steps from one of its checkpoints to the next.

        None: it keeps none, as no rule kills it for a time, or the run has no checkpoints.
        """
        returns = any(
            fault.kind == "kill" and (rule.brings_back or fault.duration is not None)
            for rule in self.rules
            for fault in rule.faults_of(peer)
        )
        return self.checkpoint_every if returns else None


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """The link and the power of a device that computes, as its class or the whole run has them.

    Attributes:
        uplink, downlink: rates of the link in bit/s; None where it is not shaped, or follows a trace.
        delay, down_delay: the delays on the uplink and on the downlink, in seconds.
        jitter, down_jitter: the most by which they vary, in seconds.
        up_trace, down_trace: the rates of its link over time, where they change.
        power: what it draws; None: not known.
    """

    uplink: int | None
    downlink: int | None
    delay: float
    down_delay: float = 0.0
    jitter: float = 0.0
    down_jitter: float = 0.0
    up_trace: RateTrace | None = None
    down_trace: RateTrace | None = None
    power: DevicePower | None = None

    @property
    def is_sent_at_once(self) -> bool:
        """True if what is sent to the device arrives at that moment."""
        return self.downlink is None and self.down_trace is None and not self.down_delay


AT_ROUTER = DeviceSettings(uplink=None, downlink=None, delay=0.0)
"""The settings of an aggregator, which is at its cluster's router and computes no gradients."""


@dataclass(frozen=True, slots=True)
class Settings(RunDevices):
    """One run's settings: its experiment file, and what follows from it.

    Attributes:
        spec: the file's contents, with one algorithm.
        rate: α at each version.
        devices: the devices, where no class of theirs says otherwise.
        classes: the devices of each class; none if all devices are alike.
        class_of: every worker's class by its number; empty without classes.
        measure: what evaluations measure besides loss and accuracy, if anything.
        dataset_digest: of what the dataset's function returned when the run was planned; None: not
            known.
        share: the most processors that a simulation chooses, where several run at a time; None: all
            that there are.
        images: training images of each device that computes; empty before they are shared out. Each
            process shares them out itself, so they are in no message.
    """

    spec: Contents
    rate: RateSchedule | ConstantRate
    faults: FaultSettings
    devices: DeviceSettings
    classes: Sequence[DeviceSettings]
    class_of: Sequence[int]
    measure: Quality | None = None
    dataset_digest: str | None = None
    share: int | None = None
    images: Sequence[int] = field(default_factory=list)

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the settings that ``to_plain`` made plain, with their plug-ins importable here.

        Raises:
            SpecError: what a plug-in has cannot be used here.
        """
        try:
            return of_plain(cls, plain)
        except ValidationError as error:
            text = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            raise SpecError(text) from error

    @property
    def seed(self) -> int:
        return self.spec.seed

    @property
    def training(self) -> TrainingSpec:
        return self.spec.training

    def absence(self, index: int) -> float | None:
        """Return the longest time in seconds for which a role that serves is away, by its index.

        None: it is there for the whole run, or gone for good.
        """
        found = [self.faults.server_absence]
        if index >= self.servers:
            found.append(self.faults.absence_of(self.as_worker(index)))
        return max((one for one in found if one is not None), default=None)

    def calls_return(self, device: int) -> bool:
        """Return True if a role that a worker, or an aggregator, calls may be away and come back."""
        return any(self.absence(index) is not None for index in self.called(device))

    def schedule(self) -> Schedule:
        """Return the schedule of the run's faults, of which nothing was drawn yet."""
        return Schedule(self.faults.rules, self.seed, self.workers)

    @property
    def dataset(self) -> DatasetChoice:
        """The dataset, with the arguments of its function."""
        return replace(self.spec.dataset.choice, digest=self.dataset_digest)

    @property
    def partition(self) -> dict[str, Any]:
        """That of the training images, as ``testbed.learning.data.partitions.parts`` takes it."""
        return self.spec.partition.plain(self.spec.devices.classes, self.class_of)

    @property
    def algorithm(self) -> Options:
        """The algorithm's options."""
        return self.spec.algorithms[0]

    def conditions(self, number: int | None = None) -> Conditions:
        """Return the facts about the run that its algorithm may use: plan, drivers and halves get them.

        Args:
            number: the device whose half gets them; None for the server's half, and for all in general.
        """
        return Conditions(
            self.rate.alpha,
            self.workers,
            self.training.batch_size,
            self.training.updates,
            (self.devices if number is None else self.device(number)).uplink,
            self.timing.gradient_time,
            self.rate,
            self.timing.clock == "wall",
            self.seed,
            self.images,
            number,
        )

    @property
    def encoding(self) -> EncodingChoice:
        return self.algorithm.encoding or self.spec.encoding

    @property
    def pulls(self) -> Pulls:
        """Whether a pull brings all parameters, or those that changed since the one before."""
        return self.algorithm.pulls or self.spec.pulls

    @property
    def send_queue(self) -> int | None:
        """The rounds whose messages may wait to leave a peer while it computes; None: any."""
        return self.algorithm.queued_rounds if isinstance(self.algorithm, PeerOptions) else 1

    @property
    def batched(self) -> bool:
        """True if a simulation computes the gradients of outstanding workers together."""
        return self.spec.simulation.batched or self.spec.simulation.device != "cpu"

    def device(self, number: int) -> DeviceSettings:
        """Return the settings of a worker or peer, or of an aggregator by its number as a worker."""
        if number >= self.workers:
            return AT_ROUTER
        return self.classes[self.class_of[number]] if self.classes else self.devices

    def link_is_struck(self, device: int) -> bool:
        """Return True if a fault may take a device's link down, or slow it."""
        return any(f.changes_link for rule in self.faults.rules for f in rule.faults_of(device))

    @property
    def is_metered(self) -> bool:
        return any(one.power is not None for one in self.kinds_of_devices)

    def rate_traces(self, number: int) -> tuple[RateTrace | None, RateTrace | None]:
        """Return the traces that a device's uplink and downlink follow, from its place in them on."""
        device = self.device(number)
        up, down = (
            trace and trace.of_device(number, self.workers)
            for trace in (device.up_trace, device.down_trace)
        )
        return up, down

    @property
    def has_rate_traces(self) -> bool:
        """True if the rate of any device's link changes over time."""
        return any(one.up_trace or one.down_trace for one in self.kinds_of_devices)

    @property
    def followed_traces(self) -> dict[int, tuple[RateTrace | None, RateTrace | None]]:
        """What ``rate_traces`` returns of each device, where real links follow traces; else nothing."""
        followed = self.timing.clock == "wall" and self.has_rate_traces
        return {n: self.rate_traces(n) for n in range(self.workers)} if followed else {}

    @property
    def kinds_of_devices(self) -> Sequence[DeviceSettings]:
        """The settings of each class; without classes those of all devices, once."""
        return self.classes or [self.devices]

    @property
    def times_of_kinds(self) -> list[tuple[DurationSpec, DurationSpec]]:
        """The sections ``compute`` and ``waiting`` of each of these kinds."""
        return [self.spec.times_of(one) for one in self.spec.devices.classes or (None,)]

"""The settings that the roles of one run get: plain values that cross a process boundary as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from testbed.device_names import SERVER_NUMBER
from testbed.device_power import DevicePower
from testbed.encoding_choice import Pulls
from testbed.faults.rules import FaultRule
from testbed.learning.data.choice import DatasetChoice
from testbed.plugins.source_files import PluginSource, install
from testbed.rate_trace import RateTrace
from testbed.updates import Allocation

PORT = 7077
"""The port on which the server listens, in its own network namespace."""


@dataclass(frozen=True, slots=True)
class MeasureSettings:
    """A measure that evaluations take, besides the loss and the accuracy.

    Attributes:
        column: the name of its column.
        unit: a word or a sign; empty for a pure number.
        better: whether a better model has a higher or a lower value.
        function: the name of a function of one's own; None: the perplexity.
        options: the function's further arguments.
    """

    column: str
    unit: str = ""
    better: Literal["higher", "lower"] = "lower"
    function: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """The training: what is trained, and for how long.

    Attributes:
        algorithm: the algorithm's options as in the experiment file, ``name`` among them.
        encoding: the run's ``EncodingChoice`` as a mapping.
        pulls: what pulls bring: all parameters, or those that changed since the last pull.
        batch_size: b, images per gradient.
        learning_rate: α.
        evaluate_every: updates between two evaluations.
        schedule: that of the learning rate, in updates: what a ``RateSchedule`` of
            ``testbed.algorithms.learning_rate`` has besides α; None: α is constant.
        weight_decay: λ.
        clip: the most that the norm of a gradient may be; None: any.
        augmentation: as ``testbed.learning.data.augmentation.Augmentation`` takes it.
        loss: the loss's name; None: that of the examples.
        loss_options: further arguments of a function of one's own.
        measure: what evaluations measure besides loss and accuracy, if anything.
        allocation: how several servers share the parameters.
        send_queue: the rounds whose messages may wait to leave a peer while it computes; None: any.
    """

    algorithm: dict[str, Any]
    encoding: dict[str, Any]
    pulls: Pulls
    batch_size: int
    learning_rate: float
    updates: int
    evaluate_every: int
    schedule: Mapping[str, Any] | None = None
    weight_decay: float = 0.0
    clip: float | None = None
    augmentation: Mapping[str, Any] = field(default_factory=dict)
    loss: str | None = None
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    measure: MeasureSettings | None = None
    allocation: Allocation = "ranges"
    send_queue: int | None = 1


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The data and the model.

    Attributes:
        dataset: a dataset's name or path, or the name of a function.
        dataset_digest: of what the function returned when the run was planned; None: not known.
        scaling: the scaling of images; None: standardised, of bytes.
        train_images: use only this many of the training images; None: all.
        partition: how the training images are shared out, as ``testbed.learning.data.partitions.parts``
            takes it.
        evaluation_images: evaluate on only this many of the test images; None: all.
        model_options: a plug-in's own options.
        batched: True if a simulation computes the gradients of outstanding workers together.
        device: the device that it then computes them on, as torch names it.
        processors: the number of processors on which it computes gradients; None: it chooses.
        share: the most that it chooses, where several run at a time; None: all that there are.
    """

    dataset: str
    scaling: Literal["standardised", "unit", "per-channel"] | None
    train_images: int | None
    partition: Mapping[str, Any]
    evaluation_images: int | None
    model: str
    initialisation: Literal["paper", "torch", "module"]
    batched: bool
    device: str
    buffers: Literal["none", "shared", "per-worker"] = "none"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    dataset_options: Mapping[str, Any] = field(default_factory=dict)
    dataset_digest: str | None = None
    processors: int | None = None
    share: int | None = None

    @property
    def chosen(self) -> DatasetChoice:
        """The dataset, with the arguments of its function."""
        return DatasetChoice(self.dataset, self.dataset_options, self.dataset_digest)


@dataclass(frozen=True, slots=True)
class CostSettings:
    """The processor time that messages cost a server, in seconds.

    Attributes:
        message: each message that it receives or sends.
        byte: each byte of it.
        apply: an update, for each parameter that the server holds.
    """

    message: float
    byte: float
    apply: float


@dataclass(frozen=True, slots=True)
class TimingSettings:
    """The clock, and the times that a run is judged by.

    Attributes:
        clock: wall: devices wait; virtual: time is computed.
        suspect_after: seconds of the run's clock after which a silent worker is suspected; None: never.
        gradient_time: mean of compute and waiting, in seconds; None where the host decides.
        own_processors: True if each device has a limit on its processors, so that devices need not take
            turns.
        costs: what messages cost servers under the virtual clock; None: nothing.
    """

    clock: Literal["wall", "virtual"]
    suspect_after: float | None
    gradient_time: float | None
    own_processors: bool
    costs: CostSettings | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """The links that messages of a conversation pass, besides those of a worker's or of peers' own.

    Attributes:
        up, down: indices of ``NetworkSettings.shared_rates``: from the worker, or the first of two
            peers, and to it.
        up_delay, down_delay: seconds of all these links together, also of those without a rate.
        up_jitters, down_jitters: seconds by which each of them varies its delay, if it does.
    """

    up: Sequence[int]
    down: Sequence[int]
    up_delay: float
    down_delay: float
    up_jitters: Sequence[float] = ()
    down_jitters: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The addresses of a run's devices, and its secret.

    Attributes:
        server_addresses: IPv4 addresses of the servers in the order of their parts of the parameters,
            or of the evaluated peer.
        peer_addresses: the addresses of all peers by their numbers; none where there is a server.
        evaluated_peer: the peer whose model is evaluated, where there is no server.
        secret: the run's secret, hexadecimal; a greeting without it is refused.
        shared_rates: the rates of directions of links that several devices share, in bit/s.
        routes: the ways over them, of which each conversation takes one.
        route_of: each conversation's way; worker w talks to server s in the conversation with the
            number w · servers + s, and peers' are numbered as in
            ``testbed.clock.conversations.PeerConversations``. Empty where no links are shared.
        co_located: the number of workers, the first ones, with a server on their machine. The routes
            of their conversations contain the link of their machine, and they have none of their own.
        aggregator_of: the aggregator, from 0, of each worker and then of each aggregator; -1: it talks
            to the server. Empty where workers talk to servers. A conversation has the number of its
            worker, and after those come the aggregators'.
    """

    server_addresses: Sequence[str]
    peer_addresses: Sequence[str]
    evaluated_peer: int
    secret: str
    shared_rates: Sequence[int] = field(default_factory=list)
    routes: Sequence[Route] = field(default_factory=list)
    route_of: Sequence[int] = field(default_factory=list)
    co_located: int = 0
    aggregator_of: Sequence[int] = field(default_factory=list)
    aggregator_addresses: Sequence[str] = field(default_factory=list)


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
    """A device that computes, as its class or the whole run has it.

    Attributes:
        compute: the spec's section on the time to compute a gradient, in seconds, as
            ``testbed.durations.Durations.of`` takes it.
        waiting: the same for the time between computing and pushing.
        uplink, downlink: rates of its link in bit/s; None where it is not shaped, or follows a trace.
        delay, down_delay: the delays on the uplink and on the downlink, in seconds.
        jitter, down_jitter: the most by which they vary, in seconds.
        up_trace, down_trace: the rates of its link over time, where they change.
        power: what it draws; None: not known.
    """

    compute: dict[str, Any]
    waiting: dict[str, Any]
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


AT_ROUTER = DeviceSettings(compute={}, waiting={}, uplink=None, downlink=None, delay=0.0)
"""The settings of an aggregator, which is at its cluster's router and computes no gradients."""


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """A class of devices that are alike."""

    name: str
    devices: DeviceSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """One run's settings.

    Attributes:
        workers: the number of workers or peers, numbered from 0.
        classes: the device classes; none if all devices are alike.
        class_of: every worker's class by its number; empty without classes.
        plugins: the module and the text of each source file of plug-ins.
        images: training images of each device that computes; empty before they are shared out. Each
            process shares them out itself, so they are in no message.
    """

    seed: int
    workers: int
    training: TrainingSettings
    data: DataSettings
    timing: TimingSettings
    network: NetworkSettings
    faults: FaultSettings
    devices: DeviceSettings
    classes: Sequence[ClassSettings]
    class_of: Sequence[int]
    plugins: Sequence[tuple[str, str]] = ()
    images: Sequence[int] = field(default_factory=list)

    @property
    def aggregators(self) -> int:
        return len(self.network.aggregator_addresses)

    @property
    def serving(self) -> int:
        """The number of roles that serve: the servers and, after them, the aggregators."""
        return self.servers + self.aggregators

    def address(self, index: int) -> str:
        """Return the IPv4 address of a role that serves, by its index."""
        return [*self.network.server_addresses, *self.network.aggregator_addresses][index]

    def called(self, worker: int) -> int:
        """Return the index of the role that a worker or an aggregator calls, where it calls one."""
        return 1 + self.network.aggregator_of[worker] if self.network.aggregator_of else 0

    def as_worker(self, aggregator: int) -> int:
        """Return an aggregator's number as a worker, by its index as a role that serves."""
        return self.workers + aggregator - self.servers

    @property
    def evaluator(self) -> int:
        """The evaluator's number, after those of the workers and of the aggregators."""
        return self.workers + self.aggregators

    def callers(self, index: int) -> Sequence[int]:
        """Return the numbers of the devices that push to a role that serves, by its index."""
        of = self.network.aggregator_of
        if not of:
            return range(self.workers)
        return [caller for caller, aggregator in enumerate(of) if 1 + aggregator == index]

    def device(self, number: int) -> DeviceSettings:
        """Return the settings of a worker or peer, or of an aggregator by its number as a worker."""
        if number >= self.workers:
            return AT_ROUTER
        return self.classes[self.class_of[number]].devices if self.classes else self.devices

    @property
    def is_metered(self) -> bool:
        kinds = [one.devices for one in self.classes] or [self.devices]
        return any(one.power is not None for one in kinds)

    @property
    def servers(self) -> int:
        """The number of parameter servers; 1 if there are only peers, of which one is evaluated."""
        return len(self.network.server_addresses)

    def route(self, conversation: int) -> Route | None:
        """Return the links that a conversation passes besides devices' own; None if none are shared."""
        network = self.network
        return network.routes[network.route_of[conversation]] if network.route_of else None

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
    def kinds_of_devices(self) -> list[DeviceSettings]:
        """The settings of each class; without classes those of all devices, once."""
        return [one.devices for one in self.classes] or [self.devices]

    def install_plugins(self) -> None:
        """Make the run's plug-ins importable in this process; call it before any half is made.

        Raises:
            SpecError: the code of one cannot be executed here.
        """
        install(PluginSource(*one) for one in self.plugins)

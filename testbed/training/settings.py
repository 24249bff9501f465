"""The settings that the roles of one run get: plain values that cross a process boundary as JSON.

A run's settings are several records. Functions and objects take the ones that they use, or all of them
where they pass them on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from testbed.device_names import SERVER_NUMBER
from testbed.encoding_choice import Pulls

PORT = 7077
"""The port on which the server listens, in its own network namespace."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """The training: what is trained, and for how long.

    Attributes:
        algorithm: the algorithm's options as in the experiment file, ``name`` among them.
        encoding: the run's ``EncodingChoice`` as a mapping.
        pulls: what pulls bring: all parameters, or those that changed since the last pull.
        batch_size: b, images per gradient.
        learning_rate: α.
        updates: the number of updates that the run lasts.
        evaluate_every: updates between two evaluations.
    """

    algorithm: dict[str, Any]
    encoding: dict[str, Any]
    pulls: Pulls
    batch_size: int
    learning_rate: float
    updates: int
    evaluate_every: int


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The data and the model.

    Attributes:
        dataset: a dataset's name or a directory of idx files.
        scaling: the scaling of images.
        train_images: use only this many of the training images; None: all.
        partition: how the training images are shared out, as ``testbed.learning.data.partitions.parts``
            takes it.
        evaluation_images: evaluate on only this many of the test images; None: all.
        model: the model's name.
        initialisation: the law of the initial parameters.
        batched: True if a simulation computes the gradients of outstanding workers together.
        device: the device that it then computes them on, as torch names it.
    """

    dataset: str
    scaling: Literal["standardised", "unit"]
    train_images: int | None
    partition: Mapping[str, Any]
    evaluation_images: int | None
    model: str
    initialisation: Literal["paper", "torch"]
    batched: bool
    device: str


@dataclass(frozen=True, slots=True)
class TimingSettings:
    """The clock, and the times that a run is judged by.

    Attributes:
        clock: wall: devices wait; virtual: time is computed.
        suspect_after: seconds of the run's clock after which a silent worker is suspected; None: never.
        gradient_time: mean of compute and waiting, in seconds; None where the host decides.
        own_processors: True if each device has a limit on its processors, so that devices need not take
            turns.
    """

    clock: Literal["wall", "virtual"]
    suspect_after: float | None
    gradient_time: float | None
    own_processors: bool


@dataclass(frozen=True, slots=True)
class Route:
    """The links that a worker's messages pass, besides the worker's own.

    Attributes:
        up, down: indices of ``NetworkSettings.shared_rates``, to the server and from it.
        up_delay, down_delay: seconds of all these links together, also of those without a rate.
    """

    up: Sequence[int]
    down: Sequence[int]
    up_delay: float
    down_delay: float


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The addresses of a run's devices, and its secret.

    Attributes:
        server_address: IPv4 address of the server, or of the evaluated peer.
        peer_addresses: the addresses of all peers by their numbers; none where there is a server.
        evaluated_peer: the peer whose model is evaluated, where there is no server.
        secret: the run's secret, hexadecimal; a greeting without it is refused.
        shared_rates: the rates of directions of links that several workers share, in bit/s.
        routes: the ways over them, of which each worker takes one.
        route_of: each worker's way by the worker's number; empty where no links are shared.
    """

    server_address: str
    peer_addresses: Sequence[str]
    evaluated_peer: int
    secret: str
    shared_rates: Sequence[int] = field(default_factory=list)
    routes: Sequence[Route] = field(default_factory=list)
    route_of: Sequence[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """The faults of a run.

    Attributes:
        rules: the rules as ``testbed.planning.fault_rules`` makes them.
    """

    rules: Sequence[dict[str, Any]]

    @property
    def server_absence(self) -> float | None:
        """The longest time in seconds for which a killed server is away; None if it is never killed."""
        absences = [
            float(rule["fault"]["duration"] or 0.0)
            for rule in self.rules
            if list(rule["devices"]) == [SERVER_NUMBER]
        ]
        return max(absences, default=None)


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """A device that computes, as its class or the whole run has it.

    Attributes:
        compute: the spec's section on the time to compute a gradient, in seconds, as
            ``testbed.durations.Durations.of`` takes it.
        waiting: the same for the time between computing and pushing.
        uplink, downlink: rates of its link in bit/s; None where it is not shaped.
        delay: the delay on the uplink, in seconds.
    """

    compute: dict[str, Any]
    waiting: dict[str, Any]
    uplink: int | None
    downlink: int | None
    delay: float


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class of devices that are alike."""

    name: str
    devices: DeviceSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """One run's settings.

    Attributes:
        seed: the seed of every random stream.
        workers: the number of workers or peers, numbered from 0.
        devices: the settings of the workers or peers, as far as no class says otherwise.
        classes: the device classes; none if all devices are alike.
        class_of: every worker's class by its number; empty without classes.
    """

    seed: int
    workers: int
    training: TrainingSettings
    data: DataSettings
    timing: TimingSettings
    network: NetworkSettings
    faults: FaultSettings
    devices: DeviceSettings
    classes: Sequence[DeviceClass]
    class_of: Sequence[int]

    def device(self, number: int) -> DeviceSettings:
        """Return the settings of a worker or peer."""
        return self.classes[self.class_of[number]].devices if self.classes else self.devices

    def route(self, number: int) -> Route | None:
        """Return the links that a worker's messages pass besides its own; None if none are shared."""
        network = self.network
        return network.routes[network.route_of[number]] if network.route_of else None

    @property
    def kinds_of_devices(self) -> list[DeviceSettings]:
        """The settings of each class; without classes those of all devices, once."""
        return [one.devices for one in self.classes] or [self.devices]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """Make settings from what ``to_json`` returned; other keys are ignored."""
        return cls(
            told["seed"],
            told["workers"],
            TrainingSettings(**told["training"]),
            DataSettings(**told["data"]),
            TimingSettings(**told["timing"]),
            NetworkSettings(
                **{**told["network"], "routes": [Route(**r) for r in told["network"]["routes"]]}
            ),
            FaultSettings(**told["faults"]),
            DeviceSettings(**told["devices"]),
            [DeviceClass(c["name"], DeviceSettings(**c["devices"])) for c in told["classes"]],
            told["class_of"],
        )

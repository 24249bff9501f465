"""What the roles of one run need to know; plain values that cross a process boundary as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from testbed.device_names import SERVER_NUMBER
from testbed.encoding_choice import Pulls

PORT = 7077
"""Where the server listens, in its own network namespace."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One run's settings.

    Attributes:
        seed: of every random stream.
        workers: how many there are, numbered from 0.
        dataset: a dataset's name or a directory of idx files.
        scaling: how images are scaled.
        train_images: use only so many of the training images; None for all.
        partition: how the training images are shared out, as ``testbed.learning.data.partitions.parts``
            takes it.
        model: the model's name.
        initialisation: law of the initial parameters.
        batch_size: b, images per gradient.
        learning_rate: α.
        updates: how many updates the run lasts.
        algorithm: the algorithm's options as in the experiment file, ``name`` among them.
        encoding: the run's ``EncodingChoice`` as a mapping.
        pulls: what pulls bring: all parameters, or those that changed since the last pull.
        compute: the spec's section on the time to compute a gradient, in seconds, as
            ``testbed.durations.Durations.of`` takes it.
        waiting: the same of the time between computing and pushing.
        faults: what goes wrong, as ``testbed.faults.resolving`` gives it.
        classes: the device classes, each with ``name`` and, of its devices, ``compute``, ``waiting``,
            ``uplink``, ``downlink`` and ``delay`` as below; none if all devices are alike.
        class_of: every worker's class by its number; empty without classes.
        suspect_after: seconds of the run's clock after which a silent worker is suspected; None: never.
        evaluate_every: updates between two evaluations.
        evaluation_images: evaluate on only so many of the test images; None for all.
        batched: whether a simulation computes the gradients of outstanding workers together.
        device: what it computes them on then, as torch names it.
        clock: wall: devices wait; virtual: time is computed.
        uplink, downlink: rates of a worker's link in bit/s; None where it is not shaped. These, delay,
            compute and waiting are what classes that say nothing of it have.
        delay: on the uplink, in seconds.
        gradient_time: mean of compute and waiting, in seconds; None where the host decides.
        evaluated_peer: the peer whose model is evaluated, where there is no server.
        server_address: IPv4 address of the server, or of the evaluated peer.
        peer_addresses: of all peers by their numbers; none where there is a server.
        own_processors: whether devices have a limit on their processors, so that none takes turns.
        secret: the run's secret, hexadecimal; a greeting without it is refused.
    """

    seed: int
    workers: int
    dataset: str
    scaling: Literal["standardised", "unit"]
    train_images: int | None
    partition: Mapping[str, Any]
    model: str
    initialisation: Literal["paper", "torch"]
    batch_size: int
    learning_rate: float
    updates: int
    algorithm: dict[str, Any]
    encoding: dict[str, Any]
    pulls: Pulls
    compute: dict[str, Any]
    waiting: dict[str, Any]
    faults: Sequence[dict[str, Any]]
    classes: Sequence[Mapping[str, Any]]
    class_of: Sequence[int]
    suspect_after: float | None
    evaluate_every: int
    evaluation_images: int | None
    batched: bool
    device: str
    clock: Literal["wall", "virtual"]
    uplink: int | None
    downlink: int | None
    delay: float
    gradient_time: float | None
    evaluated_peer: int
    server_address: str
    peer_addresses: Sequence[str]
    own_processors: bool
    secret: str

    def of_device(self, key: str, number: int) -> Any:
        """What a device has of what classes may have of their own."""
        return self.classes[self.class_of[number]][key] if self.classes else getattr(self, key)

    def of_classes(self, key: str) -> list[Any]:
        """What the devices of each class have; where there is none, what all have, once."""
        return [one[key] for one in self.classes] or [getattr(self, key)]

    @property
    def server_absence(self) -> float | None:
        """Seconds for which the server is away at most when it is killed; None if it never is."""
        absences = [
            float(rule["fault"]["duration"] or 0.0)
            for rule in self.faults
            if list(rule["devices"]) == [SERVER_NUMBER]
        ]
        return max(absences, default=None)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

"""What the files of a run directory say about the run: manifest, summary, events, faults.

Keys that are not known here are left unread, so that a directory written by a later version of the
same format can be shown; one that is missing has a default where older versions did not write it.
"""

import math
from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

Ended: TypeAlias = Literal["running", "completed", "interrupted", "failed"]


def _number(value: object) -> object:
    """NaN and infinity say no more than null: nothing was measured that can be compared."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _aware(value: datetime) -> datetime:
    """Times are UTC where they do not say otherwise."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


Moment: TypeAlias = Annotated[datetime, AfterValidator(_aware)]
Number: TypeAlias = Annotated[float | None, BeforeValidator(_number)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Host(_Record):
    """The machine that a run ran on; memory in bytes."""

    name: str = "unknown"
    kernel: str = "unknown"
    cpus: int | None = None
    memory_bytes: int | None = None
    cpu: str | None = None


class DeviceClass(_Record):
    """A class of devices: its name, and its workers' or peers' numbers."""

    name: str
    devices: tuple[int, ...]


class Resumed(_Record):
    """A session of a run behind its first.

    Attributes:
        version: from which it went on.
        host_seconds: of training in all sessions before, what was lost of them too.
        at: when it began.
    """

    version: int
    host_seconds: float
    at: Moment


class Shaped(_Record):
    """How one direction of a link should be: bit/s (None: not limited), seconds, share of packets."""

    rate: float | None = None
    delay: float = 0.0
    loss: float = 0.0


class Measured(_Record):
    """How one direction of a link was, by a probe before training.

    Attributes:
        rate: bit/s on the wire; None if none was asked.
        at_least: whether it may be more, because the host could not send any faster.
        delay: seconds.
        loss: share of ``packets``.
        loss_between: the interval in which the share lies that the link loses.
    """

    rate: Number = None
    at_least: bool = False
    delay: Number = None
    loss: float
    loss_between: tuple[float, float] = (0.0, 1.0)
    packets: int


class Direction(_Record):
    """One direction of one link, as asked and as measured.

    Attributes:
        measured: None if it was not; why stands in ``unmeasured`` if it cannot be, and in ``failed`` if
            it could not be.
        off: which of rate, delay and loss are not as asked.
        drained: whether all that was sent came through, or was lost, within some seconds.
    """

    device: str
    direction: Literal["uplink", "downlink"]
    asked: Shaped
    measured: Measured | None = None
    off: tuple[str, ...] = ()
    unmeasured: str | None = None
    failed: str | None = None
    drained: bool = True

    @property
    def wrong(self) -> bool:
        """Return True if it is not as asked, or could not be measured."""
        return bool(self.off or self.failed or not self.drained)


class Links(_Record):
    """What a probe before training found of the links that are shaped.

    Attributes:
        shaped, probed: how many links are shaped, and how many of them were measured.
        seconds: that it took.
        unmeasured: why nothing was measured; None if something was.
    """

    shaped: int
    probed: int = 0
    seconds: Number = None
    unmeasured: str | None = None
    directions: tuple[Direction, ...] = ()


class Manifest(_Record):
    """``manifest.json``: what was run, where and by which versions.

    ``classes`` are the experiment's device classes, or what the factors of its times make of the
    devices; none if all are alike. ``links`` is None where no link is shaped, or nobody looked.
    """

    format: int
    experiment: str
    algorithm: str
    seed: int
    started: Moment
    finished: Moment | None = None
    ended: Ended
    reason: str | None = None
    engine: Literal["emulation", "simulation"] = "emulation"
    clock: Literal["wall", "virtual"] = "wall"
    workers: int
    classes: tuple[DeviceClass, ...] = ()
    links: Links | None = None
    pid: int
    pid_started: float
    versions: dict[str, str] = {}
    commit: str | None = None
    host: Host = Host()
    resumed: tuple[Resumed, ...] = ()


class Ingress(_Record):
    """Bytes that entered the parameter server from its workers."""

    payload_bytes: int = 0
    message_bytes: int = 0
    wire_bytes: int = 0


class Capture(_Record):
    """The packet capture at the PS link.

    Attributes:
        records: packets in it.
        dropped: packets that passed and are not in it: the kernel had no room for them.
        left_out: packets that came after the bound on its size was reached.
        bytes: what it takes on disk.
        files: their names.
        error: why it ended early; None if it did not.
        complete: whether it holds the whole run.
    """

    records: int = 0
    dropped: int = 0
    left_out: int = 0
    bytes: int = 0
    files: tuple[str, ...] = ()
    error: str | None = None
    complete: bool = False


SERVER_KILLED = "the server was killed, and could not tell what it had received"
"""The reason for which there may be connections that no server has told of."""


class Difference(_Record):
    """Two ledgers that should be equal to the byte and are not; device None for all together."""

    ledgers: str
    device: str | None = None
    expected: int
    found: int
    reason: str


class Traffic(_Record):
    """What the run says about its count of bytes.

    ``reconciled`` is None where the ledgers were not compared: capture was off, or the run did not
    come to its end; or there was no wire, and its bytes are ``modelled``.
    """

    capture: Capture | None = None
    reconciled: bool | None = None
    differences: tuple[Difference, ...] = ()
    modelled: bool = False


class Peer(Ingress):
    """Bytes that entered one peer from the others, and what became of its model."""

    parameters_sha256: str | None = None


class LeftOut(_Record):
    """Evaluations that were due and left out: how many, of which updates in words, and why."""

    count: int
    updates: str
    reason: str | None = None


class Summary(_Record):
    """``summary.json``: what came out. Accuracies in percent, durations in seconds.

    ``training_seconds`` are those of the run's clock, ``host_seconds`` the host's; updates per second
    are by the host's. ``peers`` are those of a run without a server: everything until their connections
    were closed. ``faults`` are the numbers of devices that each kind of fault struck.
    ``evaluations_left_out`` are those for which there was no room while the evaluator could not follow.

    Where ``reconstructed``, the run left no summary and the numbers are those of its journals:
    bytes are a lower bound (wire bytes as of the last evaluation), what no journal tells is None. So is
    ``traffic`` in runs made before there were captures.
    """

    updates: int
    best_accuracy: Number = None
    final_accuracy: Number = None
    ingress: Ingress
    updates_per_second: Number = None
    setup_seconds: Number = None
    training_seconds: Number = None
    host_seconds: Number = None
    workers_lost: int | None = None
    faults: dict[str, int] = {}
    evaluations_left_out: LeftOut | None = None
    parameters_sha256: str | None = None
    peers: dict[str, Peer] = {}
    traffic: Traffic | None = None
    ended: Ended
    reason: str | None = None
    reconstructed: bool = False


class Event(_Record):
    """One line of ``events.jsonl``; time in seconds since the run began.

    Without the time between the sessions of a run that was resumed.
    """

    time: float
    level: Literal["info", "warning", "error"] = "info"
    device: str | None = None
    event: str


class FaultRecord(_Record):
    """One line of ``faults.jsonl``: a fault begins, or is over, at some devices.

    Times in seconds since training began, by the run's clock and by the host's; ``iteration`` is the
    version that there was, ``duration`` what the rule says, in seconds of the run's clock.
    """

    fault: str
    phase: Literal["begin", "end"]
    rule: int
    devices: tuple[str, ...]
    time: float
    host_time: float
    iteration: int
    duration: Number = None

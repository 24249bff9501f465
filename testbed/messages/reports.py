"""Reports of the roles (server, workers, peers and their coordinator, evaluator) to the orchestrator.

Moments that are called ``host_time`` are seconds of CLOCK_MONOTONIC; those called ``run_time`` are
seconds of the run's clock since training began. Devices are named by their numbers. ``server`` is the
index of the server that reports, of several; 0 where there is only one, or none.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

from testbed.messages.codec import MessageCodec
from testbed.messages.fault_changes import FaultChange


@dataclass(frozen=True, slots=True)
class ServerListening:
    """The server waits for connections, or the coordinator for its peers."""

    server: int = 0


@dataclass(frozen=True, slots=True)
class DevicesConnected:
    """A further device is connected; ``count`` devices are by now."""

    count: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class TrainingBegun:
    """Training has begun, or goes on: in a resumed run, or at an aggregator that came back."""

    host_time: float
    server: int = 0


@dataclass(frozen=True, slots=True)
class UpdatesApplied:
    """Pushes were taken in, and led to ``version``; ``raw`` holds their rows of ``UPDATE``."""

    version: int
    raw: bytes
    server: int = 0


@dataclass(frozen=True, slots=True)
class DiagnosticsReported:
    """The algorithm's diagnostics at each of the last ``count`` updates, up to ``version``.

    ``raw`` holds them as float64, shape (count, diagnostics).
    """

    version: int
    count: int
    raw: bytes
    server: int = 0


@dataclass(frozen=True, slots=True)
class EvaluationDue:
    """A version is to be evaluated.

    Attributes:
        payload_bytes, message_bytes: the ledgers' totals at this version.
        after_restoration: True from a restored server, which cannot know whether it was reported.
        local_payload_bytes, local_message_bytes: those of the worker on the server's own machine.
    """

    version: int
    host_time: float
    run_time: float
    payload_bytes: int
    message_bytes: int
    after_restoration: bool = False
    server: int = 0
    local_payload_bytes: int = 0
    local_message_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EvaluationLeftOut:
    """A version will not be evaluated, though that was due."""

    version: int
    reason: str
    server: int = 0


@dataclass(frozen=True, slots=True)
class VersionEvaluated:
    """The evaluator has evaluated a version.

    Attributes:
        accuracy: in percent; NaN where there is none.
        connected: the host time when it connected to the sender of the version.
        measured: of the run's measure; None if it has none.
    """

    version: int
    accuracy: float
    loss: float
    connected: float
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class EventReported:
    """An event for the run's log; ``device`` is the one that it is about, if it is about one."""

    level: str
    text: str
    device: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceMissed:
    """The virtual clock goes on without a device that no fault has struck."""

    device: int


@dataclass(frozen=True, slots=True)
class Suspected:
    """A worker, silent for ``silent`` seconds, is left out from now on.

    Attributes:
        time: seconds since training began, by the run's clock.
    """

    worker: int
    silent: float
    time: float
    version: int

    def __str__(self) -> str:
        left_out = f"it is suspected {self.time:.6g} s into training, and left out"
        return f"nothing was heard for {self.silent:.6g} s: {left_out}"


@dataclass(frozen=True, slots=True)
class Welcomed:
    """A suspected worker has sent something, and takes part again; its attributes as there."""

    worker: int
    time: float
    version: int

    def __str__(self) -> str:
        return f"it is heard again {self.time:.6g} s into training, and welcomed back"


@dataclass(frozen=True, slots=True)
class DevicesUsed:
    """What each device has done until ``run_time``, by the virtual clock.

    ``raw`` holds the rows of ``testbed.clock.device_use.as_array``; ``at_evaluation`` is True if a
    version is to be evaluated at that time. ``background`` has the bytes of each background flow that
    were sent, and that have arrived.
    """

    run_time: float
    raw: bytes
    at_evaluation: bool = False
    background: Sequence[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection is closed; these are the server's (or the observed peer's) own counts.

    Attributes:
        worker: the device that greeted over it; None if none did.
        address, port: the other end's.
        local_port: this end's.
        message_bytes: bytes of whole messages received.
        incomplete_bytes: bytes received of a message that was cut off.
        payload_bytes: bytes of the bodies of received pushes, a part of ``message_bytes``.
        sent_bytes: bytes that the kernel accepted to send.
        unsent_bytes: bytes of these that were never put on the wire.
        reason: why this end closed it; None if the other end did, at the end of the run.
        pushes: the number of pushes received.
        round_trip: the shortest one that the kernel has measured, in seconds; None if it has not.
    """

    worker: int | None
    address: str
    port: int
    local_port: int
    message_bytes: int
    incomplete_bytes: int
    payload_bytes: int
    sent_bytes: int
    unsent_bytes: int
    reason: str | None
    server: int = 0
    pushes: int = 0
    round_trip: float | None = None


@dataclass(frozen=True, slots=True)
class FaultVersionReached:
    """The server has reached a version at which faults are due."""

    version: int


@dataclass(frozen=True, slots=True)
class FaultReported:
    """A fault begins or ends; ``record`` is the one of ``Fault.record``.

    Attributes:
        spared: devices that are only recorded as struck: they still have to send what has arrived, by
            the virtual clock, and are told nothing else before the fault has ended.
    """

    record: FaultChange
    spared: Sequence[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PeersReceived:
    """The ingress of all peers so far, as ``testbed.training.peer_bytes`` counts it."""

    payload_bytes: int
    message_bytes: int


@dataclass(frozen=True, slots=True)
class PeerReturned:
    """A killed peer is back and connected to the others; it begins with its parameters of a version."""

    peer: int
    version: int


@dataclass(frozen=True, slots=True)
class FaultRestored:
    """A fault that was active at the checkpoint is active again; ``record`` is that of its begin."""

    record: FaultChange


@dataclass(frozen=True, slots=True)
class ServerKillDue:
    """The server is to be killed for the ``kills``-th time, and waits for it.

    Attributes:
        record: that of the fault's begin.
    """

    kills: int
    record: FaultChange


@dataclass(frozen=True, slots=True)
class CheckpointBegun:
    """The server is about to write a checkpoint."""

    version: int
    host_time: float
    server: int = 0


@dataclass(frozen=True, slots=True)
class ServerRestored:
    """The server has restored a checkpoint.

    Attributes:
        connected: the workers that were connected when it was written.
        counts: the number of records of each kind before it; later ones are produced again. None under
            the wall clock, where none is.
        incarnations: each worker's incarnation at that time, or that in which it comes back; None under
            the wall clock, where workers stay as they are.
    """

    version: int
    connected: Sequence[int]
    counts: Mapping[str, int] | None = None
    incarnations: Sequence[int] | None = None
    server: int = 0


@dataclass(frozen=True, slots=True)
class TrainingEnded:
    """Training has ended at ``version``, and the server says so to all devices."""

    version: int
    server: int = 0


@dataclass(frozen=True, slots=True)
class WorkerStillConnected:
    """A worker has not closed its connection in time after training."""

    worker: int


@dataclass(frozen=True, slots=True)
class FinalParameters:
    """A part of the final parameters: ``raw`` holds their float32 bytes from byte ``start`` on."""

    start: int
    raw: bytes
    server: int = 0


@dataclass(frozen=True, slots=True)
class ServerFinished:
    """A server, an aggregator, or the coordinator of peers has finished; every connection is closed.

    Attributes:
        payload_bytes, message_bytes: the totals of its ledger.
        peers: the ledgers of peers by name; empty for a server.
        local_payload_bytes, local_message_bytes: those of the worker on the server's own machine.
        late: the updates that came too late for an aggregator's combination; None of any other.
    """

    version: int
    payload_bytes: int
    message_bytes: int
    peers: Mapping[str, dict[str, Any]]
    server: int = 0
    local_payload_bytes: int = 0
    local_message_bytes: int = 0
    late: int | None = None


RoleReport: TypeAlias = (
    ServerListening
    | DevicesConnected
    | TrainingBegun
    | UpdatesApplied
    | DiagnosticsReported
    | EvaluationDue
    | EvaluationLeftOut
    | VersionEvaluated
    | EventReported
    | DeviceMissed
    | Suspected
    | Welcomed
    | DevicesUsed
    | ConnectionClosed
    | FaultVersionReached
    | FaultReported
    | PeersReceived
    | PeerReturned
    | FaultRestored
    | ServerKillDue
    | CheckpointBegun
    | ServerRestored
    | TrainingEnded
    | WorkerStillConnected
    | FinalParameters
    | ServerFinished
)
REPORTS: MessageCodec[RoleReport] = MessageCodec(get_args(RoleReport), checked=True)

# -- the reports that are counted: the orchestrator drops those that a restored server repeats

_OF_SERVER = ("updates", "evaluations")
_OF_RUN = ("faults", "suspicions")


def counted(kind: str, server: int) -> str:
    """Return the name under which a server's reports of a kind are counted: of each server apart."""
    return f"{kind} of server {server}" if server and kind in _OF_SERVER else kind


def no_reports(servers: int) -> Counter[str]:
    """Return the counts of a run with so many servers, all of them 0."""
    names = [counted(kind, server) for kind in _OF_SERVER for server in range(servers)]
    return Counter(dict.fromkeys([*names, *_OF_RUN], 0))

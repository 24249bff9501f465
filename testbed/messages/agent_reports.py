"""Events that the agent reports to the orchestrator, some of them for the fork server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from testbed.device_names import is_aggregator
from testbed.messages.codec import MessageCodec


@dataclass(frozen=True, slots=True)
class LibrariesLoaded:
    """Libraries and data are loaded: roles can be started once their nodes are made."""


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run cannot go on.

    Attributes:
        host: True if the host cannot do what was asked, which needs no traceback.
    """

    reason: str
    host: bool = False


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host besides the orchestrator's own is lost, with all its devices; ``reason`` says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """A role's process was started.

    Attributes:
        process: its id as the fork server sees it, or as the agent does without a fork server.
    """

    device: str
    process: int


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """A role's process has ended.

    Attributes:
        status: its exit status; −n for a signal n.
        memory_limit: the bytes of memory that it was killed for exceeding; None if it was not.
    """

    device: str
    status: int
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class WarningRaised:
    """Something went wrong that does not end the run."""

    text: str


@dataclass(frozen=True, slots=True)
class NodesCounted:
    """Some nodes are made; ``count`` nodes are by now."""

    count: int


@dataclass(frozen=True, slots=True)
class NodesMade:
    """All nodes are made."""


@dataclass(frozen=True, slots=True)
class LinksCounted:
    """Some links are made; ``count`` links are by now."""

    count: int


class LinkValues(TypedDict):
    """The measurement of one direction of a link, as of ``network.packet_trains.LinkMeasurement``.

    Attributes:
        rate: bit/s, rounded.
        loss: the share of the packets that was lost, which is within ``loss_between``.
    """

    rate: int | None
    at_least: bool
    delay: float | None
    loss: float
    loss_between: Sequence[float]
    packets: int


class DirectionReport(TypedDict):
    """One direction of a probed link; see ``network.probe.ProbedDirection``.

    Attributes:
        asked: the fields of its ``Shape``; jitter and queue only where they are asked for.
    """

    device: str
    direction: Literal["uplink", "downlink"]
    asked: Mapping[str, float | None]
    measured: LinkValues | None
    tries: int
    off: Sequence[str]
    unmeasured: str | None
    failed: str | None
    drained: bool


class ProbedLinks(TypedDict, total=False):
    """The result of a probe: each direction that shapes something, and the seconds that it took.

    If it failed there is only ``failed``, the reason.
    """

    directions: Sequence[DirectionReport]
    seconds: float
    failed: str


@dataclass(frozen=True, slots=True)
class LinksProbed:
    """The sample of links was probed."""

    result: ProbedLinks


@dataclass(frozen=True, slots=True)
class NetworkBuilt:
    """All links are made, and their traffic is counted from now on."""


@dataclass(frozen=True, slots=True)
class IngressRead:
    """The counters of ingress were read.

    Background traffic is in none of them but ``egress``.

    Attributes:
        ingress: the sum over the counted devices: ``time``, ``bytes``, ``frames`` and ``dropped``.
        egress: the same for the servers' egress; None without metrics, or without a server.
        of_each: the bytes of each server; None if there are not several.
        background: the bytes of each flow of background traffic that have arrived by then, None of one
            whose receiver is on another host; None without such flows.
    """

    ingress: Mapping[str, float]
    egress: Mapping[str, float] | None = None
    of_each: Mapping[str, int] | None = None
    background: Sequence[int | None] | None = None


@dataclass(frozen=True, slots=True)
class CountersSampled:
    """The counters of links were read; ``raw`` holds their rows of ``traffic.counters.COUNTS``.

    A sample of many links takes several messages.
    """

    raw: bytes


@dataclass(frozen=True, slots=True)
class LinkBytesRead:
    """The bytes of the whole run over links; ``raw`` holds rows of ``telemetry.update_rows.LINK``.

    Those of many links take several messages.
    """

    raw: bytes


@dataclass(frozen=True, slots=True)
class SocketsCounted:
    """The kernel's counts of a device's TCP connections at the run's end; many take several messages.

    Attributes:
        rows: the fields of ``traffic.sockets.Socket``, of each.
        lost: the number of ended connections whose counts the kernel dropped.
        forgotten: the fields of ``traffic.sockets.Forgotten``, of each.
    """

    device: str
    rows: Sequence[Sequence[Any]]
    lost: int
    forgotten: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class UplinksSampled:
    """The counters of peers' uplinks were read, in ``raw`` as in ``CountersSampled``."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class ProcessorTimesRead:
    """The processor time of each device since it was made.

    Attributes:
        host_time: when it was read, in seconds of CLOCK_MONOTONIC.
        source: ``control group``, or ``process`` where there is none.
        seconds: by device; one that is not known is missing.
    """

    host_time: float
    source: str
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HostRead:
    """The kernel's counts of the host's processors, all in seconds.

    Attributes:
        host_time: when it was read, in seconds of CLOCK_MONOTONIC.
        total: of all processors that the run may use.
        idle, stolen: the parts of it in which nothing ran, and that other guests took.
        throttled: that a quota withheld from this run's control groups; None if no group counts it.
        pressure: by resource, how long some process has waited; empty if the kernel does not count.
    """

    host_time: float
    total: float
    idle: float
    stolen: float
    throttled: float | None
    pressure: Mapping[str, float]


class CaptureReport(TypedDict, total=False):
    """The report of a capture: the fields of a ``traffic.capture.CaptureResult``, as JSON.

    A report of the progress has only ``records``, ``dropped`` and ``acknowledgements``. ``error`` is
    alone where the capture ended without a report.
    """

    records: int
    dropped: int
    left_out: int
    bytes: int
    files: Sequence[str]
    error: str | None
    acknowledgements: int
    complete: bool


_Number: TypeAlias = Literal["records", "dropped", "left_out", "bytes", "acknowledgements"]
_NUMBERS: tuple[_Number, ...] = get_args(_Number)


def summed(reports: Mapping[str, CaptureReport | None]) -> CaptureReport | None:
    """Add up the numbers in the reports of several devices' captures; None before all have one.

    Acknowledgements to aggregators are left out: they are none to the servers.
    """
    known = {device: report for device, report in reports.items() if report is not None}
    if not known or len(known) < len(reports):
        return None
    total = CaptureReport()
    for name in _NUMBERS:
        of_servers_only = name == "acknowledgements"
        found = [
            report[name]
            for device, report in known.items()
            if name in report and not (of_servers_only and is_aggregator(device))
        ]
        if found:
            total[name] = sum(found)
    return total


class ServerTraffic(TypedDict):
    """``capture`` and ``counter`` of one server; see ``TrafficStopped``."""

    capture: CaptureReport | None
    counter: dict[str, float]


@dataclass(frozen=True, slots=True)
class ProcessesSampled:
    """The use of memory and processors, and the capture's progress, if metrics are exported.

    Attributes:
        capture: the capture's latest report; None before the first.
        memory: private bytes by role.
        processor: seconds of processor time of each process that is not a device.
    """

    capture: CaptureReport | None
    memory: Mapping[str, int]
    processor: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DeviceFrozen:
    """A device is frozen; reported if metrics are exported."""

    device: str


@dataclass(frozen=True, slots=True)
class DeviceThawed:
    """A device goes on; reported if metrics are exported."""

    device: str


@dataclass(frozen=True, slots=True)
class TrafficStopped:
    """The link has become quiet, and the capture has ended.

    Attributes:
        capture: the last report of the observed device's capture; None without a capture.
        counter: the counter of the observed device, background traffic included; the keys are those of
            ``IngressRead.ingress``.
        ingress, egress, background: as in ``IngressRead``.
        ingress_of_each: the bytes that entered each counted device.
        others: the same of each further server.
        background_sent: the bytes of each flow that were sent, None of one whose sender is on another
            host; None without such flows, or if it is not known.
    """

    capture: CaptureReport | None
    counter: dict[str, float]
    ingress: Mapping[str, float]
    ingress_of_each: Mapping[str, int]
    egress: Mapping[str, float] | None = None
    others: Mapping[str, ServerTraffic] = field(default_factory=dict)
    background: Sequence[int | None] | None = None
    background_sent: Sequence[int | None] | None = None


@dataclass(frozen=True, slots=True)
class BackgroundCounted:
    """The background traffic of a host without a server, at the run's end.

    Attributes:
        received, sent: the bytes of each flow that arrived there, or were sent from there; None of a
            flow whose receiver, or sender, is on another host.
    """

    received: Sequence[int | None]
    sent: Sequence[int | None] | None


@dataclass(frozen=True, slots=True)
class OutputWritten:
    """Output of a program on another host that is new since the last event, with time stamps."""

    device: str
    program: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class HomePartRead:
    """A part of what ``ReadHome`` asked for: of a tar archive; empty after the last one."""

    device: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class LastSampleTaken:
    """No sample of the counters follows."""


@dataclass(frozen=True, slots=True)
class RemainsFound:
    """Something could not be removed at the end; ``text`` names it."""

    text: str


Event: TypeAlias = (
    LibrariesLoaded
    | RunFailed
    | HostLost
    | ProcessStarted
    | ProcessExited
    | WarningRaised
    | NodesCounted
    | NodesMade
    | LinksCounted
    | LinksProbed
    | NetworkBuilt
    | IngressRead
    | CountersSampled
    | LinkBytesRead
    | SocketsCounted
    | UplinksSampled
    | ProcessesSampled
    | ProcessorTimesRead
    | HostRead
    | DeviceFrozen
    | DeviceThawed
    | TrafficStopped
    | BackgroundCounted
    | OutputWritten
    | HomePartRead
    | LastSampleTaken
    | RemainsFound
)
NodeEvent: TypeAlias = LibrariesLoaded | RunFailed | ProcessStarted | ProcessExited | WarningRaised
"""An event of the nodes; the agent passes it on."""
EVENTS: MessageCodec[Event] = MessageCodec(get_args(Event))
NODE_EVENTS: MessageCodec[NodeEvent] = MessageCodec(get_args(NodeEvent))

"""Requests of the orchestrator to the agent.

A request about a fault sets a state from now on, and asking twice changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypeAlias, TypedDict, get_args

from testbed.messages.codec import MessageCodec
from testbed.messages.planned_nodes import PlannedNetwork, PlannedNodes


class Load(TypedDict):
    """The functions that nodes call to load what roles need, each as "module:function".

    Attributes:
        entry: returns the function that runs a role.
        arguments: the argument of all three functions; nodes know none of its keys.
        entry_inside: the same as ``entry``, for a container that loads for itself.
        shared: for such containers, makes what their roles share by descriptor.
        anew: True for a fork server in a new interpreter; see ``fork_server.serve_anew``.
    """

    entry: str
    arguments: Mapping[str, object]
    entry_inside: NotRequired[str]
    shared: NotRequired[str]
    anew: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class LoadRoles:
    """Choose the kind of nodes, and load what roles need; the first request."""

    load: Load
    nodes: PlannedNodes


@dataclass(frozen=True, slots=True)
class BuildNetwork:
    """Make the nodes and links of a plan."""

    plan: PlannedNetwork


@dataclass(frozen=True, slots=True)
class StartRole:
    """Start a role in a device's node.

    Attributes:
        role: the arguments of the role, or of a keeper of programs; the agent knows none of their keys.
    """

    device: str
    role: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FreezeDevice:
    """Freeze every process of a device."""

    device: str


@dataclass(frozen=True, slots=True)
class ThawDevice:
    """Thaw a frozen device."""

    device: str


@dataclass(frozen=True, slots=True)
class KillDevice:
    """Kill every process of a device's role; the device can be started again."""

    device: str


@dataclass(frozen=True, slots=True)
class SetLink:
    """Take a device's link up or down."""

    device: str
    up: bool


@dataclass(frozen=True, slots=True)
class SetPartition:
    """Cut devices off from all servers (``cut``), or connect them again."""

    devices: Sequence[str]
    cut: bool


@dataclass(frozen=True, slots=True)
class SetRates:
    """Set the rates of a device's link in bit/s; None: as planned."""

    device: str
    uplink: int | None
    downlink: int | None


@dataclass(frozen=True, slots=True)
class SetTracedRates:
    """Set the rates that traces give links, by device: uplink and downlink in bit/s.

    0: nothing passes; None: as planned. A rate of ``SetRates`` limits them.
    """

    rates: Mapping[str, Sequence[int | None]]


@dataclass(frozen=True, slots=True)
class SetCorruption:
    """Set the share of a device's frames that are damaged, from 0 to 1."""

    device: str
    share: float


@dataclass(frozen=True, slots=True)
class LimitProcessors:
    """Limit a device to ``cpus`` processors; None: as planned."""

    device: str
    cpus: float | None


@dataclass(frozen=True, slots=True)
class GiveUpDevices:
    """Reset the connections to devices whose host is lost, and take their links down, for good."""

    devices: Sequence[str]


@dataclass(frozen=True, slots=True)
class SetPace:
    """Set the factor by which the durations of the device with a number are multiplied."""

    device: str
    number: int
    factor: float


@dataclass(frozen=True, slots=True)
class SendBackground:
    """Start the background traffic or, when it has started, end it for good."""

    begin: bool


@dataclass(frozen=True, slots=True)
class ReadIngress:
    """Read the counters of ingress now, and not only at the next regular time."""


@dataclass(frozen=True, slots=True)
class ReadProcessors:
    """Read the devices' processor times now, and not only at the next regular time."""


@dataclass(frozen=True, slots=True)
class StopTraffic:
    """Wait until the link is quiet, end the capture, and report the last counters."""


@dataclass(frozen=True, slots=True)
class ReadHome:
    """Send the next part of what programs have written to the home of a device on another host."""

    device: str


ImpairmentRequest: TypeAlias = (
    SetLink | SetPartition | SetRates | SetTracedRates | SetCorruption | LimitProcessors
)
"""A request that applies a fault to a link or a node, or undoes it."""
Request: TypeAlias = (
    LoadRoles
    | BuildNetwork
    | StartRole
    | FreezeDevice
    | ThawDevice
    | KillDevice
    | ImpairmentRequest
    | GiveUpDevices
    | SetPace
    | SendBackground
    | ReadIngress
    | ReadProcessors
    | StopTraffic
    | ReadHome
)
REQUESTS: MessageCodec[Request] = MessageCodec(get_args(Request))

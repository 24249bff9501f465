"""Messages between the agent and the processes that run roles: the fork server, and containers.

They answer with events of nodes (``agent_reports.NodeEvent``). Descriptors travel beside them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, get_args

from testbed.messages.agent_reports import LibrariesLoaded, ProcessExited, RunFailed
from testbed.messages.codec import MessageCodec


@dataclass(frozen=True, slots=True)
class ForkRole:
    """Fork a process that runs a role.

    With it come the descriptors of the channel for its reports, of the network namespace and, where
    there is one, of the control group's ``cgroup.procs``; only the first for a process that enters a
    container.

    Attributes:
        role: see ``StartRole``.
        container: the first process of the container to enter; None for a node made of namespaces.
        beside: True for a process beside the container's own: it sees the host's files, and keeps
            its user, and shares with them processes, network and control groups.
    """

    device: str
    role: Mapping[str, object]
    container: int | None = None
    beside: bool = False


@dataclass(frozen=True, slots=True)
class SignalRole:
    """Send a signal to the process of a device's role."""

    device: str
    signal: int


ForkRequest: TypeAlias = ForkRole | SignalRole
FORK_REQUESTS: MessageCodec[ForkRequest] = MessageCodec(get_args(ForkRequest))


ContainerEvent: TypeAlias = LibrariesLoaded | RunFailed | ProcessExited
CONTAINER_EVENTS: MessageCodec[ContainerEvent] = MessageCodec(
    get_args(ContainerEvent), checked=True
)


@dataclass(frozen=True, slots=True)
class LoadRole:
    """Load what a role needs, by calling ``entry``; with it comes the descriptor of the log."""

    entry: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ShareDescriptors:
    """Keep the descriptors that come with it: they are for the role."""


@dataclass(frozen=True, slots=True)
class RunRole:
    """Run the role; with it comes the descriptor of the channel for its reports."""

    role: Mapping[str, object]


ContainerRequest: TypeAlias = LoadRole | ShareDescriptors | RunRole
CONTAINER_REQUESTS: MessageCodec[ContainerRequest] = MessageCodec(get_args(ContainerRequest))

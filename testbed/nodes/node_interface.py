"""The interface between the agent and a run's nodes, of namespaces or of containers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.messages.agent_reports import NodeEvent


@dataclass(frozen=True, slots=True)
class Device:
    """A node to be made.

    Attributes:
        cpus: processors that it may use, possibly a fraction; None for all.
        memory: bytes that it may use; None for all.
    """

    name: str
    cpus: float | None = None
    memory: int | None = None


class Nodes(Protocol):
    """The nodes of one run."""

    @property
    def fork_server(self) -> int | None:
        """The id of the process that nodes are forked from; None if they are not forked."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are ``events``."""

    def events(self) -> Iterator[NodeEvent]:
        """Yield what has happened; either ``LibrariesLoaded`` or ``RunFailed`` comes once."""

    def has_room(self) -> bool:
        """Return True if a request can be sent without waiting."""

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        """Make the nodes; no role runs in them yet.

        Args:
            abandoned: called now and then with the number of nodes so far; True if the run has ended.

        Raises:
            HostError: they cannot be made.
        """

    def network(self, device: str) -> int:
        """Return the descriptor of a node's network namespace."""

    def containers(self) -> Mapping[str, int]:
        """Return the id of the first process of each node that is a container, in the agent's /proc."""

    def start(self, device: str, role: Mapping[str, object], report: int) -> None:
        """Start a role in a node.

        Args:
            report: descriptor of the channel for its reports; the caller closes it.
        """

    def freeze(self, device: str) -> None:
        """Freeze every process of a node."""

    def thaw(self, device: str) -> None:
        """Thaw the processes of a frozen node."""

    def kill(self, device: str) -> None:
        """Kill every process of a node's role, frozen or not; the node can be started again."""

    def processor_seconds(self, device: str) -> float | None:
        """Return the processor time of a node so far, in seconds, as its control group counts it.

        That of processes that have ended is in it. None: there is no group that counts.
        """

    def limit(self, device: str, cpus: float | None) -> None:
        """Limit a node to ``cpus`` processors from now on; None for as many as planned.

        Raises:
            HostError: nodes of this kind, or this host, cannot limit them.
        """

    def take_down(self) -> str | None:
        """End every node and remove everything made; return what could not be removed, or None."""

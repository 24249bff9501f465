"""What the agent asks of a run's nodes, whatever they are made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Device:
    """A node to be made.

    Attributes:
        name: of the device, its host name too.
        cpus: processors that it may use, a fraction perhaps; None for all.
        memory: bytes that it may use; None for all.
    """

    name: str
    cpus: float | None = None
    memory: int | None = None


class Nodes(Protocol):
    """The nodes of one run."""

    @property
    def fork_server(self) -> int | None:
        """Id of the process that nodes are forked from, if they are."""

    def fileno(self) -> int:
        """Readable when there are ``events``."""

    def events(self) -> Iterator[dict[str, Any]]:
        """What has happened: ``{"loaded": true}`` or ``{"failed": reason}`` once, ``{"started":
        device, "process": n}``, ``{"exited": device, "status": n}`` with a negative n for a signal, and
        with ``"out_of_memory": bytes`` if it was killed for using more memory than those. A process's
        id is as the fork server sees it, or as this process does where there is none.
        """

    def has_room(self) -> bool:
        """Return True if a node can be asked for something without waiting."""

    def create(self, devices: Sequence[Device], abandoned: Callable[[int], bool]) -> None:
        """Make the nodes; nothing runs in them yet.

        Args:
            abandoned: told now and then how many there are, and asked whether the run has ended.

        Raises:
            HostError: they cannot be made.
        """

    def network(self, device: str) -> int:
        """Descriptor of a node's network namespace."""

    def start(self, device: str, role: Mapping[str, Any]) -> None:
        """Start a role in a node."""

    def freeze(self, device: str) -> None:
        """Stop every process of a node where it stands."""

    def thaw(self, device: str) -> None:
        """Let the processes of a frozen node go on."""

    def kill(self, device: str) -> None:
        """End every process of a node's role at once, frozen or not; the node can be started again.

        A container whose first process is the role ends with it.
        """

    def limit(self, device: str, cpus: float | None) -> None:
        """Let a node use so many processors from now on; None: as many as planned.

        Raises:
            HostError: nodes of this kind, or this host, cannot limit them.
        """

    def take_down(self) -> str | None:
        """End every node and remove what was made; returns what could not be removed, if anything."""
